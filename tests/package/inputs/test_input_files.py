from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch._subclasses import FakeTensorMode
from torch.utils import _pytree as pytree

from aoti_debug.base.errors import ArtifactError, InputMismatch
from aoti_debug.base.machine.files import json_data
from aoti_debug.package import manifest
from aoti_debug.package.inputs import input_files, signature
from aoti_debug.package.inputs.input_files import Inputs
from aoti_debug.package.inputs.signature import Dim, Leaf, ModelSignature
from aoti_debug.package.manifest import Kind
from aoti_debug.package.pt2 import archive
from tests import archives
from tests.factories import arg, make_manifest, site

X = torch.arange(6.0).reshape(2, 3)
Y = torch.tensor([1, 2])


def tensor_leaf(name: str, tensor: torch.Tensor) -> Leaf:
    shape = tuple(Dim(size, size) for size in tensor.shape)
    return Leaf(name, str(tensor.dtype), str(tensor.device), shape, tuple(tensor.stride()))


def spec_of(*args: Any, **kwargs: Any) -> str:
    return str(pytree.treespec_dumps(pytree.tree_flatten((args, kwargs))[1]))


# f(x, y), f(x, *, y), f(*, x, y), f(x, 2, y)
BOTH = ModelSignature((tensor_leaf("x", X), tensor_leaf("y", Y)), spec_of(X, Y))
KEYWORD = ModelSignature((tensor_leaf("x", X), tensor_leaf("y", Y)), spec_of(X, y=Y))
KEYWORDS = ModelSignature((tensor_leaf("x", X), tensor_leaf("y", Y)), spec_of(x=X, y=Y))
WITH_OTHERS = ModelSignature(BOTH.leaves, spec_of(X, 2, y=Y, mode=3), others=2)
WITH_NUMBER = ModelSignature((tensor_leaf("x", X), Leaf("n", constant="2"), tensor_leaf("y", Y)), spec_of(X, 2, Y))


def assert_same(inputs: Inputs, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    torch.testing.assert_close((inputs.args, dict(inputs.kwargs)), (args, kwargs), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("data", "described", "args", "kwargs"),
    [
        ((X, Y), BOTH, (X, Y), {}),
        ([X, Y], BOTH, (X, Y), {}),
        ({"args": (X, Y), "kwargs": {}}, BOTH, (X, Y), {}),
        ({"args": (X, Y)}, BOTH, (X, Y), {}),
        (((X, Y), {}), BOTH, (X, Y), {}),
        (((X,), {"y": Y}), KEYWORD, (X,), {"y": Y}),
        ({"args": (X,), "kwargs": {"y": Y}}, KEYWORD, (X,), {"y": Y}),
        ({"x": X, "y": Y}, KEYWORD, (X,), {"y": Y}),
        ({"kwargs": {"y": Y, "x": X}}, KEYWORDS, (), {"x": X, "y": Y}),
        ((X, 2, Y), WITH_NUMBER, (X, 2, Y), {}),
        ({"args": (X, 2), "kwargs": {"mode": 4, "y": Y}}, WITH_OTHERS, (X, 2), {"y": Y, "mode": 4}),
        (X, ModelSignature((tensor_leaf("x", X),), spec_of(X)), (X,), {}),
    ],
)
def test_reads_every_form_of_pt(
    tmp_path: Path, data: Any, described: ModelSignature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    path = tmp_path / "in.pt"
    torch.save(data, path)
    assert_same(input_files.read(path, described), args, kwargs)


def test_a_pair_of_tuple_and_dict_may_be_the_arguments_themselves(tmp_path: Path) -> None:
    path = tmp_path / "in.pt"
    torch.save(((X, X), {"a": Y}), path)
    leaves = tuple(tensor_leaf(name, tensor) for name, tensor in (("p_0", X), ("p_1", X), ("q_a", Y)))
    nested = ModelSignature(leaves, spec_of((X, X), {"a": Y}))
    assert_same(input_files.read(path, nested), ((X, X), {"a": Y}), {})


@pytest.mark.parametrize(
    ("tensors", "described", "args", "kwargs"),
    [
        ({"x": X, "y": Y}, BOTH, (X, Y), {}),
        ({"0": X, "1": Y}, KEYWORD, (X,), {"y": Y}),
        ({"x": X, "y": Y}, WITH_NUMBER, (X, 2, Y), {}),
        ({"0": X, "2": Y}, WITH_NUMBER, (X, 2, Y), {}),
    ],
)
def test_reads_safetensors_by_name_or_position(
    tmp_path: Path,
    tensors: dict[str, torch.Tensor],
    described: ModelSignature,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    path = tmp_path / "in.safetensors"
    save_file(tensors, path)
    assert_same(input_files.read(path, described), args, kwargs)


@pytest.mark.parametrize(
    ("data", "message", "hint"),
    [
        (
            (X,),
            "the model takes 2 inputs, {path} has 1",
            "the model takes:\n  x float32[2, 3] on cpu\n  y int64[2] on cpu",
        ),
        (
            (X.double(), Y),
            "input 0 (x) of {path} is float64[2, 3] on cpu; the model takes float32[2, 3] on cpu",
            "convert it: x.to(torch.float32)",
        ),
        (
            (X, Y[:1]),
            "input 1 (y) of {path} is int64[1] on cpu; the model takes int64[2] on cpu",
            "its shape has to be [2]",
        ),
        (
            (X, Y.reshape(1, 2)),
            "input 1 (y) of {path} is int64[1, 2] on cpu; the model takes int64[2] on cpu",
            "its shape has to be [2]",
        ),
        (
            (X, Y.to("meta")),
            "input 1 (y) of {path} is on meta; the model takes it on cpu",
            "move it: y.to('cpu')",
        ),
        (
            (X.t().contiguous().t(), Y),
            "input 0 (x) of {path} has strides [1, 2]; the model takes [3, 1] and reads its memory with those",
            "change its layout: x.contiguous()",
        ),
        ((X, 3), "input 1 (y) of {path} is 3; the model takes int64[2] on cpu", "y has to be a tensor"),
    ],
)
def test_the_message_names_the_mismatched_input(tmp_path: Path, data: Any, message: str, hint: str) -> None:
    path = tmp_path / "in.pt"
    torch.save(data, path)
    with pytest.raises(ArtifactError) as caught:
        input_files.read(path, BOTH)
    assert (str(caught.value), caught.value.hint) == (message.format(path=path), hint)


def mismatches_of(values: tuple[Any, ...], described: ModelSignature) -> list[tuple[str, str, str, str, str]]:
    with pytest.raises(InputMismatch) as caught:
        input_files.check(Inputs(values, {}), described, "the inputs")
    return [(m.name, m.kind, m.promised, m.found, m.advice) for m in caught.value.mismatches]


def test_all_mismatches_are_reported() -> None:
    wrong = (X.double()[:1], 3, Y.to("meta"))
    assert mismatches_of(wrong, WITH_NUMBER) == [
        ("x", "dtype", "float32[2, 3] on cpu", "float64[1, 3] on cpu", "convert it: x.to(torch.float32)"),
        ("x", "shape", "float32[2, 3] on cpu", "float64[1, 3] on cpu", "its shape has to be [2, 3]"),
        ("n", "kind", "2", "3", "export has fixed n to 2"),
        ("y", "device", "cpu", "meta", "move it: y.to('cpu')"),
    ]


def test_one_error_for_all_mismatches() -> None:
    with pytest.raises(InputMismatch) as caught:
        input_files.check(Inputs((X, X), {}), BOTH, "in.pt")
    assert str(caught.value).splitlines() == [
        "input 1 (y) of in.pt is float32[2, 3] on cpu; the model takes int64[2] on cpu",
    ]
    assert caught.value.hint == "convert it: y.to(torch.int64); its shape has to be [2]"


def test_another_index_of_the_same_device() -> None:
    described = ModelSignature((Leaf("x", "torch.float32", "cuda:0", (Dim(2, 2),), (1,)),))
    with FakeTensorMode():  # whose tensors need no such device
        input_files.check(Inputs((torch.empty(2, device="cuda:0"),), {}), described, "inputs")
        elsewhere = torch.empty(2, device="cuda:1"), torch.empty(2)
    assert [mismatches_of((x,), described) for x in elsewhere] == [
        [("x", "device", "cuda:0", "cuda:1", "move it: x.to('cuda:0')")],
        [("x", "device", "cuda:0", "cpu", "move it: x.to('cuda:0')")],
    ]


def test_any_device_of_a_kind_but_one_for_all() -> None:
    described = ModelSignature(tuple(Leaf(name, "torch.float32", "cuda", (Dim(2, 2),), (1,)) for name in "xy"))
    with FakeTensorMode():
        first, second, host = (torch.empty(2, device=device) for device in ("cuda:0", "cuda:1", "cpu"))
    for device in (first, second):
        input_files.check(Inputs((device, device), {}), described, "inputs")
    assert mismatches_of((second, first), described) == [("y", "device", "cuda:1", "cuda:0", "move it: y.to('cuda:1')")]
    assert mismatches_of((host, second), described) == [("x", "device", "cuda:1", "cpu", "move it: x.to('cuda:1')")]
    assert mismatches_of((host, host), described)[0] == ("x", "device", "cuda", "cpu", "move it: x.to('cuda')")


def test_the_gpu_that_inputs_are_on() -> None:
    with FakeTensorMode():
        nested = {"args": (torch.empty(2), [torch.empty(2, device="cuda:1")]), "kwargs": {"n": 3}}
    assert input_files.device_index(nested) == 1
    assert input_files.device_index((torch.empty(2), "text", None)) == -1


ROWS = Dim(2, 9, "s77")
DYNAMIC = ModelSignature(
    (
        Leaf("x", "torch.float32", "cpu", (ROWS, Dim(3, 3)), (3, 1)),
        Leaf("y", "torch.float32", "cpu", (Dim(3, 3), Dim(0, -1, "2*s77")), ("2*s77", 1)),
    )
)


def test_sizes_that_belong_together() -> None:
    input_files.check(Inputs((torch.zeros(4, 3), torch.zeros(3, 8)), {}), DYNAMIC, "inputs")
    assert mismatches_of((torch.zeros(4, 3), torch.zeros(3, 9)), DYNAMIC) == [
        ("y", "shape", "float32[3, 2*s77:0..] on cpu", "float32[3, 9] on cpu", "its size 9 has to be 2*s77 = 8"),
    ]
    both = ModelSignature((DYNAMIC.leaves[0], replace(DYNAMIC.leaves[0], name="z")))
    ((name, kind, *_, advice),) = mismatches_of((torch.zeros(4, 3), torch.zeros(5, 3)), both)
    assert (name, kind, advice) == ("z", "shape", "its size 5 has to be s77 = 4, since s77 is 4 in x")


def test_an_input_without_a_name_is_told_by_its_position() -> None:
    x, y = (replace(leaf, name="") for leaf in DYNAMIC.leaves)
    described = ModelSignature((x, y, replace(x, name="", dtype="torch.int64")), spec_of(X, Y, X))
    with pytest.raises(InputMismatch) as caught:
        input_files.check(Inputs((torch.zeros(4, 3), torch.zeros(8, 3).t(), torch.zeros(5, 3)), {}), described, "in.pt")
    assert str(caught.value).splitlines()[::2] == [
        "input 1 of in.pt has strides [1, 3]; the model takes [8, 1] and reads its memory with those",
    ]
    assert caught.value.hint.split("; ") == [
        "change its layout: tensor.contiguous()",
        "convert it: tensor.to(torch.int64)",
        "its size 5 has to be s77 = 4, since s77 is 4 in input 0",
    ]
    with pytest.raises(ArtifactError, match=r"the model takes 0, 1, 2$"):
        input_files.arrange(Path("in.safetensors"), {"arg0_1": X}, described)
    with pytest.raises(ArtifactError, match="input 1 has a value that is not recorded"):
        input_files.constant_value(ModelSignature((x, Leaf(""))), 1)


def test_strides_of_dimensions_that_are_not_fixed() -> None:
    assert mismatches_of((torch.zeros(4, 3), torch.zeros(8, 3).t()), DYNAMIC) == [
        ("y", "strides", "[8, 1]", "[1, 3]", "change its layout: y.contiguous()"),
    ]


@pytest.mark.parametrize(
    ("wanted", "advice"),
    [
        (
            torch.zeros(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
            "x.contiguous(memory_format=torch.channels_last)",
        ),
        (
            torch.zeros(2, 3, 4, 5, 6).contiguous(memory_format=torch.channels_last_3d),
            "x.contiguous(memory_format=torch.channels_last_3d)",
        ),
        (
            torch.zeros(2, 2).t(),
            "torch.empty_strided([2, 2], [1, 2], dtype=x.dtype, device=x.device).copy_(x)",
        ),
        (
            torch.zeros(2, 3, 4, 5).transpose(0, 3),
            "torch.empty_strided([5, 3, 4, 2], [1, 20, 5, 60], dtype=x.dtype, device=x.device).copy_(x)",
        ),
    ],
)
def test_advice_for_strides_leads_to_them(wanted: torch.Tensor, advice: str) -> None:
    x = torch.zeros(wanted.shape)
    ((*_, stride_advice),) = mismatches_of((x,), ModelSignature((tensor_leaf("x", wanted),)))
    assert stride_advice == f"change its layout: {advice}"
    converted = eval(advice, {"torch": torch, "x": x})
    input_files.check(Inputs((converted,), {}), ModelSignature((tensor_leaf("x", wanted),)), "inputs")


def test_a_value_fixed_at_export_must_not_change() -> None:
    with pytest.raises(ArtifactError) as caught:
        input_files.check(Inputs((X, 3, Y), {}), WITH_NUMBER, "inputs")
    assert caught.value.hint == "export has fixed n to 2"


def test_arguments_that_are_not_tensors_may_be_unknown(tmp_path: Path) -> None:
    save_file({"x": X, "y": Y}, tmp_path / "in.safetensors")
    inputs = input_files.read(tmp_path / "in.safetensors", WITH_OTHERS)
    tensors = [
        value for value in pytree.tree_leaves((inputs.args, dict(inputs.kwargs))) if isinstance(value, torch.Tensor)
    ]
    torch.testing.assert_close(tensors, [X, Y], rtol=0, atol=0)
    with pytest.raises(InputMismatch, match="the model takes 4 inputs, here has 2") as caught:
        input_files.check(Inputs((X, Y), {}), WITH_OTHERS, "here")
    assert caught.value.hint.endswith("and 2 arguments that are not tensors: the package does not record which")
    with pytest.raises(InputMismatch, match="the model takes 2 tensors, here has 1"):
        input_files.check(Inputs((X, 2), {"y": None, "mode": None}), WITH_OTHERS, "here")
    with pytest.raises(InputMismatch, match=r"input 1 \(y\) of here is float32"):
        input_files.check(Inputs((X, 2), {"y": X, "mode": None}), WITH_OTHERS, "here")


def test_an_unrecorded_value() -> None:
    with pytest.raises(ArtifactError, match="input x has a value that is not recorded"):
        input_files.constant_value(ModelSignature((Leaf("x"),)), 0)


def test_strides_of_single_and_empty_dimensions_do_not_matter() -> None:
    one = torch.zeros(1, 3)
    leaf = Leaf("x", "torch.float32", "cpu", (Dim(1, 1), Dim(3, 3)), (3, 1))
    input_files.check(Inputs((torch.as_strided(one, (1, 3), (7, 1)),), {}), ModelSignature((leaf,)), "inputs")
    empty = Leaf("x", "torch.float32", "cpu", (Dim(0, 0), Dim(3, 3)), (3, 1))
    input_files.check(Inputs((torch.zeros(3, 0).t(),), {}), ModelSignature((empty,)), "inputs")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("in.pt", b"no pickle", "{path} holds objects that are neither tensors nor plain Python values"),
        ("in.safetensors", b"nothing", "{path} is no safetensors file"),
    ],
)
def test_unreadable_files(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ArtifactError) as caught:
        input_files.read(path, BOTH)
    assert str(caught.value).startswith(message.format(path=path))


def test_a_pair_of_tuple_and_dict_without_an_exported_structure(tmp_path: Path) -> None:
    path = tmp_path / "in.pt"
    torch.save(((X,), {"y": Y}), path)
    assert_same(input_files.read(path, ModelSignature(BOTH.leaves)), (X,), {"y": Y})


def test_named_tensors_move_to_the_device_of_export() -> None:
    described = ModelSignature((tensor_leaf("x", X.to("meta")), tensor_leaf("y", Y)), spec_of(X, Y))
    inputs = input_files.arrange(Path("in.safetensors"), {"x": X, "y": Y}, described)
    assert [value.device.type for value in inputs.args] == ["meta", "cpu"]
    assert inputs.args[1] is Y


def test_a_package_without_inputs_lists_what_the_model_takes() -> None:
    error = input_files.missing_inputs_error("m.pt2", BOTH, ("aoti-debug", "build", "m.pt2", "--random-inputs", "0"))
    assert str(error) == "m.pt2 has no inputs in it"
    assert error.hint == (
        "pass some with --inputs FILE.pt; for a first look, aoti-debug build m.pt2 --random-inputs 0 makes some; the "
        "model takes:"
        "\n  x float32[2, 3] on cpu\n  y int64[2] on cpu"
    )


def test_a_wrong_number_of_inputs_is_that_of_no_position() -> None:
    with pytest.raises(InputMismatch) as caught:
        input_files.check(Inputs((X,), {}), BOTH, "in.pt")
    (mismatch,) = caught.value.mismatches
    assert (mismatch.name, mismatch.position, mismatch.kind) == ("", -1, "count")
    assert (mismatch.promised, mismatch.found) == ("2 inputs", "1 input")


def test_code_in_a_pt_file_does_not_run(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "touched",)

    path = tmp_path / "in.pt"
    torch.save((X, Evil()), path)
    with pytest.raises(ArtifactError, match="neither tensors nor plain Python values"):
        input_files.read(path, BOTH)
    assert not (tmp_path / "touched").exists()


def test_unknown_names_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "in.safetensors"
    save_file({"x": X, "z": Y}, path)
    with pytest.raises(ArtifactError) as caught:
        input_files.read(path, BOTH)
    assert str(caught.value) == f"{path} has the tensors x, z; the model takes x, y"


def test_embedded_inputs_are_read_back(tmp_path: Path) -> None:
    input_files.write(Inputs((X, 2), {"y": Y}), tmp_path / "in.pt")
    members = {
        **archives.PACKAGE,
        manifest.MEMBER: b"{}",
        archive.INPUTS_MEMBER: (tmp_path / "in.pt").read_bytes(),
        archive.SIGNATURE_MEMBER: signature.to_json(BOTH).encode(),
    }
    package = archive.inspect(archives.write(tmp_path / "p.pt2", members))
    inputs = input_files.read_embedded(package)
    assert inputs is not None
    assert_same(inputs, (X, 2), {"y": Y})
    assert input_files.read_signature(package) == BOTH


@pytest.mark.parametrize("kind", [Kind.CPP, Kind.SHIM_OUT])
def test_marks_are_written_out_where_no_generated_kernel_reads_the_memory(tmp_path: Path, kind: Kind) -> None:
    view = torch.view_as_complex(torch.randn(2, 3, 2)).conj().imag
    described = ModelSignature((replace(tensor_leaf("x", view), strides=None), tensor_leaf("y", Y)), spec_of(X, y=Y))
    input_files.write(Inputs((view,), {"y": Y}), tmp_path / "in.pt")
    made = replace(make_manifest(site("k", arg("arg0_1"), kind=kind)), inputs=("arg0_1", "arg1_1"))
    members = {
        **archives.PACKAGE,
        manifest.MEMBER: json_data.to_text(made).encode(),
        archive.INPUTS_MEMBER: (tmp_path / "in.pt").read_bytes(),
        archive.SIGNATURE_MEMBER: signature.to_json(described).encode(),
    }
    package = archive.inspect(archives.write(tmp_path / "p.pt2", members))
    for given in (None, str(tmp_path / "in.pt")):
        if kind is Kind.CPP:
            with pytest.raises(InputMismatch, match=r"marked as negated \(is_neg\(\)\); k reads its memory as it is"):
                input_files.given_or_embedded(package, given)
            continue
        inputs = input_files.given_or_embedded(package, given)
        assert not inputs.args[0].is_neg()
        assert_same(inputs, (view.resolve_neg(),), {"y": Y})


def test_a_package_may_be_without_inputs(tmp_path: Path) -> None:
    package = archive.inspect(archives.write(tmp_path / "p.pt2", {**archives.PACKAGE, manifest.MEMBER: b"{}"}))
    assert input_files.read_embedded(package) is None


class Custom:
    pass


def test_inputs_that_could_not_be_read_again_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="cannot be saved"):
        input_files.write(Inputs((Custom(),), {}), tmp_path / "in.pt")
    assert list(tmp_path.iterdir()) == []

"""Tensors whose bytes torch takes as they are: weights of any layout, and inputs that it negates or conjugates."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from aoti_debug.package.inputs.signature import Leaf, ModelSignature
from aoti_debug.package.inputs.validate import marked_mismatches, missing_weights, weight_mismatches
from aoti_debug.package.manifest import Constant, Kind
from tests.factories import arg, make_manifest, site

CONSTANTS = (
    Constant("l_weight", "l.weight", "float32", (4, 6), (6, 1), folded=False),
    Constant("l_row", "l.row", "float32", (1, 6), (6, 1), folded=False),
    Constant("count", "count", "int64", (), (), folded=False),
    Constant("folded_0", "", "float32", (2,), (1,), folded=True),
)


@pytest.mark.parametrize("name", ["l.weight", "l_weight"])
def test_what_fits_is_no_mismatch(name: str) -> None:
    assert weight_mismatches({name: torch.ones(4, 6), "l.row": torch.ones(6, 1).t()}, CONSTANTS) == ()
    assert weight_mismatches({"count": torch.ones(1, dtype=torch.int64), "l.row": torch.ones(1, 6, 1)}, CONSTANTS) == ()
    assert weight_mismatches({"unknown": torch.ones(9)}, CONSTANTS) == ()  # torch itself refuses such a name


@pytest.mark.parametrize(
    ("given", "kind", "said", "advice"),
    [
        (torch.ones(2, 6), "shape", "given as float32[2, 6]; the model was compiled for float32[4, 6]", "[4, 6]"),
        (torch.ones(4, 6).half(), "dtype", "given as float16[4, 6]; the model was compiled", "convert it to float32"),
        (
            torch.ones(6, 4).t(),
            "strides",
            "with strides [1, 4]; the model reads its memory with [6, 1]",
            "contiguous()",
        ),
        (torch.ones(1, 4, 6), "shape", "given as float32[1, 4, 6]", "[4, 6]"),  # its first two strides are 24 and 6
        (torch.ones(24), "shape", "given as float32[24]", "[4, 6]"),
        (
            torch.ones(8, 6)[4:],
            "storage",
            "as a view, from element 24 on, of a storage of 192 bytes; torch copies so many bytes from there, not 96, "
            "and reads from element 24 of the copy",
            "clone()",
        ),
        (
            torch.ones(8, 6)[:4],
            "storage",
            "of a storage of 192 bytes; torch copies so many bytes from there, not 96",
            "clone()",
        ),
    ],
)
def test_each_property_that_torch_does_not_check(given: torch.Tensor, kind: str, said: str, advice: str) -> None:
    (found,) = weight_mismatches({"l.weight": given}, CONSTANTS)
    assert (found.name, found.position, found.kind) == ("l.weight", -1, kind)
    assert found.sentence.startswith("weight l.weight was given ")
    assert said in found.sentence
    assert advice in found.advice


def test_no_elements_are_not_one_element() -> None:
    (found,) = weight_mismatches({"count": torch.ones(0, dtype=torch.int64)}, CONSTANTS)
    assert found.kind == "shape"


MARKED = ModelSignature(
    (Leaf("n", constant="3"), Leaf("x", "torch.float32", "cpu"), Leaf("z", "torch.complex64", "cpu"))
)


@pytest.mark.parametrize(
    ("kind", "name", "kernels"),
    [(Kind.CPP, "arg0_1", ["x"]), (Kind.CPP, "arg1_1", ["z"]), (Kind.CPP, "buf0", []), (Kind.SHIM_OUT, "arg0_1", [])],
)
def test_only_generated_kernels_do_not_see_that_torch_negates_or_conjugates(
    kind: Kind, name: str, kernels: list[str]
) -> None:
    view = arg("arg9_1_view", base=name)
    manifest = replace(make_manifest(site("k", view, kind=kind)), inputs=("arg0_1", "arg1_1"))
    pairs = torch.randn(4, 2)
    conjugate = torch.view_as_complex(pairs).conj()
    found = marked_mismatches([3, conjugate.imag, conjugate], MARKED, manifest, "the package")
    assert [mismatch.name for mismatch in found] == kernels
    assert all(f"({mismatch.found}); k reads its memory as it is" in mismatch.sentence for mismatch in found)
    assert marked_mismatches([3, pairs[:, 0], conjugate.resolve_conj()], MARKED, manifest, "the package") == ()


def test_parameters_that_a_buffer_of_weights_lacks() -> None:
    names = ("l.weight", "scale", "shift", "empty")
    constants = [Constant(f"c{i}", name, "float32", (2,), (1,), False, "Parameter") for i, name in enumerate(names)]
    constants[3] = replace(constants[3], shape=(0, 4))
    buffer = Constant("count", "count", "float32", (), (), False, "Buffer")
    found = missing_weights({"c0", "shift"}, [*constants, buffer])
    assert [(mismatch.name, mismatch.kind) for mismatch in found] == [("scale", "missing")]
    assert missing_weights(names, constants) == ()

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from aoti_debug.base.abi import Phase, SaveStatus
from aoti_debug.base.errors import RunDirError
from aoti_debug.package.argument_values import Layout, Tensor
from aoti_debug.runs.run.saved_outputs import write_tensor
from aoti_debug.runs.rundir import load_tensors
from aoti_debug.runs.rundir.formats.stored_tensor import FileLayout
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site
from tests.saved_tensors import described, save
from tests.torch_features import BCOMPLEX32


def saved_run(base: Path, **values: Any) -> RunDir:
    """A run of one launch with these arguments, saved before it."""
    writer = JournalWriter(level=1)
    writer.launch_begin(0, 0, *(described(value) for value in values.values()))
    for slot, (name, value) in enumerate(values.items()):
        path = f"tensors/0/0000_k/before_launch_k_{name}_cpu.safetensors"
        writer.tensor_file(0, slot, Phase.BEFORE, path, size=value.numel() * value.element_size())
    writer.launch_end(0)
    run = run_directory(base, make_manifest(site("k", *(arg(name) for name in values))), writer)
    for name, value in values.items():
        save(run / f"tensors/0/0000_k/before_launch_k_{name}_cpu.safetensors", name, value)
    return open_run(run)


def same(a: Any, b: Any) -> bool:
    bits = (t.contiguous().view(-1).view(torch.uint8) if t.numel() else t for t in (a, b))
    return (
        (a.dtype, a.shape, a.stride(), a.storage_offset()) == (b.dtype, b.shape, b.stride(), b.storage_offset())
        and torch.equal(*bits)
    )  # fmt: skip


BASE = torch.arange(60, dtype=torch.float32)
LAYOUTS = {
    "contiguous": BASE.reshape(6, 10),
    "transposed": BASE.reshape(6, 10).t(),
    "offset": BASE[7:37].reshape(3, 10),
    "strided": BASE[::3],
    "expanded": BASE[:5].expand(4, 5),
    "expanded scalar": BASE[3].expand(2, 2),
    "windows": BASE.as_strided((8, 4), (2, 1), 5),
    "channels last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "empty": torch.empty(0, 4),
    "scalar": torch.tensor(3.5),
    "one": BASE.as_strided((1, 4), (99, 1), 2),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_file_brings_its_layout_back(tmp_path: Path, name: str) -> None:
    save(tmp_path / "t.safetensors", "buf0", LAYOUTS[name])
    loaded = load_tensors.load_file(tmp_path / "t.safetensors")
    assert same(loaded, LAYOUTS[name])
    assert loaded.untyped_storage().nbytes() == LAYOUTS[name].untyped_storage().nbytes()


DTYPES = ["bool", "uint8", "int8", "uint16", "int16", "int32", "int64", "uint64", "float16", "bfloat16", "float64"]


@pytest.mark.parametrize("dtype", [*DTYPES, "float8_e5m2", "float8_e4m3fn", "complex64"])
def test_dtypes_that_safetensors_has(tmp_path: Path, dtype: str) -> None:
    value = torch.randn(4, 3).mul(3).to(getattr(torch, dtype)).t()
    save(tmp_path / "t.safetensors", "x", value)
    assert same(load_tensors.load_file(tmp_path / "t.safetensors"), value)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_as_pairs_of_reals(tmp_path: Path, dtype: Any) -> None:
    value = torch.randn(4, 3, dtype=dtype).t()
    save(tmp_path / "t.safetensors", "x", value, stored=torch.view_as_real(value.contiguous()))
    assert same(load_tensors.load_file(tmp_path / "t.safetensors"), value)


@pytest.mark.skipif(not BCOMPLEX32, reason="this torch has no dtype bcomplex32")
@pytest.mark.filterwarnings("ignore:BComplex32 support is experimental")
def test_complex_as_pairs_of_bfloat16(tmp_path: Path) -> None:
    pairs = torch.randn(3, 4, 2).to(torch.bfloat16)
    value = pairs.view(torch.bcomplex32).squeeze(-1)
    save(tmp_path / "t.safetensors", "x", value, stored=pairs)
    loaded = load_tensors.load_file(tmp_path / "t.safetensors")
    assert (loaded.dtype, loaded.shape) == (value.dtype, (3, 4))
    assert torch.view_as_real(loaded).equal(pairs)


def test_dtypes_as_bytes(tmp_path: Path) -> None:
    value = torch.randn(4, 3).to(torch.float8_e4m3fnuz)
    save(tmp_path / "t.safetensors", "x", value, stored=value.view(torch.uint8))
    assert same(load_tensors.load_file(tmp_path / "t.safetensors"), value)


def test_values_alone_are_contiguous(tmp_path: Path) -> None:
    save(tmp_path / "t.safetensors", "x", LAYOUTS["transposed"])
    values, layout = load_tensors.load_values(tmp_path / "t.safetensors")
    assert values.is_contiguous()
    assert torch.equal(values, LAYOUTS["transposed"])
    assert layout == FileLayout("float32", (10, 6), (1, 10), 0, 240)


def test_arguments_of_one_storage_share_it_again(tmp_path: Path) -> None:
    pool = torch.arange(64, dtype=torch.float32)
    alone = torch.ones(3)
    views = {
        "whole": pool.reshape(8, 8),
        "row": pool[8:16],
        "columns": pool.as_strided((8,), (8,), 3),
        "as_ints": pool.view(torch.int32)[20:30],
        "alone": alone,
    }
    run = saved_run(tmp_path, **views)
    loaded = load_tensors.load_launch(run, run.launch("0"), Phase.BEFORE)
    assert list(loaded) == list(views)
    assert all(same(loaded[name], views[name]) for name in views)
    storages = {name: value.untyped_storage().data_ptr() for name, value in loaded.items()}
    assert len({storages[name] for name in ("whole", "row", "columns", "as_ints")}) == 1
    assert storages["alone"] != storages["whole"]
    loaded["row"].fill_(-1)
    assert torch.equal(loaded["whole"][1], torch.full((8,), -1.0))


def test_storages_that_overlap_in_memory_are_one(tmp_path: Path) -> None:
    pool = torch.arange(64, dtype=torch.float32)
    run = saved_run(tmp_path, whole=pool, inner=pool[10:20])
    outer, inner = run.launch("0").args
    assert isinstance(inner.before, Tensor)
    # A storage made from an address within another one has no offset of its own.
    blob = Layout("float32", "cpu", (10,), (1,), 0, 40, 4)
    object.__setattr__(inner, "before", Tensor(inner.before.data_ptr, blob))
    save(run.path / inner.files[Phase.BEFORE].path, "inner", pool[10:20].clone())
    loaded = load_tensors.load_launch(run, run.launch("0"), Phase.BEFORE)
    assert loaded["inner"].data_ptr() == loaded["whole"].data_ptr() + 40
    assert torch.equal(loaded["inner"], pool[10:20])
    assert torch.equal(loaded[outer.name], pool)


def test_a_choice_of_arguments(tmp_path: Path) -> None:
    run = saved_run(tmp_path, a=torch.ones(2), b=torch.zeros(2))
    assert list(load_tensors.load_launch(run, run.launch("0"), Phase.BEFORE, names=["b"])) == ["b"]
    with pytest.raises(RunDirError, match=r"b of launch 0\.0 was not saved"):
        load_tensors.load_launch(run, run.launch("0"), Phase.AFTER, names=["b"])


def test_a_skipped_tensor_says_why(tmp_path: Path) -> None:
    writer = JournalWriter(level=1)
    writer.launch_begin(0, 0, described(torch.ones(2)))
    writer.tensor_file(0, 0, Phase.BEFORE, "", status=SaveStatus.SKIPPED, reason="the disk is full")
    run = open_run(run_directory(tmp_path, make_manifest(site("k", arg("x"))), writer))
    assert load_tensors.load_launch(run, run.launch("0"), Phase.BEFORE) == {}
    with pytest.raises(RunDirError, match="was not saved: the disk is full"):
        load_tensors.load_launch(run, run.launch("0"), Phase.BEFORE, names=["x"])


def test_damaged_files_are_named(tmp_path: Path) -> None:
    file = tmp_path / "t.safetensors"
    save(file, "x", BASE)
    whole = file.read_bytes()
    for data in (b"", whole[:4], whole[:-1], b"\xff" * 40, whole.replace(b'"[60]"', b'"[61]"'), whole[8:]):
        file.write_bytes(data)
        with pytest.raises(RunDirError) as caught:
            load_tensors.load_file(file)
        assert str(caught.value).startswith(f"{file} is damaged")
        assert "level 1" in caught.value.hint


@pytest.mark.parametrize("text", ["60", "[true]", "[60.0]", '["60"]', "[[60]]", "[" * 100_000])
@pytest.mark.parametrize("name", ["shape", "strides"])
def test_damaged_layouts_are_named(tmp_path: Path, name: str, text: str) -> None:
    save(tmp_path / "t.safetensors", "x", BASE, **{name: text})
    with pytest.raises(RunDirError, match=r"t\.safetensors is damaged"):
        load_tensors.load_file(tmp_path / "t.safetensors")


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(RunDirError) as caught:
        load_tensors.load_file(tmp_path / "gone.safetensors")
    assert str(caught.value) == f"{tmp_path / 'gone.safetensors'} is missing"


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    save_file({"x": BASE}, tmp_path / "t.safetensors")
    with pytest.raises(RunDirError, match="was not written by aoti-debug"):
        load_tensors.load_file(tmp_path / "t.safetensors")


def test_a_dtype_that_this_torch_has_not(tmp_path: Path) -> None:
    save(tmp_path / "t.safetensors", "x", BASE, dtype="torch.float1024")
    with pytest.raises(RunDirError, match="contains float1024"):
        load_tensors.load_file(tmp_path / "t.safetensors")


# Mapped


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_mapped_tensor_is_the_same(tmp_path: Path, name: str) -> None:
    path, value = tmp_path / "x.safetensors", LAYOUTS[name]
    save(path, "x", value)
    assert same(load_tensors.map_file(path), load_tensors.load_file(path))


def test_writing_to_a_mapped_tensor_does_not_change_its_file(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_tensor(path, "x", BASE)
    mapped = load_tensors.map_file(path)
    assert any(str(path) in line for line in Path("/proc/self/maps").read_text().splitlines())
    before = path.read_bytes()
    mapped.zero_()
    assert path.read_bytes() == before
    assert torch.equal(load_tensors.map_file(path), BASE)

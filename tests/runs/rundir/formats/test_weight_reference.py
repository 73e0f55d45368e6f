"""References to weights in place of tensor files."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from aoti_debug.base.errors import RunDirError
from aoti_debug.runs.rundir import load_tensors
from aoti_debug.runs.rundir.formats import stored_tensor, tensor_file_format, weight_reference
from tests.saved_tensors import program_of, save, tensor_bytes, write_reference

WEIGHT = torch.arange(24, dtype=torch.float32).reshape(4, 6)
VIEWS = {"whole": WEIGHT, "turned": WEIGHT.t(), "part": WEIGHT[1:3], "column": WEIGHT[:, 2]}


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return program_of(tmp_path / "model.pt2", WEIGHT)


def refer(program: Path, path: Path, tensor: Any, **changed: Any) -> Path:
    return write_reference(path, "w", tensor, program, WEIGHT, **changed)


@pytest.mark.parametrize("name", VIEWS)
def test_it_is_read_as_the_file_in_whose_place_it_stands(program: Path, tmp_path: Path, name: str) -> None:
    view = VIEWS[name]
    path = refer(program, tmp_path / "before_launch_k_w_cpu.weight.json", view)
    (tmp_path / "saved").mkdir()
    file = tmp_path / "saved/before_launch_k_w_cpu.safetensors"
    save(file, "w", view)
    assert stored_tensor.layout_of(path) == stored_tensor.layout_of(file)
    assert bytes(stored_tensor.open_tensor(path).data) == tensor_bytes(view)
    values, layout = load_tensors.load_values(path)
    assert torch.equal(values, view)
    assert layout == stored_tensor.layout_of(file)
    for load in (load_tensors.load_file, load_tensors.map_file):
        assert torch.equal(load(path), view)
        assert load(path).stride() == view.stride()
    copy = tmp_path / "copy.safetensors"
    copy.write_bytes(b"".join(tensor_file_format.chunks(path)))
    assert torch.equal(load_file(copy)["w"], view)
    assert stored_tensor.layout_of(copy) == layout
    assert stored_tensor.bytes_of(path) == view.nbytes
    assert b"".join(tensor_file_format.chunks(file)) == file.read_bytes()
    assert stored_tensor.bytes_of(file) == file.stat().st_size


def test_writing_to_what_was_loaded_changes_no_weight(program: Path, tmp_path: Path) -> None:
    path = refer(program, tmp_path / "x.weight.json", WEIGHT)
    before = program.read_bytes()
    load_tensors.map_file(path).fill_(0)
    assert program.read_bytes() == before


def test_where_its_elements_are(program: Path, tmp_path: Path) -> None:
    path = refer(program, tmp_path / "x.weight.json", VIEWS["part"])
    file, begin = stored_tensor.elements_at(path)
    assert file.read_bytes()[begin : begin + VIEWS["part"].nbytes] == tensor_bytes(VIEWS["part"])
    turned = refer(program, tmp_path / "y.weight.json", VIEWS["turned"])
    with pytest.raises(RunDirError, match="refers to a weight that is not row-major in its file"):
        stored_tensor.elements_at(turned)
    save(tmp_path / "z.safetensors", "w", VIEWS["turned"])
    file, begin = stored_tensor.elements_at(tmp_path / "z.safetensors")
    assert file.read_bytes()[begin:] == tensor_bytes(VIEWS["turned"])


def test_a_tensor_file_beside_it_is_read_in_its_place(program: Path, tmp_path: Path) -> None:
    path = refer(program, tmp_path / "x.weight.json", WEIGHT)
    program.unlink()
    assert "which does not exist" in stored_tensor.missing_weight(path)
    elsewhere = tmp_path / "elsewhere.safetensors"
    save(elsewhere, "w", WEIGHT)
    (tmp_path / "x.safetensors").symlink_to(elsewhere)
    assert stored_tensor.missing_weight(path)  # a link in a run from elsewhere may lead to any file
    (tmp_path / "x.safetensors").unlink()
    elsewhere.rename(tmp_path / "x.safetensors")
    assert stored_tensor.missing_weight(path) == ""
    assert torch.equal(load_tensors.load_file(path), WEIGHT)
    assert bytes(stored_tensor.open_tensor(path).data) == tensor_bytes(WEIGHT)


def test_a_program_that_is_gone_or_another_one(program: Path, tmp_path: Path) -> None:
    path = refer(program, tmp_path / "x.weight.json", WEIGHT)
    assert stored_tensor.missing_weight(path) == ""
    with zipfile.ZipFile(program, "a") as archive:
        archive.writestr("model/more", b"")
    begin = f"the run refers to weights in {program}, which"
    hint = "put it back, or run the package again at level 1"
    for read in (
        stored_tensor.open_tensor,
        load_tensors.load_values,
        lambda path: next(tensor_file_format.chunks(path)),
    ):
        with pytest.raises(RunDirError, match="has changed since the run, or cannot be read") as changed:
            read(path)
        assert (str(changed.value).startswith(begin), changed.value.hint) == (True, hint)
    program.unlink()
    with pytest.raises(RunDirError) as gone:
        load_tensors.load_file(path)
    assert (str(gone.value), gone.value.hint) == (f"{begin} does not exist", hint)
    program.mkdir()
    assert stored_tensor.missing_weight(path) == f"{begin} does not exist"


@pytest.mark.parametrize(
    "changed",
    [
        *({"format": 2}, {"dtype": "float33"}, {"shape": [4]}, {"shape": [4, -6]}, {"strides": [6, -1]}),
        *(
            {"begin": -1},
            {"begin": 1 << 60},
            {"shape": [1 << 40, 6]},
            {"shape": [1 << 40], "strides": [0]},
            {"shape": [0, 6]},
            {"size": "1"},
            {"hash": [1]},
        ),
    ],
)
def test_a_damaged_one(program: Path, tmp_path: Path, changed: dict[str, Any]) -> None:
    path = refer(program, tmp_path / "x.weight.json", WEIGHT, **changed)
    with pytest.raises(RunDirError, match=r"x\.weight\.json is damaged: "):
        weight_reference.read(path)


def test_a_missing_one_and_a_link(tmp_path: Path) -> None:
    with pytest.raises(RunDirError, match=r"x\.weight\.json is missing"):
        stored_tensor.open_tensor(tmp_path / "x.weight.json")
    (tmp_path / "x.weight.json").symlink_to("/etc/hostname")
    with pytest.raises(RunDirError, match="cannot be read: it is a symbolic link"):
        stored_tensor.open_tensor(tmp_path / "x.weight.json")

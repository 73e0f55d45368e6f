"""Level 1: references to weights in their file, in place of files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.runtime_shims.journal_decoder import Journal
from tests.runtime_shims.reference_hash import content_hash
from tests.runtime_shims.runtime_library import IN, INOUT, Handle, Runtime, Slot

Load = Callable[..., Runtime]
Decode = Callable[[], Journal]
WRITTEN, LINKED, SKIPPED, REFERRED = range(4)
BEFORE, AFTER = range(2)
BEGIN, SHAPE = 192, (512, 1024)  # 2 MiB


@dataclass(frozen=True)
class Weights:
    """A file with one weight, its copy in memory, and the table that says so."""

    file: Path
    tensor: torch.Tensor
    table: Path


@pytest.fixture
def weights(tmp_path: Path) -> Weights:
    tensor = torch.arange(512 * 1024, dtype=torch.float32).reshape(SHAPE)
    file, table = tmp_path / 'a "model".pt2', tmp_path / "table"
    file.write_bytes(bytes(BEGIN) + tensor.numpy().tobytes() + b"the end")
    table.write_text(f"{file}\t{file.stat().st_size}\tabc\n{tensor.data_ptr()}\t{tensor.nbytes}\t{BEGIN}\n")
    return Weights(file, tensor, table)


def save(runtime: Runtime, *tensors: torch.Tensor, role: int = IN, change: Callable[[], object] = lambda: None) -> None:
    """One call with one launch that takes the tensors as x0, x1, …, and changes something."""
    site = runtime.site(0, "k", *(Slot(f"x{i}", role=role, value=i) for i in range(len(tensors))))
    given = [Handle(tensor) for tensor in tensors]
    with runtime.call(), runtime.launch(site, *(handle.value for handle in given)):
        change()
    runtime.unload()


def statuses(journal: Journal) -> list[tuple[int, int, int]]:
    """Phase, slot and status of each record."""
    return [(record.phase, record.slot, record.status) for record in journal.of("tensor_file")]


def reference(run: Path, name: str, phase: str = "before") -> Any:
    return json.loads((run / f"tensors/0/0000_k/{phase}_launch_k_{name}_cpu.weight.json").read_text())


def hashes(tensor: torch.Tensor) -> list[int]:
    content = tensor.contiguous().numpy().tobytes()
    return [content_hash(content), content_hash(content, 0xD1B54A32D192ED03)]


def test_a_weight_that_is_as_in_its_file_is_referred_to(
    load: Load, run: Path, journal: Decode, weights: Weights
) -> None:
    whole, turned, rows = weights.tensor, weights.tensor.t(), weights.tensor[100:400, ::1]
    save(load(LEVEL=1, WEIGHTS=weights.table), whole, turned, rows)
    assert statuses(journal()) == [(phase, slot, REFERRED) for phase in (BEFORE, AFTER) for slot in range(3)]
    assert not list(run.rglob("*.safetensors"))
    first = {"format": 1, "file": str(weights.file), "size": weights.file.stat().st_size, "sha256": "abc"}
    layout = {"dtype": "float32", "storage_bytes": weights.tensor.nbytes}
    assert reference(run, "x0") == {
        **first,
        **layout,
        "name": "x0",
        "begin": BEGIN,
        "shape": [512, 1024],
        "strides": [1024, 1],
        "storage_offset": 0,
        "hash": hashes(whole),
    }
    found = reference(run, "x1")
    assert (found["begin"], found["strides"], found["hash"]) == (BEGIN, [1, 1024], hashes(turned))
    found = reference(run, "x2")
    assert (found["begin"], found["storage_offset"]) == (BEGIN + 100 * 4096, 100 * 1024)
    assert found["hash"] == hashes(rows)
    records = list(journal().of("tensor_file"))
    assert [[record.hash0, record.hash1] for record in records[:3]] == [hashes(t) for t in (whole, turned, rows)]
    assert all((run / record.path).is_file() for record in records)
    after = run / "tensors/0/0000_k/after_launch_k_x0_cpu.weight.json"
    assert os.path.samefile(after, run / "tensors/0/0000_k/before_launch_k_x0_cpu.weight.json")


def test_a_weight_is_found_by_the_name_of_its_argument(
    load: Load, run: Path, journal: Decode, weights: Weights
) -> None:
    size = weights.tensor.nbytes
    named = "".join(f"=x{i}\t{size}\t{BEGIN}\n" for i in (0, 1, 3))
    weights.table.write_text(f"{weights.file}\t{weights.file.stat().st_size}\tabc\n{named}")
    same, changed = weights.tensor.clone(), weights.tensor.clone()
    changed[0, 0] = 7
    tensors = same, weights.tensor.clone()[100:400], weights.tensor.clone(), changed
    save(load(LEVEL=1, WEIGHTS=weights.table), *tensors)
    assert statuses(journal())[:4] == [(BEFORE, i, REFERRED if i in (0, 1) else WRITTEN) for i in range(4)]
    assert reference(run, "x1")["begin"] == BEGIN + 100 * 4096
    assert reference(run, "x0")["hash"] == hashes(same)


def test_a_weight_that_was_changed_is_saved(load: Load, run: Path, journal: Decode, weights: Weights) -> None:
    def change() -> None:
        weights.tensor[511, 1023] = -1.0

    save(load(LEVEL=1, WEIGHTS=weights.table), weights.tensor, role=INOUT, change=change)
    assert statuses(journal()) == [(BEFORE, 0, REFERRED), (AFTER, 0, WRITTEN)]
    saved = load_file(run / "tensors/0/0000_k/after_launch_k_x0_cpu.safetensors")["x0"]
    assert torch.equal(saved, weights.tensor)


def test_a_result_is_referred_to_only_where_its_elements_can_be_mapped(
    load: Load, journal: Decode, weights: Weights
) -> None:
    save(load(LEVEL=1, WEIGHTS=weights.table), weights.tensor, weights.tensor.t(), role=INOUT)
    before, after = [(BEFORE, 0, REFERRED), (BEFORE, 1, REFERRED)], [(AFTER, 0, REFERRED), (AFTER, 1, WRITTEN)]
    assert statuses(journal()) == before + after


def test_small_tensors_and_those_of_other_memory_are_saved(load: Load, journal: Decode, weights: Weights) -> None:
    small, beyond = weights.tensor[:256], weights.tensor.clone()
    expanded = weights.tensor[:2].expand(400, 2, 1024)
    save(load(LEVEL=1, WEIGHTS=weights.table), small, beyond, expanded)
    assert statuses(journal())[:3] == [(BEFORE, slot, WRITTEN) for slot in range(3)]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda w: w.table.unlink(), "table: No such file or directory"),
        (lambda w: w.table.write_text("model.pt2\t12"), "AOTI_DEBUG_WEIGHTS names no table of weights"),
        (lambda w: w.table.write_text(f"{w.table.read_text()}x\t1\t2"), "a line of the table that AOTI_DEBUG_WEIGHTS"),
        (lambda w: w.table.write_text(f"{w.table.read_text()}1\t9999999999\t2"), "a line of the table that AOTI_DEBUG"),
        (lambda w: w.file.write_bytes(b"other"), 'a "model".pt2 has changed'),
        (lambda w: w.file.unlink(), 'a "model".pt2: No such file or directory'),
    ],
)
def test_without_the_table_or_the_file_weights_are_saved_and_a_note_says_so(
    load: Load,
    journal: Decode,
    weights: Weights,
    capfd: pytest.CaptureFixture[str],
    change: Callable[[Weights], object],
    problem: str,
) -> None:
    change(weights)
    save(load(LEVEL=1, WEIGHTS=weights.table), weights.tensor)
    assert statuses(journal())[0] == (BEFORE, 0, WRITTEN)
    (note,) = journal().of("note")
    assert note.text.startswith("weights are saved, not referred to: ")
    assert problem in note.text
    assert problem in capfd.readouterr().err


def test_a_weight_on_a_device_is_hashed_there_and_not_copied(
    load: Load, device_library: Path, run: Path, journal: Decode, weights: Weights
) -> None:
    runtime = load(device_library, LEVEL=1, WEIGHTS=weights.table)
    given = Handle(weights.tensor)
    runtime.lib.f_mark(given.pointer)
    site = runtime.site(0, "k", Slot("w", role=IN))
    with runtime.call(stream=1), runtime.launch(site, given.value):
        pass
    copied = runtime.lib.f_copied()
    runtime.unload()
    assert statuses(journal()) == [(BEFORE, 0, REFERRED), (AFTER, 0, REFERRED)]
    assert copied == 0
    (record, _) = journal().of("tensor_file")
    assert [record.hash0, record.hash1] == hashes(weights.tensor)
    assert (run / record.path).name == "before_launch_k_w_cuda:0.weight.json"

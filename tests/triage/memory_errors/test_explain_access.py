from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from aoti_debug.base.abi import Phase
from aoti_debug.package.manifest import Certainty, ModelLine, Provenance, Role
from aoti_debug.repro.run_repro import Evidence, SeenAccess
from aoti_debug.repro.templates.accesses import LoadedIndex
from aoti_debug.runs.diagnosis import findings
from aoti_debug.runs.diagnosis.dataflow import Dataflow
from aoti_debug.runs.diagnosis.findings import Finding, place_of
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from aoti_debug.triage.memory_errors.explain_access import explain, explain_overrun
from aoti_debug.triage.results.finding_kinds import OVERRUN
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site
from tests.saved_tensors import described, save

LINES = ("index = ids * 3", "rows = self.table[index]")
FRAMES = tuple(ModelLine("m.py", line, "forward", text) for line, text in enumerate(LINES, 1))
GATHER = replace(
    site("gather", arg("table"), arg("arg0_1"), arg("buf0", Role.OUT)),
    provenance=Provenance(Certainty.EXACT, source=FRAMES),
)
MANIFEST = replace(make_manifest(GATHER), inputs=("arg0_1", "table"), input_names=("ids", "table"))
FAULT = Finding(findings.FAULT, "SIGSEGV", evidence=("launch 0.0 began and never returned",))


def run_of(base: Path, ids: Any, rows: int = 10) -> RunDir:
    """A gather of rows of 4 that did not return; what it read was saved."""
    values = (torch.zeros(rows, 4), ids, torch.zeros(len(ids), 4))
    writer = JournalWriter(level=1)
    writer.call_begin()
    writer.launch_begin(0, 0, *(described(value) for value in values))
    for slot in range(2):
        writer.tensor_file(0, slot, Phase.BEFORE, f"tensors/{slot}.safetensors")
    path = run_directory(base, MANIFEST, writer)
    for slot, name in enumerate(("table", "arg0_1")):
        save(path / f"tensors/{slot}.safetensors", name, values[slot])
    return open_run(path)


def access(element: int | None, index: LoadedIndex | None, argument: str = "table") -> SeenAccess:
    beyond = 0 if element is None else element - 39
    return SeenAccess("load", "", argument, "", element, 40, beyond, 4, None, 1, None, index)


def seen(*accesses: SeenAccess) -> Evidence:
    return Evidence("0.0 gather", "checked", "", "", "fault", 11, "out-of-bounds load", accesses, ())


def explained(run: RunDir, *accesses: SeenAccess) -> Finding:
    return explain(FAULT, Dataflow(run), run.launches[0], [seen(*accesses)] if accesses else [])


def test_an_index_that_is_used_unchanged_comes_from_the_input(tmp_path: Path) -> None:
    finding = explained(run_of(tmp_path, torch.tensor([1, 12])), access(48, LoadedIndex("arg0_1", 1, 12)))
    assert finding.where is not None
    assert (finding.where.argument, finding.where.element) == ("table", 48)
    assert finding.where.frame == FRAMES[1]
    assert finding.origin is not None
    assert (finding.origin.input, finding.origin.element) == ("ids", 1)
    assert finding.evidence[0] == "out-of-bounds load from table: element 48 of 40, 9 past the end"
    assert finding.evidence[-1] == FAULT.evidence[0]


def test_the_access_after_a_failed_assertion_names_the_table(tmp_path: Path) -> None:
    """The replay with checks goes on, and sees the access that the assertion prevents."""
    index, text = LoadedIndex("arg0_1", 1, 12), "index out of bounds: 0 <= tmp0 < 10L"
    failed = SeenAccess("assertion", text, "", "", None, 0, 0, 0, None, 1, None, index)
    run = run_of(tmp_path, torch.tensor([1, 12]))
    finding = explained(run, failed, access(48, index))
    assert finding.where is not None
    assert (finding.where.argument, finding.where.element) == ("table", 48)
    assert finding.evidence[:2] == (
        f"an assertion of the kernel failed: {text}",
        "out-of-bounds load from table: element 48 of 40, 9 past the end",
    )
    other = explained(run, failed, access(48, LoadedIndex("arg0_1", 0, 1)))
    assert other.where is not None
    assert other.where.argument == ""


def test_an_index_that_the_kernel_computes_comes_from_the_element_that_a_trial_names(tmp_path: Path) -> None:
    """5 is a valid row of the table, 3 * 5 is not."""
    finding = explained(run_of(tmp_path, torch.tensor([1, 5])), access(60, LoadedIndex("arg0_1", 1, 5)))
    assert finding.origin is not None
    assert (finding.origin.input, finding.origin.element) == ("ids", 1)
    assert "the index came from the model's input: ids[1] is 5" in finding.evidence


def test_a_number_that_an_address_is_computed_from_is_no_origin_by_itself(tmp_path: Path) -> None:
    """An interpreter knows what an address was computed from, but not what is wrong with it: index + FAR."""
    run = run_of(tmp_path, torch.tensor([1, 5]))
    evidence = replace(seen(access(60, LoadedIndex("arg0_1", 1, 5))), mode="interpret")
    finding = explain(FAULT, Dataflow(run), run.launches[0], [evidence])
    assert finding.origin is None
    assert "the address is computed from arg0_1[1], which is 5" in finding.evidence


def test_a_divisor_comes_from_the_element_that_a_trial_names(tmp_path: Path) -> None:
    division = SeenAccess(
        "division", "integer division by zero", "", "", None, 0, 0, 0, None, 1, None, LoadedIndex("arg0_1", 1, 5)
    )
    finding = explained(run_of(tmp_path, torch.tensor([1, 5])), division)
    assert finding.evidence[:2] == (
        "integer division by zero",
        "the divisor came from the model's input: ids[1] is 5",
    )
    assert finding.origin is not None
    assert (finding.origin.input, finding.origin.element) == ("ids", 1)


def test_any_index_of_an_empty_table_is_bad(tmp_path: Path) -> None:
    run = run_of(tmp_path, torch.tensor([1, 0]), rows=0)
    finding = explained(run, access(4, LoadedIndex("arg0_1", 0, 1)))
    assert finding.origin is not None
    assert finding.origin.input == "ids"


@pytest.mark.parametrize("ids", [[1, -30, 12], [890433895, 2, 7], [1, 2]])
def test_without_an_access_that_a_trial_reports_nothing_is_said_of_any_index(tmp_path: Path, ids: list[int]) -> None:
    """Large integers are ordinary: hashed ids, sizes, dividends."""
    finding = explained(run_of(tmp_path, torch.tensor(ids)))
    assert (finding.evidence, finding.possible, finding.origin, finding.chain) == (FAULT.evidence, (), None, ())
    assert finding.where is not None
    assert finding.where.frame == FRAMES[1]


def test_an_access_without_an_index_has_no_origin(tmp_path: Path) -> None:
    finding = explained(run_of(tmp_path, torch.tensor([1, 1000])), access(48, None))
    assert finding.evidence == ("out-of-bounds load from table: element 48 of 40, 9 past the end", *FAULT.evidence)
    assert finding.origin is None


def test_an_access_with_an_index_is_preferred(tmp_path: Path) -> None:
    run = run_of(tmp_path, torch.tensor([1, 12]))
    indexed = access(48, LoadedIndex("arg0_1", 1, 12))
    finding = explained(run, access(7, None, argument="buf0"), indexed)
    assert finding.where is not None
    assert finding.where.argument == "table"


def test_an_overrun_keeps_its_place_and_gains_its_origin(tmp_path: Path) -> None:
    run = run_of(tmp_path, torch.tensor([1, 12]))
    place = place_of(run.launches[0], "buf0", 40)
    overrun = Finding(OVERRUN, "gather writes past the end of buf0", where=place)
    found = explain_overrun(overrun, Dataflow(run), run.launches[0], [seen(access(48, LoadedIndex("arg0_1", 1, 12)))])
    assert found.where is not None
    assert (found.where.argument, found.where.element) == ("buf0", 40)
    assert found.origin is not None
    assert found.origin.input == "ids"
    assert explain_overrun(overrun, Dataflow(run), run.launches[0], []) == overrun

"""The element of the model's inputs that makes a launch fail, found by runs with other numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from aoti_debug.base.machine.steps import Steps
from aoti_debug.package.inputs import input_files
from aoti_debug.package.manifest import Role
from aoti_debug.runs.diagnosis import findings
from aoti_debug.runs.diagnosis.dataflow import Dataflow
from aoti_debug.runs.diagnosis.findings import Finding, Place, place_of
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from aoti_debug.triage.investigation import changed_inputs
from aoti_debug.triage.investigation.changed_inputs import with_changed_inputs
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site
from tests.saved_tensors import described

FAR = 1 << 36
MANIFEST = replace(
    make_manifest(
        site("scale", arg("arg0_1"), arg("buf0", Role.OUT)),
        site("gather", arg("table"), arg("buf0"), arg("arg1_1"), arg("buf1", Role.OUT)),
        site("loop", arg("table"), arg("carried"), arg("buf1", Role.OUT)),
    ),
    inputs=("arg0_1", "arg1_1"),
    input_names=("ids", "weights"),
)
FAULT = "SIGSEGV (Segmentation fault)"
IDS = torch.tensor([[3, 1, 4], [1, FAR, 9]])

Fails = Callable[[Any, Any], str]


def run_of(base: Path, *, in_loop: bool = False) -> RunDir:
    """The launch `scale`, then `gather`, or a launch of what a loop carries, which fails."""
    first, table, out = torch.zeros(2, 3).long(), torch.zeros(10, 4), torch.zeros(6, 4)
    writer = JournalWriter(level=1)
    writer.call_begin()
    writer.launch_begin(0, 0, described(IDS), described(first))
    writer.launch_end(0)
    if in_loop:
        writer.launch_begin(1, 2, described(table), described(torch.zeros(3).long()), described(out))
    else:
        writer.launch_begin(1, 1, described(table), described(first), described(torch.ones(2, 3)), described(out))
    return open_run(run_directory(base, MANIFEST, writer))


def explained(
    run: RunDir,
    monkeypatch: pytest.MonkeyPatch,
    fails: Fails,
    argument: str = "buf0",
    steps: Steps | None = None,
    origin: Place | None = None,
) -> Finding:
    """The finding after runs in which the launch fails if `fails` gives the text of a fault."""
    steps = Steps() if steps is None else steps
    launch = run.launches[-1]
    weights = torch.ones(2, 3)
    monkeypatch.setattr(changed_inputs, "_inputs_of", lambda _: ((IDS, weights), {}))

    def with_inputs(path: Path, folder: Path) -> Any:
        given = torch.load(path)["args"]
        assert [tensor.shape for tensor in given] == [IDS.shape, weights.shape]
        text = fails(*given)
        return SimpleNamespace(verdict=SimpleNamespace(launch=launch, what=text) if text else None)

    verdict = SimpleNamespace(launch=launch, what=f"{FAULT}\nmore")
    investigation = SimpleNamespace(
        first=SimpleNamespace(verdict=verdict), steps=steps, runs=SimpleNamespace(with_inputs=with_inputs)
    )
    found = Finding(findings.FAULT, FAULT, place_of(launch), evidence=("it never returned",), origin=origin)
    return with_changed_inputs(investigation, found, Dataflow(run), launch, argument)  # type: ignore[arg-type]


def of_index(ids: Any, weights: Any) -> str:
    return FAULT if bool(((ids * 2) >= 100).any()) else ""


def test_the_element_through_another_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = explained(run_of(tmp_path), monkeypatch, of_index)
    assert found.origin is not None
    assert (found.origin.input, found.origin.element, found.origin.coordinates) == ("ids", 4, (1, 1))
    assert found.evidence == (
        f"ids[1, 1] is {FAR}: with 4 there, the model runs through; "
        "with 4 in all other elements of ids, the fault comes",
        "it never returned",
    )
    assert [place.input or place.launch for place in found.chain] == ["ids", "0.1"]


def test_inputs_that_the_index_does_not_depend_on_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights of 0 would end the fault, too; the index is not made of them."""

    def fails(ids: Any, weights: Any) -> str:
        return of_index(ids, weights) if bool(weights.any()) else ""

    found = explained(run_of(tmp_path), monkeypatch, fails)
    assert found.origin is not None
    assert found.origin.input == "ids"


@pytest.mark.parametrize(
    ("most", "is_input"), [pytest.param(100, True, id="one element"), pytest.param(2, False, id="several elements")]
)
def test_a_launch_that_computed_the_number_stays_the_origin_unless_one_element_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, is_input: bool
) -> None:
    run = run_of(tmp_path)
    maker = place_of(run.launches[0])
    found = explained(run, monkeypatch, lambda ids, _: FAULT if bool((ids.abs() > most).any()) else "", origin=maker)
    said = [line for line in found.evidence if "the model runs through" in line and line.startswith(("ids", "with"))]
    assert len(said) == 1
    assert (found.origin == maker) is not is_input
    assert found.evidence.index(said[0]) == (0 if is_input else 1)


@pytest.mark.parametrize(
    ("is_bad", "said"),
    [
        pytest.param(
            lambda ids: bool((ids > 3).any()),
            "ids[0, 2] is 4: with 1 in all other elements of ids, the fault comes; with 1 there alone as well; "
            "with 1 in all of ids, the model runs through",
            id="any of several",
        ),
        pytest.param(
            lambda ids: bool((ids == FAR).any() and (ids == 9).any()),
            "with 4 in all of ids, the model runs through; no single element was found that makes the fault come",
            id="two together",
        ),
    ],
)
def test_the_sentence_says_what_was_tried_and_what_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_bad: Callable[[Any], bool], said: str
) -> None:
    found = explained(run_of(tmp_path), monkeypatch, lambda ids, _: FAULT if is_bad(ids) else "")
    assert found.evidence == (said, "it never returned")


@pytest.mark.parametrize("other", ["", "RuntimeError: another one"])
def test_a_fault_that_no_element_makes_has_no_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    """It comes with any numbers; or with other numbers, another fault comes."""

    def fails(ids: Any, weights: Any) -> str:
        return FAULT if torch.equal(ids, IDS) or not other else other

    found = explained(run_of(tmp_path), monkeypatch, fails)
    assert (found.origin, found.evidence) == (None, ("it never returned",))


def test_what_a_loop_carries_may_come_from_any_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = explained(run_of(tmp_path, in_loop=True), monkeypatch, of_index, "carried")
    assert found.origin is not None
    assert (found.origin.input, found.origin.element) == ("ids", 4)


def test_an_input_that_decides_if_the_launch_is_executed_is_no_origin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(ids: Any, weights: Any) -> str:
        return FAULT if float(weights.sum()) > 0 else ""

    found = explained(run_of(tmp_path, in_loop=True), monkeypatch, fails, "carried")
    assert found.origin is None


def test_a_fault_that_does_not_come_every_time_has_no_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[str] = []

    def fails(ids: Any, weights: Any) -> str:
        runs.append("")
        return of_index(ids, weights) if len(runs) > 1 else ""

    found = explained(run_of(tmp_path), monkeypatch, fails)
    assert (found.origin, len(runs)) == (None, 1)


def test_the_end_of_the_time_is_not_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("_SECONDS", "_RUNS"):
        monkeypatch.setattr(changed_inputs, limit, 0)
    steps = Steps()
    found = explained(run_of(tmp_path), monkeypatch, of_index, steps=steps)
    assert (found.origin, [step.text for step in steps.done]) == (None, ["no answer after 1 run in 0 s"])


def test_inputs_that_cannot_be_read_leave_the_finding_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("nothing can be written")

    monkeypatch.setattr(input_files, "write", refuse)
    run = run_of(tmp_path)
    launch = run.launches[-1]
    verdict = SimpleNamespace(launch=launch, what=FAULT)
    investigation = SimpleNamespace(first=SimpleNamespace(verdict=verdict), steps=Steps(), runs=None)
    found = Finding(findings.FAULT, FAULT, place_of(launch))
    assert with_changed_inputs(investigation, found, Dataflow(run), launch) == found  # type: ignore[arg-type]

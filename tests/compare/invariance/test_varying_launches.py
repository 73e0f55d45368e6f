"""Causes of launches that write other bits for a sample, of made-up runs whose errors are given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from aoti_debug.base.errors import ArtifactError
from aoti_debug.base.machine.steps import Steps
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.compare.invariance import varying_launches
from aoti_debug.compare.invariance.text import invariance_lines
from aoti_debug.compare.invariance.varying_launches import BeginCause, Invariance, with_reasons
from aoti_debug.compare.protocol.measurement import Measurement
from aoti_debug.runs.rundir.run_directory import RunDir
from tests.compare.invariance.made_runs import by_size, double, made


def of_errors(monkeypatch: pytest.MonkeyPatch, errors: Mapping[str, float]) -> None:
    """Gives launches these largest errors."""

    def measured(run: RunDir, launches: frozenset[str], *_: object) -> dict[tuple[str, str], Measurement]:
        shape = (3,)
        return {
            (id_, name): Measurement(
                argument=name, value="v", operator="aten.add.Tensor", dtype="float32", shape=shape, count=3, atol=error
            )
            for id_ in launches
            for name, error in errors.items()
        }

    monkeypatch.setattr(varying_launches, "_errors", measured)


def explained(found: Invariance) -> Invariance:
    return replace(found, begins=with_reasons(found.begins, found.alone, UserCode(), Steps(None)))


def by_much(x: torch.Tensor) -> torch.Tensor:
    return x / x.shape[0]


def test_a_difference_within_both_errors_is_rounding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_errors(monkeypatch, {"buf1": 3e-7})
    found = explained(made(tmp_path, [double, by_size]))
    (item,) = found.begins
    assert item.reason is not None
    assert item.reason.cause is BeginCause.ROUNDING
    assert item.reason.evidence.endswith(", with errors of 3e-07 alone and 3e-07 here")
    assert found.begin_sites
    assert [run.surroundings.size for run in found.enough] == [4, 4]


def test_a_larger_difference_is_of_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_errors(monkeypatch, {"buf1": 3e-7})
    found = explained(made(tmp_path, [double, by_much], operator="aten.addmm.out"))
    (item,) = found.begins
    assert item.reason is not None
    assert item.reason.cause is BeginCause.PROGRAM
    assert (found.begin_sites, found.enough) == ((), ())
    assert found.verdict == "VARIES from 0.1 cpp_1 on: the program computes other values there"
    lines = invariance_lines(found)
    assert any(
        line.startswith("  why      the program computes with the size, the place or other rows") for line in lines
    )
    assert not any(line.startswith("  known") for line in lines)


def test_without_an_error_the_cause_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_errors(monkeypatch, {"other": 3e-7})
    found = explained(made(tmp_path, [double, by_much]))
    assert [item.reason for item in found.begins] == [None]
    assert found.begin_sites


def test_a_package_that_cannot_be_compared_has_no_causes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> dict[tuple[str, str], Measurement]:
        raise ArtifactError("the package holds no program", hint="build it")

    monkeypatch.setattr(varying_launches, "_errors", refused)
    assert [item.reason for item in explained(made(tmp_path, [double, by_size])).begins] == [None]

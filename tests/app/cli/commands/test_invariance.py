from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
import pytest

from aoti_debug.app.cli.commands.invariance import advice
from aoti_debug.compare.invariance.varying_launches import Invariance
from tests.compare.invariance.made_runs import by_size, double, made

MIXING = [lambda x: x - x.mean(0)]


def advised(found: Invariance, *, is_fixed: bool = False, is_exported: bool = True) -> list[str]:
    with click.Context(click.Command("invariance"), info_name="aoti-debug invariance"):
        return advice(found, is_fixed=is_fixed, is_exported=is_exported)


@pytest.mark.parametrize(("is_fixed", "is_exported"), [(False, True), (True, True), (False, False)])
def test_remedies_are_tried_once_and_of_programs(tmp_path: Path, *, is_fixed: bool, is_exported: bool) -> None:
    found = made(tmp_path, [by_size], operator="aten.addmm.out")
    lines = advised(found, is_fixed=is_fixed, is_exported=is_exported)
    assert lines == ([] if is_fixed or not is_exported else ["next: aoti-debug invariance --fix"])


@pytest.mark.parametrize("is_fixed", [True, False])
def test_an_operator_without_a_remedy_is_named(tmp_path: Path, *, is_fixed: bool) -> None:
    found = made(tmp_path, [by_size], operator="aten.sort.default")
    assert advised(found, is_fixed=is_fixed) == ["no remedy is known for aten.sort.default: nothing is tried"]


def test_what_is_the_same_needs_nothing(tmp_path: Path) -> None:
    assert advised(made(tmp_path, [double])) == []


def test_a_sequence_that_is_mixed_with_its_rest_may_be_padded(tmp_path: Path) -> None:
    found = made(tmp_path, MIXING)
    assert found.mixes
    assert advised(found) == []
    assert advised(replace(found, varied=replace(found.varied, is_batch=False))) == [
        "next: aoti-debug invariance --others zeros"
    ]

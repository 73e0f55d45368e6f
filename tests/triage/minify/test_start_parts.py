"""Parts of a start: what they begin with, and what they return."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from aoti_debug.base.machine.files import json_data
from aoti_debug.compare.protocol.request import KnownValue
from aoti_debug.package.program_graphs import ValueKey
from aoti_debug.triage.minify.start_parts import END, EagerValue, part_of, values_of
from tests.triage.minify import parts

RELU, ADD = "aten.relu.default", "aten.add.Tensor"


def keys(values: tuple[KnownValue, ...]) -> list[str]:
    return [str(item.value) for item in values]


def test_calls_in_the_middle_begin_with_the_value_before_them() -> None:
    start = parts.start(RELU, ADD, RELU, ADD)
    region = part_of(start, start.units[1:3])
    assert region is not None
    assert region.nodes == ("node_1", "node_2")
    assert (keys(region.inputs), keys(region.outputs)) == (["node_0"], ["node_2"])


def test_calls_apart_return_what_none_of_them_reads() -> None:
    start = parts.start(RELU, ADD, RELU, ADD)
    region = part_of(start, (start.units[0], start.units[2]))
    assert region is not None
    assert (keys(region.inputs), keys(region.outputs)) == (["x", "node_1"], ["node_0", "node_2"])


def test_what_reads_a_value_that_eager_could_not_compute_is_no_part() -> None:
    start = parts.start(RELU, ADD, RELU, missing=("node_1",))
    assert start.failing == "node_1"
    assert part_of(start, start.units[2:]) is None
    assert part_of(start, start.units[1:]) is not None


def test_members_of_a_tuple_stay_with_their_call() -> None:
    start = parts.of_nodes(
        parts.call("pair", "aten.max.dim", "x", 0, types=parts.PAIR),
        parts.call("first", "_operator.getitem", "pair", 0),
        parts.call("next", RELU, "first"),
    )
    assert start.units == (("pair", "first"), ("next",))
    region = part_of(start, start.units[:1])
    assert region is not None
    assert keys(region.outputs) == ["first"]


def test_what_is_overwritten_is_an_output() -> None:
    start = parts.of_nodes(parts.call("write", "my.write_.default", "x", mutates=("x",), types=()))
    region = part_of(start, start.units)
    assert region is not None
    assert [item.value for item in region.outputs] == [ValueKey("x", "write")]


def test_the_call_that_ended_the_process_was_begun_last() -> None:
    start = parts.start(RELU, ADD)
    assert start.failing == ""
    cut = replace(start, lines=start.lines[: start.lines.index(END) - 1])
    assert replace(cut, was_killed=True).failing == "node_1"
    assert cut.failing == ""  # an error of the process itself


def test_a_call_that_raised_has_no_value() -> None:
    assert parts.start(RELU, ADD, RELU, missing=("node_1", "node_2")).failing == "node_1"


def test_a_call_that_draws_random_numbers_does_not_fail() -> None:
    assert parts.start(RELU, ADD, random=("node_1",)).failing == ""


def test_a_call_whose_result_cannot_be_kept_does_not_fail() -> None:
    start = parts.start(RELU, ADD)
    assert replace(start, lines=tuple(line for line in start.lines if line.file != "node_1.pt")).failing == ""


def test_a_last_line_that_is_cut_is_none(tmp_path: Path) -> None:
    line = json_data.to_text(EagerValue("relu"), indent=None)
    (tmp_path / "values").write_text(f"{line}\n{line[:9]}")
    assert values_of(tmp_path / "values") == (EagerValue("relu"),)

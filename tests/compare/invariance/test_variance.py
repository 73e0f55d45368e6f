"""Launches of made-up runs of one sample alone and among others."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aoti_debug.compare.invariance.sample_rows import RowsDifference, RowsRelation
from aoti_debug.compare.invariance.variance import (
    Control,
    LaunchRelation,
    LaunchRows,
    SampleComparison,
    SampleTensor,
    relation_of,
)
from tests.compare.invariance.made_runs import SAMPLE, Kernel, by_size, compared, double, made, rows, run


def relations(found: list[LaunchRows]) -> list[str]:
    return [launch.relation.value for launch in found]


def test_a_chain_without_variance(tmp_path: Path) -> None:
    found, comparison = compared(tmp_path, [double, double])
    assert relations(found[0]) == relations(found[3]) == ["same", "same"]
    outputs = comparison.outputs(run(tmp_path / "more", rows(4, 2, 5), [double, double], place=2))
    assert [output.tensor.rows.relation for output in outputs] == [RowsRelation.EQUAL]


def test_where_it_begins_and_who_passes_it_on(tmp_path: Path) -> None:
    found, comparison = compared(tmp_path, [double, by_size, double])
    assert relations(found[0]) == relations(found[3]) == ["same", "begins", "follows"]
    (tensor,) = found[0][1].differing
    assert (tensor.name, tensor.shapes) == ("buf1", ((1, 3), (4, 3)))
    outputs = comparison.outputs(run(tmp_path / "more", rows(4, 0, 1), [double, by_size, double]))
    assert outputs[0].tensor.rows.relation is RowsRelation.DIFFERENT


def test_a_launch_that_absorbs_it(tmp_path: Path) -> None:
    found, _ = compared(tmp_path, [by_size, torch.floor])
    assert relations(found[0]) == ["begins", "absorbs"]


def test_a_launch_that_depends_on_the_place(tmp_path: Path) -> None:
    def by_place(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x[:3], torch.nextafter(x[3:], torch.tensor(9.0))])

    found, _ = compared(tmp_path, [by_place])
    assert (relations(found[0]), relations(found[3])) == (["same"], ["begins"])


def test_a_program_that_mixes_samples(tmp_path: Path) -> None:
    found, _ = compared(tmp_path, [double, lambda x: x - x.mean(0), double])
    assert relations(found[0]) == ["same", "mixes", "follows"]
    assert not found[0][1].differing


@pytest.mark.parametrize("whole", [lambda x: x.amax(0), lambda x: x.sum()])
def test_one_value_of_all_samples(tmp_path: Path, whole: Kernel) -> None:
    found, _ = compared(tmp_path, [whole])
    assert relations(found[0]) == ["mixes"]


def test_a_sum_over_the_rows_before_is_seen_at_the_last_place(tmp_path: Path) -> None:
    found, comparison = compared(tmp_path, [lambda x: x.cumsum(0), double])
    assert relations(found[0]) == ["same", "same"]
    assert relations(found[3]) == ["mixes", "follows"]
    last = run(tmp_path / "more", rows(4, 3, 1), [lambda x: x.cumsum(0), double], place=3)
    assert comparison.outputs(last)[0].tensor.rows.relation is RowsRelation.MIXED


def test_a_largest_value_that_the_control_at_the_first_place_does_not_change(tmp_path: Path) -> None:
    largest = torch.tensor([[9.0, 1.0, 1.0]])

    def scaled(x: torch.Tensor) -> torch.Tensor:
        is_alone_or_among_small = len(x) == 1 or x[:3].max() < 0.1
        return x / (x if is_alone_or_among_small else torch.cat([x, largest])).amax()

    found, _ = compared(tmp_path, [scaled, double])
    assert relations(found[0]) == relations(found[3]) == ["mixes", "follows"]


def test_without_other_values_nothing_is_said_to_mix(tmp_path: Path) -> None:
    kernels: list[Kernel] = [lambda x: x - x.mean(0)]
    alone = run(tmp_path / "alone", SAMPLE, kernels)
    among = run(tmp_path / "among", rows(4, 0, 1), kernels)
    again = run(tmp_path / "again", rows(4, 0, 1), kernels).run
    (found,) = SampleComparison(alone, [Control(among, None)], again).launches(among)
    assert found.relation is LaunchRelation.BEGINS


def test_an_output_with_the_size_in_two_dimensions_is_not_known(tmp_path: Path) -> None:
    kernels: list[Kernel] = [lambda x: x @ x.T]
    found, comparison = compared(tmp_path, kernels)
    assert relations(found[0]) == ["same"]
    (output,) = comparison.outputs(run(tmp_path / "more", rows(4, 0, 1), kernels))
    assert output.tensor.rows.relation is RowsRelation.UNKNOWN
    assert output.tensor.rows.reason.startswith("the size is in several of its dimensions")


def test_a_launch_that_does_not_repeat_is_not_blamed_for_variance(tmp_path: Path) -> None:
    found, _ = compared(tmp_path, [by_size, double], again=[lambda x: x + 1.5, double])
    assert relations(found[0]) == ["not repeatable", "follows"]


def test_a_shape_that_does_not_say_where_the_sample_is(tmp_path: Path) -> None:
    def longer(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, x[: x.shape[0] // 2]])

    found, _ = compared(tmp_path, [longer, lambda x: x[: (2 * len(x) + 2) // 3]])
    assert relations(found[0]) == ["not known", "same"]
    assert found[0][0].reason == "buf0: its shapes [1, 3] and [6, 3] do not say what belongs to the sample"


def test_what_follows_something_unknown_is_unknown(tmp_path: Path) -> None:
    def longer(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, x[: x.shape[0] // 2]])

    found, _ = compared(tmp_path, [longer, lambda x: by_size(x[: (2 * len(x) + 2) // 3])])
    assert found[0][1].relation is LaunchRelation.UNKNOWN
    assert found[0][1].reason.startswith("what it read is not known: buf0, ")


def test_a_launch_that_mixes_what_already_differs(tmp_path: Path) -> None:
    found, _ = compared(tmp_path, [by_size, lambda x: x - x.mean(0), double])
    assert relations(found[0]) == ["begins", "mixes", "follows"]


def test_the_verdict_names_both(tmp_path: Path) -> None:
    found = made(tmp_path, [by_size, lambda x: x - x.mean(0), double])
    assert found.verdict == "VARIES from 0.0 cpp_0 on; MIXES SAMPLES in 0.1"


def test_from_which_size_on_the_bits_are_the_same(tmp_path: Path) -> None:
    found = made(tmp_path, [double, by_size, double])
    assert [item.first.launch.id for item in found.begins] == ["0.1"]
    assert (found.same, found.follows, found.is_finding) == (1, 1, True)
    assert [run.surroundings.size for run in found.enough] == [4, 4]
    assert found.verdict == "VARIES from 0.1 cpp_1 on"


def test_no_size_is_enough_where_the_place_matters(tmp_path: Path) -> None:
    def by_place(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x[:3], torch.nextafter(x[3:], torch.tensor(9.0))])

    found = made(tmp_path, [by_place])
    assert found.enough == ()
    assert [[run.surroundings.place for run in group] for group in found.equal_runs] == [[0, 0], [3]]


def test_a_model_with_the_same_bits(tmp_path: Path) -> None:
    found = made(tmp_path, [double, double])
    assert (found.is_finding, found.is_complete, found.enough) == (False, True, ())
    assert found.verdict == "INVARIANT in 2 runs of the sample among others: the same bits in 2 launches"


def test_a_launch_given_the_bits_of_the_sample_alone(tmp_path: Path) -> None:
    _, comparison = compared(tmp_path, [by_size, double])
    among = run(tmp_path / "more", rows(4, 2, 1), [by_size, double], place=2)
    first, second = comparison.healed(among, tmp_path / "healed")
    assert (first.launch, first.argument, second.argument) == ("0.0", "buf0", "buf1")
    healed = torch.frombuffer(bytearray(first.file.read_bytes()[-48:]), dtype=torch.float32).reshape(4, 3)
    assert torch.equal(healed[2:3], by_size(SAMPLE))
    assert torch.equal(healed[[0, 1, 3]], by_size(rows(4, 2, 1))[[0, 1, 3]])


def test_indices_of_the_rows_are_no_variance() -> None:
    rows_read = SampleTensor("w", ((3,), (3,)), RowsDifference(RowsRelation.EQUAL))
    written = SampleTensor("buf0", ((1,), (4,)), RowsDifference(RowsRelation.DIFFERENT))
    assert relation_of((), (written,)) == (LaunchRelation.COUNTS, "")
    assert relation_of((rows_read,), (written,)) == (LaunchRelation.COUNTS, "")
    own = SampleTensor("x", ((1, 3), (4, 3)), RowsDifference(RowsRelation.EQUAL))
    assert relation_of((rows_read, own), (written,)) == (LaunchRelation.BEGINS, "")

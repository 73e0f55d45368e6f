"""A model against an older one."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.base.terminal_cells import UNLIMITED
from aoti_debug.views.profile.changes import Changes, ChangeVerdict, chance_of_larger, change_lines, find_changes
from aoti_debug.views.profile.device_calls import MeasuredCall
from aoti_debug.views.profile.model_profile import document
from aoti_debug.views.profile.roofline import Peaks
from aoti_debug.views.profile.site_work import SiteGroup, site_groups
from tests.schema import DOCS, problems
from tests.views.profile import measured
from tests.views.profile.enumerated import chance_by_enumeration
from tests.views.profile.measured import profile_of

ROUNDS = 10
SITES = 20
NAMES = measured.package().sites[1]
GROUPS = [SiteGroup((replace(NAMES, id=i),), (replace(NAMES, id=i, kernel=f"cpp_fused_{i}"),)) for i in range(SITES)]


def compared(time: Callable[[int, bool], float]) -> Changes:
    """The comparison of models whose launch of a site takes `time(site, is_new)` nanoseconds."""

    def calls(is_new: bool) -> tuple[MeasuredCall, ...]:
        found = []
        for number in range(5):
            times = {site: round(time(site, is_new)) for site in range(SITES)}
            found.append(MeasuredCall(number, sum(times.values()) + 1000, times, dict.fromkeys(times, 1)))
        return tuple(found)

    return find_changes(Path("old.pt2"), GROUPS, [(calls(False), calls(True)) for _ in range(ROUNDS)])


def test_equal_models_raise_no_alarm() -> None:
    chance = random.Random(0)
    for _ in range(50):
        drawn = compared(lambda site, is_new: 20_000 * chance.lognormvariate(0, 0.3))
        assert all(change.verdict is ChangeVerdict.UNCHANGED for change in [drawn.call, *drawn.launches])


def test_a_launch_that_is_slower_is_found_and_no_other() -> None:
    chance = random.Random(0)
    drawn = compared(lambda site, is_new: 20_000 * (1.1 if site == 3 and is_new else 1) * (1 + chance.expovariate(20)))
    verdicts = [change.verdict for change in drawn.launches]
    assert verdicts[3] is ChangeVerdict.SLOWER
    assert set(verdicts[:3] + verdicts[4:]) == {ChangeVerdict.UNCHANGED}
    assert [change.group for change in drawn.slower] == [GROUPS[3]]
    lines = change_lines(drawn, "call", UNLIMITED)
    assert lines[0] == "against old.pt2, in 10 rounds: 1 launch slower"
    assert lines[3].split()[0] == "slower"
    assert "cpp_fused_3" in lines[3]


def test_a_certain_change_of_less_than_five_percent_is_none() -> None:
    drawn = compared(lambda site, is_new: 20_000 * (1.04 if is_new else 1))
    assert drawn.launches[0].chance < 1e-5
    assert drawn.launches[0].verdict is ChangeVerdict.UNCHANGED


def test_faster_launches() -> None:
    drawn = compared(lambda site, is_new: 20_000 * (0.5 if is_new and site == 0 else 1))
    assert drawn.launches[0].verdict is ChangeVerdict.FASTER
    assert drawn.slower == ()


@pytest.mark.parametrize(
    ("larger", "smaller"),
    [([2, 3, 4], [1, 1.5]), ([1, 3, 5], [2, 4, 6]), ([1, 1, 1], [1, 1]), ([5], [1, 2, 3, 4])],
)
def test_the_rank_test_counts_arrangements(larger: list[float], smaller: list[float]) -> None:
    assert chance_of_larger(larger, smaller) == pytest.approx(chance_by_enumeration(larger, smaller))


def test_json(tmp_path: Path) -> None:
    found = compared(lambda site, is_new: 20_000 * (2 if is_new and site == 0 else 1))
    run = measured.write(tmp_path, [(50_000, 10_000, 20_000)] * 4)
    profile = profile_of(Path("new.pt2"), run, Peaks("a processor", 10e9, {"float32": 1e11})).against(found)
    data = document(profile)
    json.dumps(data, allow_nan=False)
    assert problems(data, json.loads((DOCS / "profile.schema.json").read_text())) == []
    first = data["against"]["launches"][0]
    assert (first["verdict"], first["ratio"]) == ("slower", pytest.approx(2))
    assert first["new_sites"] == [{"site": 0, "kernel": "cpp_fused_0"}]
    assert data["against"]["call"]["new_sites"] == []


def test_too_few_rounds_are_said() -> None:
    calls = (MeasuredCall(0, 30_000, {NAMES.id: 20_000}, {NAMES.id: 1}),)
    slow = (MeasuredCall(0, 50_000, {NAMES.id: 40_000}, {NAMES.id: 1}),)
    few = find_changes(Path("old.pt2"), [SiteGroup((NAMES,), (NAMES,))], [(calls, slow)] * 3)
    assert few.slower == ()
    assert few.notes == ("no change can be certain: 3 rounds are too few for 1 launch",)


def test_launches_of_one_model_only_are_named_and_not_judged() -> None:
    alone = [SiteGroup((), (NAMES,)), SiteGroup((NAMES,), ())]
    calls = (MeasuredCall(0, 30_000, {NAMES.id: 20_000}, {NAMES.id: 1}),)
    found = find_changes(Path("old.pt2"), alone, [(calls, calls)] * ROUNDS)
    assert found.launches == ()
    assert {change.verdict for change in found.unpaired} == {ChangeVerdict.UNCHANGED}
    lines = change_lines(found, "call", UNLIMITED)
    longest = "1 launch only in the new one, cpp_fused_relu_0: 20.0 µs of 30.0 µs"
    counted = f"{longest}; 1 launch only in the old one"
    said = f"no launch that both have is certain to have changed; {counted}"
    assert lines[0] == f"against old.pt2, in {ROUNDS} rounds: {said}"
    assert any(line.startswith("not certain ") for line in lines)
    assert lines[-2:] == [
        "only in the new model: cpp_fused_relu_0 (20.0 µs)",
        "only in the old model: cpp_fused_relu_0 (20.0 µs)",
    ]


def test_of_launches_of_the_new_model_alone_the_longest_is_told() -> None:
    others = [replace(NAMES, id=7, kernel="mine::op.default"), replace(NAMES, id=8, kernel="small")]
    alone = [SiteGroup((), (one,)) for one in others]
    new = (MeasuredCall(0, 30_000, {7: 9_000, 8: 100}, {7: 1, 8: 1}),)
    lines = change_lines(find_changes(Path("old.pt2"), alone, [(new, new)] * ROUNDS), "call", UNLIMITED)
    assert lines[0].endswith("2 launches only in the new one, the longest mine::op.default: 9.0 µs of 30.0 µs")
    assert lines[-1] == "only in the new model: mine::op.default (9.0 µs), small (0.1 µs)"
    few = change_lines(find_changes(Path("old.pt2"), alone[1:], [(new, new)] * ROUNDS), "call", UNLIMITED)
    assert few[0].endswith("1 launch only in the new one")


def test_equal_packages_pair_site_by_site(tmp_path: Path) -> None:
    runs = [measured.write(tmp_path / side, [(50_000, 10_000, 20_000)] * 2) for side in ("old", "new")]
    groups, notes = site_groups(*runs)
    assert notes == ()
    assert [([s.id for s in group.old], [s.id for s in group.new]) for group in groups] == [([0], [0]), ([1], [1])]

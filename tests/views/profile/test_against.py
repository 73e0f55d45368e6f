"""A model and an older one, measured in turn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from aoti_debug.base.errors import UsageError
from aoti_debug.base.machine.steps import Steps
from aoti_debug.base.terminal_cells import UNLIMITED
from aoti_debug.runs.run.device_profiler import CaptureError
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.views.profile import profile
from aoti_debug.views.profile.changes import ChangeVerdict, change_lines
from aoti_debug.views.profile.profile import ROUNDS, compare_with
from tests.views.profile.on_gpu import PRODUCT, REDUCE, RELU, replayed

OLD, NEW = RunOptions(Path("old.pt2")), RunOptions(Path("new.pt2"))
KERNELS = (PRODUCT, REDUCE, RELU, "Memset (Device)", RELU)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[str]]:
    """Has the old and the new model run these kernels in their replays; the models in the order of their runs."""

    def prepare(old: tuple[str, ...], new: tuple[str, ...]) -> list[str]:
        made: list[str] = []

        def run(options: RunOptions, _: Path) -> RunDir:
            made.append(options.package.name)
            return replayed(tmp_path / str(len(made)), *(old if options is OLD else new))

        monkeypatch.setattr(profile, "run_to_the_end", run)
        return made

    return prepare


def test_replays_of_both_are_compared(runs: Callable[..., list[str]]) -> None:
    made = runs(KERNELS, ("gemm", "first", "second", *KERNELS[2:]))  # the product has three kernels, not two
    steps = Steps()
    changes = compare_with(Path("old.pt2"), Path("new.pt2"), OLD, NEW, steps)
    assert made[:4] == ["old.pt2", "new.pt2", "new.pt2", "old.pt2"]
    assert len(made) == 2 * ROUNDS
    assert [step.text for step in steps.done] == ["10 times 2 replays of each"]
    found = {change.group.new[0].id: change for change in changes.launches if change.group is not None}
    assert (found[0].old_seconds, found[0].new_seconds) == pytest.approx((6e-6, 9e-6))
    assert (found[1].old_seconds, found[1].new_seconds) == pytest.approx((6e-6, 6e-6))
    assert [found[0].verdict, found[1].verdict, changes.call.verdict] == [
        ChangeVerdict.SLOWER,
        ChangeVerdict.UNCHANGED,
        ChangeVerdict.SLOWER,
    ]
    assert (changes.call.old_seconds, changes.call.new_seconds) == pytest.approx((15e-6, 18e-6))
    assert changes.unpaired == ()
    lines = change_lines(changes, "replay", UNLIMITED)
    assert any("the whole replay" in line for line in lines)


def test_the_same_replays_have_not_changed(runs: Callable[..., list[str]]) -> None:
    runs(KERNELS, KERNELS)
    changes = compare_with(Path("old.pt2"), Path("new.pt2"), OLD, NEW, Steps())
    assert changes.slower == ()
    assert {change.verdict for change in (changes.call, *changes.launches)} == {ChangeVerdict.UNCHANGED}


def test_an_older_model_that_cannot_be_captured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def run(options: RunOptions, _: Path) -> RunDir:
        if options is OLD:
            raise CaptureError("old.pt2: a CUDA graph cannot capture it: it waits")
        return replayed(tmp_path / "new", *KERNELS)

    monkeypatch.setattr(profile, "run_to_the_end", run)
    with pytest.raises(UsageError, match=r"^old\.pt2: a CUDA graph cannot capture it") as raised:
        compare_with(Path("old.pt2"), Path("new.pt2"), OLD, NEW, Steps())
    assert (raised.value.exit_code, raised.value.hint) == (2, "without --cuda-graph its calls are measured")

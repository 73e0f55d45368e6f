from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from aoti_debug.base.abi import Phase
from aoti_debug.package.manifest import Role
from aoti_debug.runs.diagnosis.dataflow import Dataflow
from aoti_debug.runs.diagnosis.special_values import Special
from aoti_debug.runs.diagnosis.trace_roots import RootSearch
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from aoti_debug.triage.nonfinite import harm, nonfinite, replaced_values
from aoti_debug.triage.nonfinite.harm import NonfiniteCase, OriginTrials
from aoti_debug.triage.nonfinite.replaced_values import RunFiles
from aoti_debug.triage.results.finding_kinds import Infinities
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, statistics, tensor
from tests.triage.recorder import Recorder

NAN = float("nan")
BAD = statistics(n_nan=1)
HERE, ELSEWHERE = tensor(4, data_ptr=0x1000), tensor(4, data_ptr=0x2000)


def values(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers)


def test_a_view_of_an_output_leaves_the_model_under_its_name(tmp_path: Path) -> None:
    view = site("k", arg("x"), arg("buf1_view", Role.OUT, base="buf1"), arg("x", Role.OUT))
    manifest = replace(make_manifest(view), inputs=("x",), outputs=("", "buf1"))
    journal = JournalWriter(level=2)
    journal.launch_begin(0, 0, HERE, ELSEWHERE, HERE)
    journal.launch_end(0)
    journal.tensor_stats(0, 1, Phase.AFTER, BAD)
    journal.tensor_stats(0, 2, Phase.AFTER, BAD)
    run = open_run(run_directory(tmp_path, manifest, journal))
    found = harm.harmed_outputs(run, RootSearch(Dataflow(run)), Special.NAN)
    assert {sink.harm for sink in found} >= {"leaves the model as output 1 (buf1)"}


@pytest.mark.parametrize(
    ("outputs", "harmful"),
    [
        (("buf8", "buf9"), True),  # buf9 is assigned without a launch
        (("buf8",), False),
        (("buf8", ""), False),
        (("buf8", "true_graph_0_buf0"), True),
    ],
)
def test_results_of_a_branch_leave_the_model_if_an_output_is_no_launch_s(
    tmp_path: Path, outputs: tuple[str, ...], harmful: bool
) -> None:
    recorder = Recorder(tmp_path, inputs=("arg0",), outputs=outputs)
    recorder.launch("k", {"arg0": values(0)}, {"true_graph_0_buf0": values(NAN)}, subgraph="true_graph_0")
    recorder.launch("l", {"arg0": values(0)}, {"buf8": values(1)})
    run = recorder.run()
    assert bool(harm.harmed_outputs(run, RootSearch(Dataflow(run)), Special.NAN)) is harmful


INF = float("inf")


class Pretended:
    """Runs of a model `buf9 = f(l_weight)`, whose weight a trial replaces."""

    def __init__(self, base: Path, weight: torch.Tensor, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.base, self.function, self.count = base, function, 0
        self.run = self.with_weight(weight)

    def with_weight(self, weight: torch.Tensor) -> RunDir:
        self.count += 1
        recorder = Recorder(self.base / f"run_{self.count}", outputs=("buf9",), weights=("l_weight",))
        recorder.launch("k", {"l_weight": weight}, {"buf9": self.function(weight)})
        return recorder.run()

    def again(self, files: RunFiles) -> RunDir:
        assert files.weights is not None
        return self.with_weight(torch.load(files.weights)["l.weight"])

    @property
    def trials(self) -> OriginTrials:
        return OriginTrials(self.run, self.run, self.again, self.base / "files")

    @property
    def cases(self) -> tuple[NonfiniteCase, ...]:
        return nonfinite.find(Dataflow(self.run), Infinities.FAIL).cases


def test_one_element_is_the_origin(tmp_path: Path) -> None:
    model = Pretended(tmp_path, torch.tensor([1.0, 2.0, INF, 4.0]), lambda w: w - w)
    found = model.trials.first_that_holds(model.cases)
    assert found is not None
    assert found.trial is not None
    assert found.trial.element == 2
    assert found.trial.sentences == (
        "l.weight[2] is +Inf: with 2 in its place, no NaN leaves the model as output 0 (buf9)",
    )
    finding = nonfinite.finding_of(Dataflow(model.run), found)
    assert finding.what == "NaN in buf9, from +Inf in l.weight[2], a weight of the model"
    assert finding.origin is not None
    assert (finding.origin.input, finding.origin.element) == ("l.weight", 2)


def test_of_several_elements_the_first_that_is_enough(tmp_path: Path) -> None:
    """Those at 0 and 1 are clamped."""
    weight = torch.tensor([INF, -INF, 1.0, -INF, INF])
    model = Pretended(tmp_path, weight, lambda w: torch.cat([w[:2].clamp(0, 1), w[2:] - w[2:]]))
    found = model.trials.first_that_holds(model.cases)
    assert found is not None
    assert found.trial is not None
    assert found.trial.element == 3
    assert found.trial.sentences == (
        "l.weight[3] is -Inf, one of 4 such values and enough by itself: with 1 in the place of the 4 infinities of "
        "l.weight, no NaN leaves the model as output 0 (buf9)",
    )


def test_elements_that_do_harm_only_together(tmp_path: Path) -> None:
    weight = torch.tensor([[0.0, -INF], [-INF, -INF]])
    model = Pretended(tmp_path, weight, lambda w: torch.softmax(w, -1))
    found = model.trials.first_that_holds(model.cases)
    assert found is not None
    assert found.trial is not None
    assert found.trial.element == 2
    assert found.trial.sentences[0].startswith("2 values from l.weight[1, 0] to l.weight[1, 1] are -Inf: with 0 in")


def test_some_of_the_harm_goes_away(tmp_path: Path) -> None:
    model = Pretended(tmp_path, torch.tensor([INF, -1.0]), lambda w: (w - w) + w.clamp(max=1).sqrt())
    found = model.trials.first_that_holds(model.cases)
    assert found is not None
    assert found.trial is not None
    assert found.trial.sentences[0].endswith("1 instead of 2 NaN leave the model as output 0 (buf9)")


def test_an_infinity_that_does_no_harm_is_not_the_origin(tmp_path: Path) -> None:
    model = Pretended(tmp_path, torch.tensor([INF, -1.0]), lambda w: w.clamp(max=1).sqrt())
    trials = model.trials
    found = trials.first_that_holds(model.cases)
    assert found is not None
    assert found.case.root.input == ""
    assert found.tried == ("l.weight",)
    assert [harm.values_text(replacement.held) for _, replacement in trials.refuted] == ["l.weight[0]"]


def test_a_weight_that_is_read_in_part_cannot_be_tried(tmp_path: Path) -> None:
    model = Pretended(tmp_path, torch.tensor([INF, 1.0]), lambda w: w - w)
    without_tensors = Recorder(tmp_path / "other", outputs=("buf9",), weights=("l_weight",), save=False)
    without_tensors.launch("k", {"l_weight": torch.tensor([INF])}, {"buf9": torch.tensor([NAN])})
    saved = without_tensors.run()
    found = OriginTrials(model.run, saved, model.again, tmp_path / "files").first_that_holds(model.cases)
    assert found is not None
    finding = nonfinite.finding_of(Dataflow(model.run), found)
    assert (finding.origin, finding.what) == (None, "NaN in buf9")
    assert finding.possible == (
        "the NaN in buf9 may come from the +Inf in l.weight (not tried: its values cannot be replaced)",
    )
    assert replaced_values.held_values(found.case.root, model.run, saved) is None


def test_either_of_two_weights_is_enough(tmp_path: Path) -> None:
    """Without one of them, the other still does the same harm."""
    weights = {
        "l.weight": torch.tensor([1.0, NAN]),
        "r.weight": torch.tensor([2.0, NAN]),
    }

    def run(name: str, held: dict[str, torch.Tensor]) -> RunDir:
        recorder = Recorder(tmp_path / name, outputs=("buf9",), weights=("l_weight", "r_weight"))
        left, right = held["l.weight"], held["r.weight"]
        recorder.launch("add", {"l_weight": left, "r_weight": right}, {"buf9": left + right})
        return recorder.run()

    names = iter(range(100))

    def again(files: RunFiles) -> RunDir:
        assert files.weights is not None
        return run(str(next(names)), {**weights, **torch.load(files.weights)})

    recorded = run("first", weights)
    trials = OriginTrials(recorded, recorded, again, tmp_path / "files")
    assert trials.first_that_holds(nonfinite.find(Dataflow(recorded), Infinities.FAIL).cases) is None
    found = trials.first_by_itself()
    assert found is not None
    assert found.trial is not None
    assert (found.case.root.input, found.trial.is_origin, found.trial.element) == ("l.weight", True, 1)
    assert found.trial.sentences[-1] == (
        "that is with finite numbers in r.weight, too: r.weight would do the same harm"
    )

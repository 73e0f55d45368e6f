from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aoti_debug.package.manifest import Kernel
from aoti_debug.runs.diagnosis.dataflow import Dataflow
from aoti_debug.runs.diagnosis.findings import NONFINITE, Finding, Place
from aoti_debug.runs.diagnosis.trace_roots import RootKind, RootSearch
from aoti_debug.triage.nonfinite import nonfinite
from aoti_debug.triage.nonfinite.nonfinite import NonFinite
from aoti_debug.triage.results.finding_kinds import Infinities
from tests.triage import kernel_sources as sources
from tests.triage.recorder import Recorder

NAN, INF = float("nan"), float("inf")


def values(*numbers: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(numbers, dtype=dtype)


def search(recorder: Recorder, infinities: Infinities = Infinities.FAIL) -> NonFinite:
    return nonfinite.find(Dataflow(recorder.run()), infinities)


def finding(recorder: Recorder) -> Finding:
    outcome = search(recorder)
    assert outcome.finding is not None
    assert outcome.finding.kind is NONFINITE
    return outcome.finding


def where(recorder: Recorder) -> tuple[str, str]:
    place = finding(recorder).where
    assert place is not None
    return place.launch or place.input, place.argument


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    """A model with an input and a weight; buf9 is its output."""
    return Recorder(tmp_path, inputs=("arg0",), outputs=("buf9",), weights=("l_weight",))


class TestNan:
    def test_a_finite_run_has_no_finding(self, recorder: Recorder) -> None:
        recorder.launch("k", {"arg0": values(1, 2)}, {"buf9": values(2, 3)})
        assert search(recorder) == NonFinite(None)

    def test_the_first_launch_that_produces_it_from_finite_values_is_to_blame(self, recorder: Recorder) -> None:
        recorder.launch("first", {"arg0": values(0, 2)}, {"buf0": values(0, 3)})
        guilty = recorder.launch("divide", {"buf0": values(0, 3), "arg0": values(0, 2)}, {"buf1": values(NAN, 1.5)})
        recorder.launch("victim", {"buf1": values(NAN, 1.5)}, {"buf9": values(NAN, 3)})
        outcome = search(recorder)
        assert outcome.finding is not None
        assert outcome.finding.where is not None
        assert (outcome.finding.where.launch, outcome.finding.where.argument) == (guilty, "buf1")
        assert outcome.finding.what == "NaN in buf1"
        assert outcome.needed == (guilty,)
        assert outcome.finding.evidence == (
            "0.1 divide produces 1 NaN in buf1 (2 elements)",
            "it reads finite values in buf0 (0 to 3), arg0 (0 to 2)",
            "NaN leaves the model as output 0 (buf9)",
        )
        assert (outcome.finding.origin, outcome.finding.chain) == (None, ())

    def test_a_nan_in_an_input(self, recorder: Recorder) -> None:
        reader = recorder.launch("k", {"arg0": values(NAN, 2)}, {"buf9": values(NAN, 3)})
        outcome = search(recorder)
        assert outcome.finding is not None
        assert outcome.finding.where == Place(input="arg0", argument="arg0")
        assert outcome.finding.what == "NaN in arg0, input 0 of the model"
        assert outcome.needed == (reader,)

    def test_a_nan_in_a_weight_names_the_weight_as_the_model_does(self, recorder: Recorder) -> None:
        recorder.launch("k", {"arg0": values(1, 2), "l_weight": values(1, NAN)}, {"buf9": values(NAN, NAN)})
        assert where(recorder) == ("l.weight", "l_weight")

    def test_a_nan_that_the_model_handles_is_a_warning(self, recorder: Recorder) -> None:
        recorder.launch("divide", {"arg0": values(0, 2)}, {"buf0": values(NAN, 1)})
        recorder.launch("nan_to_num", {"buf0": values(NAN, 1)}, {"buf9": values(0, 1)})
        assert search(recorder) == NonFinite(
            None, ("0.0 divide produces 1 NaN in buf0 (2 elements), but no NaN in an output was traced to it",)
        )

    def test_a_nan_that_is_never_read_is_ignored(self, recorder: Recorder) -> None:
        recorder.launch("attention", {"arg0": values(0, 2)}, {"buf0": values(NAN, 1), "buf9": values(1, 2)})
        assert search(recorder) == NonFinite(None)

    def test_a_nan_in_an_output_that_is_overwritten_is_ignored(self, recorder: Recorder) -> None:
        recorder.launch("empty", {}, {"buf9": values(NAN, 1)})
        recorder.launch("fill", {"arg0": values(0, 2)}, {"buf9": values(1, 2)})
        assert search(recorder).finding is None

    def test_a_nan_that_an_integer_is_computed_from(self, recorder: Recorder) -> None:
        guilty = recorder.launch("log", {"arg0": values(-1, 2)}, {"buf0": values(NAN, 1)})
        recorder.launch("argmax", {"buf0": values(NAN, 1)}, {"buf9": torch.tensor([0])})
        assert where(recorder) == (guilty, "buf0")
        assert finding_text(recorder) == "NaN goes into the integer result buf9 of 0.1 argmax"

    def test_a_bool_computed_from_nan_is_harmless(self, recorder: Recorder) -> None:
        recorder.launch("log", {"arg0": values(-1, 2)}, {"buf0": values(NAN, 1)})
        recorder.launch("isnan", {"buf0": values(NAN, 1)}, {"buf9": torch.tensor([True, False])})
        assert search(recorder).finding is None

    def test_a_kernel_that_counts_nan_is_harmless(self, recorder: Recorder) -> None:
        recorder.kernels = (sources.TRITON_AMAX,)
        recorder.outputs = ("buf8", "buf9")
        name = sources.TRITON_AMAX.name
        recorder.launch("log", {"arg0": values(-1, 2)}, {"buf0": values(NAN, 1)})
        recorder.launch(name, {"buf0": values(NAN, 1)}, {"buf8": values(1), "buf9": torch.tensor([1])})
        assert search(recorder).finding is None

    def test_the_earliest_of_several_is_to_blame(self, recorder: Recorder) -> None:
        guilty = recorder.launch("a", {"arg0": values(0)}, {"buf0": values(NAN)})
        recorder.launch("b", {"arg0": values(0)}, {"buf1": values(NAN)})
        recorder.launch("c", {"buf1": values(NAN), "buf0": values(NAN)}, {"buf9": values(NAN)})
        assert where(recorder) == (guilty, "buf0")
        assert "0.1 b produces 1 NaN in buf1 (1 element), too" in finding(recorder).evidence

    def test_a_kernel_s_other_results_and_inputs_do_not_matter(self, recorder: Recorder) -> None:
        """Only the operands of a result are followed."""
        recorder.kernels = (sources.TRITON_MASKED_FILL,)
        mask = torch.tensor([False, False])
        name = sources.TRITON_MASKED_FILL.name
        params = {"mask": "in_ptr0", "arg0": "in_ptr1", "buf8": "out_ptr0", "buf9": "out_ptr1"}
        recorder.launch(
            name, {"mask": mask, "arg0": values(-1, 2)}, {"buf8": values(-1, 2), "buf9": values(NAN, 1)}, params=params
        )
        assert where(recorder) == ("0.0", "buf9")

    def test_what_a_fresh_buffer_held_before_does_not_count(self, recorder: Recorder) -> None:
        recorder.launch("k", {"arg0": values(0)}, {}, changes={"buf9": (values(NAN), values(NAN))})
        assert where(recorder) == ("0.0", "buf9")

    def test_a_change_in_place_is_followed(self, recorder: Recorder) -> None:
        guilty = recorder.launch("k", {"arg0": values(0)}, {"buf9": values(NAN)})
        recorder.launch("add_", {"arg0": values(1)}, {}, changes={"buf9": (values(NAN), values(NAN))})
        assert where(recorder) == (guilty, "buf9")

    def test_a_nan_that_no_recorded_launch_wrote(self, recorder: Recorder) -> None:
        recorder.launch("k", {"arg0": values(0)}, {"buf0": values(1)})
        reader = recorder.launch("l", {"buf0": values(NAN)}, {"buf9": values(NAN)})
        assert where(recorder) == (reader, "buf0")
        assert finding(recorder).evidence[0] == "buf0 holds NaN before 0.1, but no recorded launch wrote it there"

    def test_only_the_second_call(self, recorder: Recorder) -> None:
        recorder.launch("k", {"arg0": values(1)}, {"buf9": values(1)})
        guilty = recorder.launch("k", {"arg0": values(0)}, {"buf9": values(NAN)}, call=1)
        assert where(recorder) == (guilty, "buf9")
        assert (
            "it ran in call 1 (counted from 0); in none of the earlier ones was it seen" in finding(recorder).evidence
        )

    def test_the_first_of_two_calls(self, recorder: Recorder) -> None:
        recorder.launch("k", {"arg0": values(0)}, {"buf9": values(NAN)})
        recorder.launch("k", {"arg0": values(1)}, {"buf9": values(1)}, call=1)
        assert finding(recorder).evidence == (
            "0.0 k produces 1 NaN in buf9 (1 element)",
            "it reads finite values in arg0 (0 to 0)",
            "NaN leaves the model as output 0 (buf9)",
        )

    def test_an_operand_whose_values_are_not_known(self, recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
        recorder.launch("k", {"arg0": values(0)}, {"buf9": values(NAN)})
        monkeypatch.setattr(RootSearch, "unmeasured", lambda _, launch, __: launch.args[:1])
        said = "it reads finite values in arg0 (0 to 0), and arg0, whose values are not known"
        assert finding(recorder).evidence[1] == said

    def test_at_most_three_further_roots_are_listed(self, recorder: Recorder) -> None:
        buffers = {f"buf{number}": values(NAN) for number in range(6)}
        for name in buffers:
            recorder.launch(f"make_{name}", {"arg0": values(0)}, {name: values(NAN)})
        recorder.launch("sum", buffers, {"buf9": values(NAN)})
        others = [line for line in finding(recorder).evidence if line.endswith(", too")]
        assert others == [f"0.{n} make_buf{n} produces 1 NaN in buf{n} (1 element), too" for n in (1, 2, 3)]

    def test_at_most_three_handled_nans_are_listed(self, recorder: Recorder) -> None:
        buffers = {f"buf{number}": values(NAN) for number in range(5)}
        for name in buffers:
            recorder.launch(f"make_{name}", {"arg0": values(0)}, {name: values(NAN)})
        recorder.launch("where", buffers, {"buf9": values(1)})
        assert [line.split()[1] for line in search(recorder).warnings] == ["make_buf0", "make_buf1", "make_buf2"]

    def test_an_iteration_of_a_loop(self, recorder: Recorder) -> None:
        recorder.launch("k", {"arg0": values(1)}, {"buf9": values(1)}, loops=(6,), subgraph="while_loop_body_graph_0")
        recorder.launch("k", {"arg0": values(0)}, {"buf9": values(NAN)}, loops=(7,), subgraph="while_loop_body_graph_0")
        assert "it ran in iteration 7 of the loop (counted from 0)" in finding(recorder).evidence

    def test_a_branch_whose_result_is_an_output_without_another_launch(self, recorder: Recorder) -> None:
        guilty = recorder.launch("k", {"arg0": values(0)}, {"true_graph_0_buf0": values(NAN)}, subgraph="true_graph_0")
        assert where(recorder) == (guilty, "true_graph_0_buf0")
        assert "it ran in the branch true_graph_0" in finding(recorder).evidence

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2])
    def test_every_dtype(self, recorder: Recorder, dtype: torch.dtype) -> None:
        guilty = recorder.launch("k", {"arg0": values(1, 2, dtype=dtype)}, {"buf9": values(NAN, 1, dtype=dtype)})
        assert where(recorder) == (guilty, "buf9")

    @pytest.mark.parametrize("policy", Infinities)
    def test_every_policy_checks_nan(self, recorder: Recorder, policy: Infinities) -> None:
        recorder.launch("k", {"arg0": values(0)}, {"buf9": values(NAN)})
        assert search(recorder, policy).finding is not None


def finding_text(recorder: Recorder) -> str:
    return finding(recorder).evidence[-1]


class TestInfinities:
    def test_an_unintended_infinity_that_becomes_nan_is_to_blame(self, recorder: Recorder) -> None:
        guilty = recorder.launch("square", {"arg0": values(1e30, 2)}, {"buf0": values(INF, 4)})
        recorder.launch("copy", {"buf0": values(INF, 4)}, {"buf1": values(INF, 4)})
        victim = recorder.launch("softmax", {"buf1": values(INF, 4)}, {"buf2": values(NAN, 0)})
        recorder.launch("last", {"buf2": values(NAN, 0)}, {"buf9": values(NAN, 0)})
        outcome = search(recorder)
        assert outcome.finding is not None
        assert outcome.finding.what == "+Inf in buf0, and NaN in buf2"
        assert outcome.finding.where is not None
        assert outcome.finding.origin == outcome.finding.where
        assert [(p.launch, p.argument) for p in outcome.finding.chain] == [
            ("0.0", "buf0"),
            ("0.1", "buf1"),
            ("0.2", "buf2"),
        ]
        assert outcome.needed == (guilty, victim)
        assert "0.2 softmax produces 1 NaN in buf2 (2 elements)" in outcome.finding.evidence

    def test_nan_from_a_mask_blames_the_launch_that_produced_nan(self, recorder: Recorder) -> None:
        recorder.kernels = (sources.CPP_MASKED_FILL,)
        recorder.launch(
            sources.CPP_MASKED_FILL.name,
            {"mask": torch.tensor([True, True]), "arg0": values(1, 2)},
            {"buf0": values(-INF, -INF)},
        )
        guilty = recorder.launch("softmax", {"buf0": values(-INF, -INF)}, {"buf9": values(NAN, NAN)})
        assert where(recorder) == (guilty, "buf9")
        assert finding(recorder).what == "NaN in buf9"

    def test_an_unintended_infinity_that_leaves_the_model(self, recorder: Recorder) -> None:
        guilty = recorder.launch("divide", {"arg0": values(0, 1)}, {"buf0": values(INF, 1)})
        recorder.launch("copy", {"buf0": values(INF, 1)}, {"buf9": values(INF, 1)})
        assert where(recorder) == (guilty, "buf0")
        assert finding_and_warnings(recorder, Infinities.WARN) == (
            None,
            ("0.0 divide produces 1 +Inf in buf0 (2 elements), which may be what leaves the model as output 0 (buf9)",),
        )
        assert finding_and_warnings(recorder, Infinities.IGNORE) == (None, ())

    def test_a_harmless_unintended_infinity_is_a_warning(self, recorder: Recorder) -> None:
        recorder.launch("log", {"arg0": values(0, 1)}, {"buf0": values(-INF, 0)})
        recorder.launch("exp", {"buf0": values(-INF, 0)}, {"buf9": values(0, 1)})
        assert search(recorder) == NonFinite(
            None, ("0.0 log produces 1 -Inf in buf0 (2 elements), but no infinity in an output was traced to it",)
        )

    @pytest.mark.parametrize("kernel", [sources.TRITON_MASKED_FILL, sources.CPP_MASKED_FILL], ids=lambda k: k.language)
    def test_a_mask_may_leave_the_model(self, recorder: Recorder, kernel: Kernel) -> None:
        recorder.kernels = (kernel,)
        mask = torch.tensor([True, False])
        recorder.launch(kernel.name, {"mask": mask, "arg0": values(1, 2)}, {"buf9": values(-INF, 2)})
        assert search(recorder) == NonFinite(None)

    def test_an_overflow_of_half_precision_that_a_launch_reads_does_harm(self, recorder: Recorder) -> None:
        half = values(INF, 2, dtype=torch.float16)
        guilty = recorder.launch("square", {"arg0": values(1e30, 2)}, {"buf0": half})
        recorder.launch("clamp", {"buf0": half}, {"buf9": values(1, 2)})
        assert where(recorder) == (guilty, "buf0")
        assert finding_text(recorder) == "+Inf is the result of an overflow, and later launches read it"

    @pytest.mark.parametrize(("value", "dtype"), [(INF, torch.float32), (-INF, torch.float16)])
    def test_other_infinities_that_only_launches_read_are_harmless(
        self, recorder: Recorder, value: float, dtype: torch.dtype
    ) -> None:
        infinite = values(value, 2, dtype=dtype)
        recorder.launch("square", {"arg0": values(1e30, 2)}, {"buf0": infinite})
        recorder.launch("clamp", {"buf0": infinite}, {"buf9": values(1, 2)})
        outcome = search(recorder)
        assert outcome.finding is None
        assert len(outcome.warnings) == 1

    def test_an_infinity_of_a_launch_beside_one_of_an_input(self, recorder: Recorder) -> None:
        """Either may be it: a run without one of them tells."""
        recorder.launch("exp", {"l_weight": values(1000, 2)}, {"buf0": values(INF, 7)})
        recorder.launch("add", {"arg0": values(INF, 1), "buf0": values(INF, 7)}, {"buf9": values(INF, 8)})
        roots = [case.root for case in search(recorder).cases]
        assert [(root.kind, root.input) for root in roots] == [(RootKind.PRODUCED, ""), (RootKind.EXTERNAL, "arg0")]

    def test_the_earliest_infinity_is_to_blame(self, recorder: Recorder) -> None:
        recorder.outputs = ("buf8", "buf9")
        guilty = recorder.launch("exp", {"arg0": values(1000)}, {"buf9": values(INF)})
        recorder.launch("exp2", {"arg0": values(1000)}, {"buf8": values(INF)})
        assert where(recorder) == (guilty, "buf9")

    def test_an_infinity_elsewhere_is_a_warning_beside_nan(self, recorder: Recorder) -> None:
        recorder.outputs = ("buf8", "buf9")
        guilty = recorder.launch("log", {"arg0": values(-1)}, {"buf9": values(NAN)})
        recorder.launch("exp", {"arg0": values(1000)}, {"buf8": values(INF)})
        outcome = search(recorder)
        assert outcome.needed == (guilty,)
        assert outcome.warnings == (
            "0.1 exp produces 1 +Inf in buf8 (1 element), which may be what leaves the model as output 0 (buf8)",
        )

    def test_a_mask_explains_its_own_sign_only(self, recorder: Recorder) -> None:
        recorder.kernels = (sources.CPP_MASKED_FILL,)
        mask = torch.tensor([True, False])
        recorder.launch(sources.CPP_MASKED_FILL.name, {"mask": mask, "arg0": values(1, 2)}, {"buf9": values(-INF, INF)})
        assert finding(recorder).what == "+Inf in buf9"

    def test_a_number_of_the_call_may_leave_the_model(self, recorder: Recorder) -> None:
        recorder.launch("masked_fill", {"arg0": values(1, 2)}, {"buf9": values(-INF, 2)}, numbers={"value": -INF})
        assert search(recorder) == NonFinite(None)

    @pytest.mark.parametrize(("name", "input_"), [("arg0", "arg0"), ("l_weight", "l.weight")])
    @pytest.mark.parametrize("value", [INF, -INF])
    def test_an_infinity_that_comes_in_and_leaves_the_model(
        self, recorder: Recorder, name: str, input_: str, value: float
    ) -> None:
        recorder.launch("k", {name: values(value, 2)}, {"buf0": values(value, 3)})
        recorder.launch("negate", {"buf0": values(value, 3)}, {"buf9": values(-value, -3)})
        assert where(recorder) == (input_, name)

    @pytest.mark.parametrize("mask", [values(-INF, 0), values(-INF, -INF), values(-INF, -2), values(INF, INF)], ids=str)
    def test_a_mask_that_comes_in_may_leave_the_model(self, recorder: Recorder, mask: torch.Tensor) -> None:
        """So may the beginning of a maximum or a minimum, which is infinite everywhere."""
        recorder.launch("k", {"arg0": mask}, {"buf9": mask})
        assert search(recorder) == NonFinite(None)

    @pytest.mark.parametrize("value", [INF, -INF])
    def test_an_infinity_that_comes_in_and_may_become_nan(self, recorder: Recorder, value: float) -> None:
        """Without a run that shows it, the input is a possible origin only."""
        guilty = recorder.launch("k", {"arg0": values(value, 2)}, {"buf9": values(NAN, 3)})
        found = finding(recorder)
        assert where(recorder) == (guilty, "buf9")
        assert (found.what, found.origin) == ("NaN in buf9", None)
        assert [(case.root.kind, case.root.input) for case in search(recorder).cases] == [
            (RootKind.EXTERNAL, "arg0"),
            (RootKind.PRODUCED, ""),
        ]

    def test_an_infinity_of_an_input_comes_before_that_of_a_mask(self, recorder: Recorder) -> None:
        reads = {"l_weight": values(-INF, 0), "arg0": values(INF, 2)}
        recorder.launch("add", reads, {"buf9": values(NAN, 2)})
        assert [case.root.input for case in search(recorder).cases] == ["arg0", "l.weight", ""]

    def test_what_a_kernel_reads_for_another_result_may_be_the_origin(self, recorder: Recorder) -> None:
        """It is known not to be an operand of this one, unless the kernel's source was misread."""
        recorder.kernels = (sources.TRITON_MASKED_FILL,)
        params = {"l_weight": "in_ptr0", "arg0": "in_ptr1", "buf8": "out_ptr0", "buf9": "out_ptr1"}
        reads = {"l_weight": values(INF, 2), "arg0": values(-1, 2)}
        recorder.launch(
            sources.TRITON_MASKED_FILL.name, reads, {"buf8": values(-1, 2), "buf9": values(NAN, 1)}, params=params
        )
        cases = search(recorder).cases
        assert [(case.root.input, case.is_doubtful) for case in cases] == [("l.weight", True), ("", False)]

    def test_memory_that_held_as_many_before(self, recorder: Recorder) -> None:
        recorder.launch("k", {"arg0": values(1, 2)}, {}, changes={"buf9": (values(NAN, NAN), values(NAN, NAN))})
        sentence = "after 0.0 k there are 2 NaN in buf9 (2 elements), before it there were 2"
        assert sentence in finding(recorder).evidence
        assert not any("produces" in line for line in finding(recorder).evidence)

    def test_an_unintended_infinity_beside_a_mask_is_to_blame_for_nan(self, recorder: Recorder) -> None:
        recorder.kernels = (sources.CPP_MASKED_FILL,)
        recorder.launch(
            sources.CPP_MASKED_FILL.name,
            {"mask": torch.tensor([True, False]), "arg0": values(1, 2)},
            {"buf0": values(-INF, 2)},
        )
        guilty = recorder.launch("exp", {"arg0": values(1000, 2)}, {"buf1": values(INF, 7)})
        recorder.launch("add", {"buf0": values(-INF, 2), "buf1": values(INF, 7)}, {"buf9": values(NAN, 9)})
        assert where(recorder) == (guilty, "buf1")


def finding_and_warnings(recorder: Recorder, policy: Infinities) -> tuple[Finding | None, tuple[str, ...]]:
    outcome = search(recorder, policy)
    return outcome.finding, outcome.warnings

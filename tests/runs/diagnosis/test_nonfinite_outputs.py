from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aoti_debug.runs.diagnosis.findings import Place
from aoti_debug.runs.diagnosis.output_values import OutputValues, output_values
from tests.triage import kernel_sources as sources
from tests.triage.recorder import Recorder

NAN, INF = float("nan"), float("inf")


def values(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers)


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    """A model with an input and a weight; buf8 and buf9 are its outputs."""
    return Recorder(tmp_path, inputs=("arg0",), outputs=("buf9", "buf8"), weights=("l_weight",))


def place(found: OutputValues) -> tuple[str, str, str]:
    assert found.where is not None
    return found.where.launch, found.where.argument, found.where.input


def test_the_launch_that_made_it_of_finite_numbers(recorder: Recorder) -> None:
    recorder.launch("first", {"arg0": values(0, 2)}, {"buf0": values(0, 3)})
    recorder.launch("divide", {"buf0": values(0, 3), "arg0": values(0, 2)}, {"buf1": values(NAN, 1.5)})
    recorder.launch("victim", {"buf1": values(NAN, 1.5)}, {"buf9": values(NAN, NAN)})
    found = output_values(recorder.run())
    assert found.what == "2 of 2 elements of output 0 (buf9) are NaN"
    assert place(found) == ("0.1", "buf1", "")
    assert found.evidence == ("0.1 divide leaves 1 NaN in buf1; what it reads for that is finite: buf0, arg0",)


def test_an_infinity_that_a_launch_reads_is_named(recorder: Recorder) -> None:
    recorder.launch("exp", {"arg0": values(1000)}, {"buf0": values(INF)})
    recorder.launch("minus", {"buf0": values(INF), "arg0": values(1000)}, {"buf9": values(NAN)})
    found = output_values(recorder.run())
    assert found.evidence == ("0.1 minus leaves 1 NaN in buf9; it reads 1 +Inf in buf0",)


def test_nan_that_came_in_with_an_input(recorder: Recorder) -> None:
    recorder.launch("k", {"arg0": values(NAN, NAN, 1)}, {"buf9": values(NAN, NAN, 1)})
    found = output_values(recorder.run())
    assert found.where == Place(input="arg0", input_kind="input")
    assert found.evidence == ("arg0, input 0 of the model, holds 2 NaN when 0.0 k reads it",)


def test_nan_that_came_in_with_a_weight(recorder: Recorder) -> None:
    recorder.launch("k", {"arg0": values(1), "l_weight": values(NAN)}, {"buf9": values(NAN)})
    found = output_values(recorder.run())
    assert found.where == Place(input="l.weight", input_kind="weight")
    assert found.evidence == ("l.weight, a weight of the model, holds 1 NaN when 0.0 k reads it",)


def test_where_the_records_do_not_show_it_the_launch_that_wrote_the_output_is_named(recorder: Recorder) -> None:
    recorder.launch("k", {"arg0": values(1), "buf7": values(NAN)}, {"buf9": values(NAN)})  # nothing wrote buf7
    found = output_values(recorder.run())
    assert (place(found), found.evidence) == (("0.0", "buf9", ""), ())


def test_a_launch_without_recorded_operands_says_nothing_of_them(recorder: Recorder) -> None:
    recorder.launch("k", {}, {"buf9": values(NAN)})
    assert output_values(recorder.run()).evidence == ("0.0 k leaves 1 NaN in buf9",)


def test_the_other_outputs_are_counted(recorder: Recorder) -> None:
    recorder.launch("k", {"arg0": values(1)}, {"buf8": values(NAN), "buf9": values(NAN)})
    found = output_values(recorder.run())
    assert found.what == "1 of 1 element of output 1 (buf8) is NaN; 1 more output with such values"


def test_an_infinity_in_the_code_of_a_kernel_may_be_meant(tmp_path: Path) -> None:
    kernel = sources.TRITON_MASKED_FILL
    recorder = Recorder(tmp_path, inputs=("arg0", "arg1"), outputs=("buf9",), kernels=(kernel,))
    recorder.launch(kernel.name, {"arg0": values(1, 0), "arg1": values(2, 3)}, {"buf9": values(-INF, 3)})
    found = output_values(recorder.run())
    assert found.text == "outputs finite but for infinities of its code or inputs"
    assert found.notes == (
        f"1 of 2 elements of output 0 (buf9) is -Inf: an infinity stands in the code or the call of 0.0 {kernel.name}",
    )


def test_a_mask_that_came_in_may_be_meant(recorder: Recorder) -> None:
    recorder.launch("k", {"arg0": values(0, -INF)}, {"buf9": values(0, -INF)})
    found = output_values(recorder.run())
    assert (found.what, found.notes) == (
        "",
        ("1 of 2 elements of output 0 (buf9) is -Inf: they came in with arg0, which looks like a mask",),
    )


def test_an_overflow_is_not_meant(recorder: Recorder) -> None:
    recorder.launch("exp", {"arg0": values(1000, 1)}, {"buf9": values(INF, 2.7)})
    found = output_values(recorder.run())
    assert found.what == "1 of 2 elements of output 0 (buf9) is +Inf"
    assert found.evidence == ("0.0 exp leaves 1 +Inf in buf9; what it reads for that is finite: arg0",)


def test_nan_comes_before_infinities(recorder: Recorder) -> None:
    recorder.launch("exp", {"arg0": values(1000)}, {"buf8": values(INF)})
    recorder.launch("log", {"arg0": values(1000)}, {"buf9": values(NAN)})
    found = output_values(recorder.run())
    assert found.what == "1 of 1 element of output 0 (buf9) is NaN; 1 more output with such values"

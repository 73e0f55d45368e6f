from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aoti_debug.runs.diagnosis.dataflow import Dataflow
from aoti_debug.runs.diagnosis.findings import Finding
from aoti_debug.triage.nonfinite import nonfinite
from aoti_debug.triage.results.finding_kinds import Infinities
from tests.triage import kernel_sources as sources
from tests.triage.recorder import Recorder

NAN, INF = float("nan"), float("inf")


def explained(recorder: Recorder) -> Finding:
    run = recorder.run()
    outcome = nonfinite.find(Dataflow(run), Infinities.FAIL)
    assert outcome.finding is not None
    return nonfinite.explain(outcome.finding, run)


def test_the_element_its_inputs_and_the_cause(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, inputs=("arg0", "arg1"), outputs=("buf0",), kernels=(sources.TRITON_DIV,))
    above, below = torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.tensor([[1.0, 2.0], [0.0, 0.0]])
    recorder.launch(sources.TRITON_DIV.name, {"arg0": above, "arg1": below}, {"buf0": above / below})
    finding = explained(recorder)
    assert finding.where is not None
    assert finding.where.element == 2
    cause, operands, *_ = finding.evidence
    assert cause.startswith("0 / 0 is NaN: `tmp2 = tmp0 / tmp1` (line ")
    assert operands == "buf0[1, 0] is NaN, the first of 2; it was computed from arg0 = 0, arg1 = 0"


def test_an_element_of_an_input(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, inputs=("arg0",), outputs=("buf0",))
    recorder.launch("k", {"arg0": torch.tensor([[1.0, NAN]])}, {"buf0": torch.tensor([NAN])})
    finding = explained(recorder)
    assert finding.where is not None
    assert finding.where.element == 1
    assert finding.evidence[0] == "arg0[0, 1] is NaN"


def test_both_ends_of_a_chain(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, inputs=("arg0",), outputs=("buf1",), kernels=(sources.TRITON_SOFTMAX,))
    rows = torch.tensor([[1.0, 2.0], [INF, 0.0]])
    recorder.launch("aoti_torch_cpu_exp", {"arg0": torch.tensor([[0.0, 0.7], [99.0, -9.0]])}, {"buf0": rows})
    recorder.launch(
        sources.TRITON_SOFTMAX.name,
        {"buf0": rows},
        {"buf1": torch.softmax(rows, -1)},
        params={"buf0": "in_ptr0", "buf1": "out_ptr2"},
    )
    finding = explained(recorder)
    assert finding.where is not None
    assert (finding.where.argument, finding.where.element) == ("buf0", 2)
    assert finding.origin == finding.where
    assert [place.element for place in finding.chain] == [2, 2]
    assert finding.evidence[0] == "buf0[1, 0] is +Inf"
    assert finding.possible == ("buf0[1, 0] may have been computed from arg0 = 99",)
    assert finding.evidence[1].startswith("inf - inf is NaN: `")
    assert finding.evidence[2] == (
        "buf1[1, 0] is NaN, the first of 2; "
        "it was computed from a row of buf0 (2 elements, 1 +Inf, 1 zero, finite from 0 to 0)"
    )


@pytest.mark.parametrize(
    ("before", "element", "sentence"),
    [
        ([NAN, 1.0, NAN], 1, "buf0[1] is NaN"),
        ([NAN, NAN, NAN], 0, "buf0[0] is NaN, as it was before 0.0"),
    ],
)
def test_what_the_memory_held_before_was_not_produced(
    tmp_path: Path, before: list[float], element: int, sentence: str
) -> None:
    recorder = Recorder(tmp_path, inputs=("arg0",), outputs=("buf0",))
    recorder.launch("k", {"arg0": torch.ones(3)}, {}, changes={"buf0": (torch.tensor(before), torch.full((3,), NAN))})
    finding = explained(recorder)
    assert finding.where is not None
    assert finding.where.element == element
    assert sentence in finding.evidence
    assert (
        finding.possible[0] == "0.0 k may have written fewer of the NaN in buf0, or none: its memory held some before"
    )


def test_an_intended_infinity_is_not_explained(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, inputs=("arg0",), outputs=("buf0",), kernels=(sources.CPP_MASKED_FILL,))
    mask = torch.tensor([True, False])
    recorder.launch(
        sources.CPP_MASKED_FILL.name, {"mask": mask, "arg0": torch.ones(2)}, {"buf0": torch.tensor([-INF, INF])}
    )
    finding = explained(recorder)
    assert finding.where is not None
    assert finding.where.element == 1


def test_a_reduction_of_an_operator_reports_its_row(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, inputs=("arg0",), outputs=("buf0",))
    rows = torch.tensor([[1.0, 2.0, 3.0], [INF, 0.0, -INF]])
    recorder.launch("aoti_torch_cpu_logcumsum", {"arg0": rows}, {"buf0": torch.tensor([6.0, NAN])})
    sentence = (
        "buf0[1] may have been computed from a row of arg0 (3 elements, 1 +Inf, 1 -Inf, 1 zero, finite from 0 to 0)"
    )
    finding = explained(recorder)
    assert "buf0[1] is NaN" in finding.evidence
    assert sentence in finding.possible


@pytest.mark.parametrize(
    ("left", "right", "value", "sentence"),
    [
        (300.0, 300.0, INF, "the sum of 2 products is 180000 in float64, beyond the largest float16 (65504)"),
        (INF, 0.0, NAN, "term 0 of the sum of products is +Inf * 0"),
    ],
)
def test_products_of_matrices(tmp_path: Path, left: float, right: float, value: float, sentence: str) -> None:
    recorder = Recorder(tmp_path, inputs=("arg0", "arg1"), outputs=("buf0",))
    first = torch.tensor([[1.0, 1.0], [left, left]], dtype=torch.float16)
    second = torch.tensor([[right, 1.0], [right, 1.0]], dtype=torch.float16)
    result = torch.ones(2, 2, dtype=torch.float16)
    result[1, 0] = value
    recorder.launch(
        "aoti_torch_cpu_mm_out",
        {"arg0": first, "arg1": second},
        {"buf0": result},
        params={"arg0": "self", "arg1": "mat2", "buf0": "out"},
        op="aten.mm.out",
    )
    evidence = explained(recorder).evidence
    assert evidence[0] == sentence
    assert "row 1 of arg0 (2 elements" in evidence[1]
    assert "column 0 of arg1 (2 elements" in evidence[1]


def test_a_bias_counts(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, inputs=("arg0", "arg1"), outputs=("buf0",))
    half = torch.full((1, 1), 200.0, dtype=torch.float16)
    recorder.launch(
        "aoti_torch_cpu_addmm_out",
        {"bias": torch.tensor([30000.0], dtype=torch.float16), "arg0": half, "arg1": half},
        {"buf0": torch.tensor([[INF]], dtype=torch.float16)},
        params={"bias": "self", "arg0": "mat1", "arg1": "mat2", "buf0": "out"},
        numbers={"alpha": 1.0, "beta": 1.0},
        op="aten.addmm.out",
    )
    assert explained(recorder).evidence[0] == (
        "the sum of 1 product is 70000 in float64, beyond the largest float16 (65504)"
    )


def test_a_chain_keeps_the_launches_on_the_way(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, inputs=("arg0",), outputs=("buf3",))
    infinite, nan = torch.tensor([INF, 0.0]), torch.tensor([NAN, 0.0])
    recorder.launch("exp", {"arg0": torch.tensor([99.0, -9.0])}, {"buf0": infinite})
    recorder.launch("copy", {"buf0": infinite}, {"buf1": infinite})
    recorder.launch("again", {"buf1": infinite}, {"buf2": infinite})
    recorder.launch("subtract", {"buf2": infinite}, {"buf3": nan})
    finding = explained(recorder)
    assert [(place.launch, place.argument, place.element) for place in finding.chain] == [
        ("0.0", "buf0", 0),
        ("0.1", "buf1", None),
        ("0.2", "buf2", None),
        ("0.3", "buf3", 0),
    ]


def test_a_run_in_which_the_value_was_finite(tmp_path: Path) -> None:
    runs = []
    for folder, value in (("first", NAN), ("second", 1.0)):
        recorder = Recorder(tmp_path / folder, inputs=("arg0",), outputs=("buf0",))
        recorder.launch("k", {"arg0": torch.ones(1)}, {"buf0": torch.tensor([value])})
        runs.append(recorder.run())
    outcome = nonfinite.find(Dataflow(runs[0]), Infinities.FAIL)
    assert outcome.finding is not None
    finding = nonfinite.explain(outcome.finding, runs[1])
    assert finding.evidence[0] == "in the run that saved the tensors, buf0 of 0.0 was finite"


def test_a_run_without_tensors_adds_nothing(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, inputs=("arg0",), outputs=("buf0",), save=False)
    recorder.launch("k", {"arg0": torch.ones(1)}, {"buf0": torch.tensor([NAN])})
    run = recorder.run()
    outcome = nonfinite.find(Dataflow(run), Infinities.FAIL)
    assert outcome.finding is not None
    assert nonfinite.explain(outcome.finding, run) == outcome.finding

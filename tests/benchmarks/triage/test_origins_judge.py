"""The judge of benchmarks/triage/origins.py: a stated origin and the sentences are compared with what was planted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.triage.origins_judge import ELEMENT, LINE, NOTHING, Judge, Judgement
from benchmarks.triage.origins_programs import Files
from benchmarks.triage.planted_origins import FAULT, MADE, Case, Element, inputs_of, model_of, of_model
from benchmarks.triage.planted_origins_cases import CASES, PROGRAMS

BESIDE_A_SEED = next(case for case in CASES if case.program == "index_select")  # index[4] is 31, seed[2] is 10**12
BUFFER = next(case for case in CASES if case.program == "remap")  # remap[17] is 50
OF_SIXTY = next(case for case in CASES if case.program == "best")  # argmax: no element
NAMES = {"arg0_1": "x", "arg1_1": "index", "x": "x", "index": "index", "seed": "seed", "remap": "remap"}
PLACE = {"input": None, "launch": None, "argument": None, "element": None, "file": None, "line": None}


def judged(case: Case, folder: Path, origin: dict[str, Any] | None = None, **members: Any) -> Judgement:
    files = Files(folder)
    files.names.write_text(json.dumps(NAMES))
    file, line = min(PROGRAMS[case.program].lines(FAULT))
    verdict = {"kind": "fault", "file": file, "line": line, "evidence": [], "possible": [], "confirmed_by": []}
    verdict["origin"] = None if origin is None else {**PLACE, **origin}
    return Judge(case, PROGRAMS[case.program], files).judge({**verdict, **members})


@pytest.mark.parametrize("name", ["index", "arg1_1"])
def test_the_planted_element_is_the_origin(name: str, tmp_path: Path) -> None:
    said = judged(BESIDE_A_SEED, tmp_path, {"input": name, "element": 4})
    assert (said.stated, said.origin, said.wrong_origin) == (ELEMENT, "index[4]", "")
    assert said.is_enough(BESIDE_A_SEED)
    assert said.is_line_right


def test_an_argument_of_a_launch_is_an_input(tmp_path: Path) -> None:
    said = judged(BESIDE_A_SEED, tmp_path, {"launch": "0.0", "argument": "arg1_1", "element": 4})
    assert (said.stated, said.wrong_origin) == (ELEMENT, "")


@pytest.mark.parametrize(("name", "element"), [("index", 3), ("seed", 2), ("arg9_1", 0)])
def test_another_element_is_a_wrong_origin(name: str, element: int, tmp_path: Path) -> None:
    said = judged(BESIDE_A_SEED, tmp_path, {"input": name, "element": element})
    assert said.wrong_origin
    assert not said.is_enough(BESIDE_A_SEED)


def test_the_element_of_a_buffer(tmp_path: Path) -> None:
    assert judged(BUFFER, tmp_path, {"input": "remap", "element": 17}).is_enough(BUFFER)
    assert not judged(BUFFER, tmp_path, {"input": "remap", "element": 16}).is_enough(BUFFER)


def test_a_line_is_less_than_an_element(tmp_path: Path) -> None:
    file, line = min(PROGRAMS[OF_SIXTY.program].lines(MADE))
    at_line = {"launch": "0.0", "file": file, "line": line}
    assert judged(OF_SIXTY, tmp_path, at_line).is_enough(OF_SIXTY)
    assert judged(OF_SIXTY, tmp_path, {**at_line, "line": line - 1}).wrong_origin
    said = judged(BESIDE_A_SEED, tmp_path, {"launch": "0.0"})
    assert said.stated == LINE
    assert not said.is_enough(BESIDE_A_SEED)
    assert judged(BESIDE_A_SEED, tmp_path).stated == NOTHING


def test_what_is_made_elsewhere_needs_an_origin(tmp_path: Path) -> None:
    raises = next(case for case in CASES if case.program == "checked")
    assert judged(raises, tmp_path).is_enough(raises)
    assert not judged(OF_SIXTY, tmp_path).is_enough(OF_SIXTY)


def test_a_line_without_the_mark_is_wrong(tmp_path: Path) -> None:
    assert judged(BESIDE_A_SEED, tmp_path, line=1).is_line_right is False


@pytest.mark.parametrize(
    "sentence",
    [
        "aten.index_select.default: index[4] is 31, x has 20 rows",
        "the index came from the model's input: index[4] is 31",
        "out-of-bounds load from x: element 250 of 160",
        "an assertion of the kernel failed: index out of bounds: 0 <= tmp2 < 20L",
        "the kernel computes the index from buf3[7], which is 99",
        "it comes from index[4], which is 31: with 3 there, the graph gives a number that can be used",
    ],
)
def test_true_sentences(sentence: str, tmp_path: Path) -> None:
    assert judged(BESIDE_A_SEED, tmp_path, evidence=[sentence]).wrong == ()


@pytest.mark.parametrize(
    "sentence",
    [
        "aten.index_select.default: index[4] is 30, x has 20 rows",
        "aten.index_select.default: index[4] is 31, x has 21 rows",
        "the index came from the model's input: index[3] is 4",
        "the index came from the model's input: seed[2] is 1000000000000",
        "the kernel computes the index from seed[2], which is 1000000000000",
        "seed[2] is 1000000000000: with 3 there, the model runs through",
        "aten.mul.Tensor: index[6] = 3 * 2 = 6",
        "out-of-bounds load from x: element 250 of 161",
    ],
)
def test_wrong_sentences(sentence: str, tmp_path: Path) -> None:
    assert judged(BESIDE_A_SEED, tmp_path, evidence=[sentence]).wrong


def test_claims_of_other_numbers_are_to_be_checked(tmp_path: Path) -> None:
    sentence = "index[4] is 31: with -3 there, the model runs through"
    assert judged(BESIDE_A_SEED, tmp_path, evidence=[sentence]).claims == ((sentence, Element("index", (4,), -3)),)


def test_an_argument_of_a_body_is_no_input(tmp_path: Path) -> None:
    of_body = ["aten.index.Tensor: arg1_1[5] is 52, arg0_1 has 50 rows", "in iteration 4 of while_loop_body_graph_0"]
    assert judged(BESIDE_A_SEED, tmp_path, evidence=of_body).wrong == ()
    assert judged(BESIDE_A_SEED, tmp_path, evidence=of_body[:1]).wrong


def test_what_was_not_observed_says_may(tmp_path: Path) -> None:
    may = "the index may come from seed[2], which is 1000000000000"
    assert judged(BESIDE_A_SEED, tmp_path, possible=[may]).wrong == ()
    assert judged(BESIDE_A_SEED, tmp_path, possible=[may.replace("may come", "comes")]).wrong


def test_names_are_unique_and_a_third_is_compiled() -> None:
    assert len({case.name for case in CASES}) == len(CASES) == 100
    assert sum(case.is_compiled for case in CASES) >= 30
    assert {case.program for case in CASES} == set(PROGRAMS)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_planted_changes_what_comes_in(case: Case) -> None:
    program = PROGRAMS[case.program]
    assert len(program.lines(FAULT, case.line)) in (1, 2)
    assert case.planted or not case.is_element
    model = model_of(program, of_model(case, program))
    good = {**dict(zip(program.names, inputs_of(program, ()), strict=True)), **dict(program.make().named_buffers())}
    bad = dict(zip(program.names, inputs_of(program, (*case.planted, *case.innocent)), strict=True))
    bad |= dict(model.named_buffers())
    for element in (*case.planted, *case.innocent):
        assert not torch.equal(good[element.tensor][element.index], bad[element.tensor][element.index])

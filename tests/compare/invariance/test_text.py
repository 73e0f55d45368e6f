from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from aoti_debug.compare.bisect.equal_result import price_text
from aoti_debug.compare.invariance.remedies import RemedyTrial, candidates
from aoti_debug.compare.invariance.text import document, invariance_lines, trial_lines
from aoti_debug.runs.run.timed_pairs import PairedTimes
from tests.compare.invariance.made_runs import by_size, double, made
from tests.schema import DOCS, problems

PRICE = PairedTimes.of([1e-3] * 3, [2e-3] * 3)


def test_what_people_and_programs_read(tmp_path: Path) -> None:
    found = made(tmp_path, [double, by_size, double], operator="aten.addmm.out")
    changes, padded, _ = candidates([found.begins[0].first.launch.site], "cpu")
    trials = (
        RemedyTrial(changes, None, "a compiler is missing"),
        RemedyTrial(padded, None, "a compiler is missing", module=Path("remedies/keep_bits_2.py")),
        RemedyTrial(changes, made(tmp_path / "b", [double]), price=PRICE),
    )
    lines = invariance_lines(found, trials, PRICE)
    assert lines[:2] == [
        "sample   1 row along axis 0 of x (s0): size 1, place 0",
        "against  size 4, place 0; size 4, place 3",
    ]
    assert "0.1 cpp_1: read the same bits of the sample, and wrote others" in lines
    same = "the same bits in all other runs"
    assert f"works: the size 4 for all (fill smaller ones up): {same}" in lines
    assert lines[-1] == "VARIES from 0.1 cpp_1 on"
    template = "--inductor-config freezing=True --inductor-config max_autotune_gemm=True"
    assert f"not built or run: {template} --inductor-config max_autotune_gemm_backends=CPP" in lines
    assert lines.count("  failed   a compiler is missing") == 2
    assert "not built or run: --import keep_bits_2" in lines
    assert "  file     remedies/keep_bits_2.py: matrix products with 11 more rows of zeros" in lines
    assert f"works: {template} --inductor-config max_autotune_gemm_backends=CPP" in lines
    assert lines.count(f"  time     {price_text(PRICE)}") == 2
    data = document(found, trials, PRICE)
    assert problems(data, json.loads((DOCS / "invariance.schema.json").read_text())) == []
    assert (data["enough"], data["same"], data["is_invariant"]) == (4, 1, False)
    assert [fix["works"] for fix in data["fixes"]] == [False, False, True]
    assert [fix["seems_to_work"] for fix in data["fixes"]] == [False, False, True]
    assert [fix["module"] for fix in data["fixes"]] == [None, "remedies/keep_bits_2.py", None]
    assert document(made(tmp_path / "c", [double]))["is_invariant"] is True


def test_the_sizes_that_work_end_with_the_largest_that_was_run(tmp_path: Path) -> None:
    found = made(tmp_path, [double, by_size, double], operator="aten.addmm.out")
    first, last = found.runs
    larger = replace(last, surroundings=replace(last.surroundings, size=16))
    lines = invariance_lines(replace(found, runs=(first, larger), equal_runs=((first, larger),)))
    same = "the same bits in all other runs"
    assert f"works: sizes from 4 to 16 (fill smaller ones up): {same}" in lines


def test_a_build_that_works_as_far_as_it_is_known_is_said_to(tmp_path: Path) -> None:
    same = made(tmp_path / "a", [double])
    varies = made(tmp_path / "b", [by_size], operator="aten.addmm.out")
    (remedy, *_) = candidates(varies.begin_sites, "cpu")
    trial = RemedyTrial(remedy, replace(same, unknown=varies.begins))
    assert (trial.works, trial.seems_to_work) == (False, True)
    lines = list(trial_lines(trial))
    assert lines[0].startswith("works as far as it is known: --inductor-config freezing=True")
    assert lines[1:] == [f"  built    {replace(same, unknown=varies.begins).verdict}", "  time     not measured"]
    (fix,) = document(varies, [trial])["fixes"]
    assert (fix["works"], fix["seems_to_work"]) == (False, True)

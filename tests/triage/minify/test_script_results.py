"""The scripts of a minimisation on the disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from aoti_debug.base.errors import RunDirError
from aoti_debug.triage.minify.script_results import NAME, Known, ScriptTrial, ScriptTrials, ScriptVerdict, TriageAnswer

VERDICT = ScriptVerdict(TriageAnswer.NO, "CLEAN nothing is wrong")
TRIAL = ScriptTrial("abc", "2 of 3 calls", observed="relu", shown=1)


def test_an_interrupted_minimisation_goes_on(tmp_path: Path) -> None:
    trials = ScriptTrials(tmp_path, "key")
    trials.know(Known("triage", {"kind": "fault"}))
    trials.add(TRIAL)
    trials.judge("abc", VERDICT)
    again = ScriptTrials(tmp_path, "key")
    assert (again.all, again.known, again.earlier) == ((TRIAL,), Known("triage", {"kind": "fault"}), 1)
    assert again.find("abc") == TRIAL
    assert again.find("other") is None
    assert (again.verdict("abc"), again.verdict("other")) == (VERDICT, None)


@pytest.mark.parametrize("key", ["key", "other"])
def test_a_finished_or_another_one_begins_anew(key: str, tmp_path: Path) -> None:
    trials = ScriptTrials(tmp_path, "key")
    trials.add(TRIAL)
    if key == "key":
        trials.finish()
    assert ScriptTrials(tmp_path, key).all == ()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("{")
    with pytest.raises(RunDirError, match=r"minify\.json is damaged"):
        ScriptTrials(tmp_path, "key")

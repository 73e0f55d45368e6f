"""The summaries of a run as JSON."""

from __future__ import annotations

import json
from pathlib import Path

from aoti_debug.runs.rundir import run_directory
from aoti_debug.runs.rundir.summaries import Summaries
from aoti_debug.views.summaries.document import document
from tests import factories
from tests.schema import DOCS, problems
from tests.views.summaries.sampled import empty, of_replays, sample, series


def test_numbers_that_json_has_not(tmp_path: Path) -> None:
    run = run_directory.open_run(factories.run_directory(tmp_path, factories.make_manifest()))
    floats, integers = series([sample(0), empty(1)]), series([sample()], dtype="int64")
    found = document(run, Summaries((floats, integers), 1, 1, 0), (floats, integers))
    assert problems(found, json.loads((DOCS / "summaries.schema.json").read_text())) == []
    json.dumps(found, allow_nan=False)
    first, second = found["tensors"]
    assert first["samples"][1]["mean"] == "nan"
    assert first["drift"] == ["not finite from call 1 on"]
    assert second["headroom"] == {}


def test_replays(tmp_path: Path) -> None:
    run = run_directory.open_run(factories.run_directory(tmp_path, factories.make_manifest()))
    calls, replays = series([sample(0)]), of_replays([sample(1, replay=2), sample(1, replay=3, n_nan=1)])
    found = document(run, Summaries((calls, replays), 1, 1, 0, 6), (calls, replays))
    assert problems(found, json.loads((DOCS / "summaries.schema.json").read_text())) == []
    assert (found["calls"], found["replays"], found["missed"]) == (1, [{"captured_call": 1, "replays": 2}], 6)
    first, second = found["tensors"]
    assert (first["captured_call"], first["samples"][0]["replay"]) == (None, None)
    assert (second["captured_call"], [s["replay"] for s in second["samples"]]) == (1, [2, 3])
    assert second["drift"] == ["not finite from replay 3 on"]

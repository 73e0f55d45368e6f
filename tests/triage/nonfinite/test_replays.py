"""Non-finite values that replays of a CUDA graph have left."""

from __future__ import annotations

from pathlib import Path

import torch

from aoti_debug.base.abi import CallFlag
from aoti_debug.runs.diagnosis.dataflow import Dataflow
from aoti_debug.runs.diagnosis.findings import Finding
from aoti_debug.runs.rundir import summaries
from aoti_debug.runs.rundir.summaries import HEADER, MAGIC, ROW, VERSION
from aoti_debug.runs.show.calls_and_replays import replay_lines
from aoti_debug.triage.nonfinite import nonfinite
from aoti_debug.triage.results.finding_kinds import Infinities
from tests.triage.recorder import Recorder


def values(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers)


def replayed(base: Path, last: int = 733) -> Recorder:
    """Call 0 is finite, call 1 was captured; its replay 733, the last one, divides by 0."""
    recorder = Recorder(base, inputs=("arg0",), outputs=("buf9",), save=False, replays={1: (last, 733)})
    for call, divisor, result in ((0, 1.0, 0.0), (1, 0.0, float("nan"))):
        recorder.journal.call_begin(call=call, flags=CallFlag.CAPTURING if call else 0)
        recorder.launch("scale", {"arg0": values(0, 2)}, {"buf0": values(divisor, 3)}, call=call)
        recorder.launch("divide", {"buf0": values(divisor, 3)}, {"buf1": values(result, 1)}, call=call)
        recorder.launch("copy", {"buf1": values(result, 1)}, {"buf9": values(result, 1)}, call=call)
        recorder.journal.call_end(call=call, launches=3)
    return recorder


def write_summaries(run: Path, *replays: tuple[int, int]) -> None:
    """A row of `divide` for each replay, with so many NaN."""
    rows = [ROW.codec.pack(1, replay, 1, 4, 1, 6, 2, nan, 0, 0, 0, 1.0, 1.0, 1.0, 0.0) for replay, nan in replays]
    header = HEADER.codec.pack(MAGIC, VERSION, 1, 1, len(rows), 1000, 0, 0)
    (run / summaries.NAME).write_bytes(header + b"".join(rows))


def finding(recorder: Recorder) -> Finding:
    found = nonfinite.find(Dataflow(recorder.run()), Infinities.FAIL).finding
    assert found is not None
    assert found.where is not None
    assert (found.where.launch, found.where.argument) == ("1.1", "buf1")
    return found


def test_it_names_the_replay_that_the_numbers_are_of(tmp_path: Path) -> None:
    found = finding(replayed(tmp_path))
    assert found.what == "NaN in buf1, in replay 733 of the CUDA graph that captured call 1"
    assert (
        "the numbers are of replay 733 of the CUDA graph that captured call 1; earlier replays are not kept"
        in found.evidence
    )
    assert not any("the earlier calls" in sentence for sentence in found.evidence)


def test_it_names_the_replay_in_which_it_was_born(tmp_path: Path) -> None:
    recorder = replayed(tmp_path)
    run = recorder.run()
    write_summaries(run.path, (730, 0), (731, 1), (732, 1), (733, 2))
    found = finding(recorder)
    assert found.what == "NaN in buf1, in replay 731 of the CUDA graph that captured call 1"
    assert (
        "the NaN was seen first in replay 731 of the CUDA graph that captured call 1; the numbers are of replay 733"
        in found.evidence
    )
    assert replay_lines(run, run.launches, 200) == [
        "statistics of replay 733 of the CUDA graph that captured call 1, the last one; earlier replays are not kept",
        "NaN first in replay 731 of the CUDA graph that captured call 1: 1.1 divide buf1",
    ]
    assert replay_lines(run, run.launches[:3], 200) == []


def test_it_was_born_in_the_last_replay(tmp_path: Path) -> None:
    recorder = replayed(tmp_path)
    write_summaries(recorder.run().path, (732, 0), (733, 2))
    found = finding(recorder)
    assert "the NaN was seen first in replay 733 of the CUDA graph that captured call 1" in found.evidence


def test_a_call_has_no_replay(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, inputs=("arg0",), outputs=("buf9",), save=False)
    recorder.launch("divide", {"arg0": values(0)}, {"buf9": values(float("nan"))})
    found = nonfinite.find(Dataflow(recorder.run()), Infinities.FAIL).finding
    assert found is not None
    assert found.what == "NaN in buf9"
    assert not any("replay" in sentence for sentence in found.evidence)

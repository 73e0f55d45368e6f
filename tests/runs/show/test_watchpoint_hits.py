from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from aoti_debug.base.abi import CallKind, Phase, WatchAction, WatchStatistic
from aoti_debug.runs.rundir import run_directory as rundir
from aoti_debug.runs.rundir import watchpoints
from aoti_debug.runs.rundir.formats.journal_records import LaunchKey, WatchCountRecord, WatchHitRecord, WatchRecord
from aoti_debug.runs.show.watchpoint_hits import hit_text, watch_document, watch_lines
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site

HIT = WatchHitRecord(
    time_ns=1,
    thread=7,
    key=LaunchKey(CallKind.MODEL, 0, 3),
    site=0,
    watch=0,
    slot=0,
    phase=Phase.AFTER,
    statistic=WatchStatistic.ABSMAX,
    element=12,
    value=12345.0,
    number=5,
    replay=None,
    actions=WatchAction.STOP,
)


def test_counts_of_a_process_that_was_killed() -> None:
    records = (WatchRecord(0, 7, 0, "buf0: absmax > 1e4"), WatchCountRecord(1, 7, 0, 4, 100, 0), HIT)
    (found,) = watchpoints.join(records, make_manifest(site("cpp_fused_relu_0", arg("buf0"))))
    assert (found.text, found.hits, found.evaluated) == ("buf0: absmax > 1e4", 5, 100)
    assert found.stopped is not None
    assert found.stopped.number == 5


def test_a_hit_in_words() -> None:
    manifest = make_manifest(site("cpp_fused_relu_0", arg("buf0")))
    name = manifest.sites[0].args[0].name
    (found,) = watchpoints.join((WatchRecord(0, 7, 0, "*: nan"), HIT), manifest)
    hit = found.recorded[0]
    assert hit_text(hit) == f"0.3  cpp_fused_relu_0  {name}, element 12 is 12345"
    before = replace(hit, element=None, phase=Phase.BEFORE, value=math.nan, statistic=WatchStatistic.NAN)
    assert hit_text(before) == f"0.3  cpp_fused_relu_0  {name} before it, nan is nan"
    replayed = replace(hit, replay=731)
    assert hit_text(replayed) == f"{hit_text(hit)}, in replay 731 of the CUDA graph that captured call {hit.key.call}"


def test_values_that_could_not_be_read_are_not_values_that_are_fine(tmp_path: Path) -> None:
    journal = JournalWriter()
    journal.watch("buf0: nan")
    journal.watch_count(hits=0, evaluated=3)
    journal.watch_count(hits=0, evaluated=4, unread=2)
    path = run_directory(tmp_path, make_manifest(site("triton_0", arg("buf0"))), journal)
    run = rundir.open_run(path)
    assert watch_lines(run, 200) == ["WATCH buf0: nan: no hit, looked at 4 times; could not be read 2 more times"]
    (document,) = watch_document(run)
    assert (document["evaluated"], document["unread"]) == (4, 2)

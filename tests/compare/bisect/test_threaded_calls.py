from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from aoti_debug.app.cli import main
from aoti_debug.base.errors import EXIT_FINDING, UsageError
from aoti_debug.compare.bisect.threaded_calls import (
    NEEDED,
    TRIES,
    DelaySearch,
    ThreadedCalls,
    ThreadsOptions,
    Way,
    call_from_threads,
    recorded_by_default,
)
from aoti_debug.compare.bisect.threads_text import delay_lines, fault_line, threads_lines
from aoti_debug.compare.diff import thread_races
from aoti_debug.compare.diff.repeated_calls import DifferenceKind
from aoti_debug.instrument.builder import build as builder
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir import threads_json
from aoti_debug.runs.rundir.run_json import ExitKind
from aoti_debug.runs.rundir.threads_json import Jitter, ThreadCall, ThreadsRecord, WeightUpdates
from aoti_debug.triage.investigation.triage_runs import TriageOptions
from aoti_debug.triage.results.finding_kinds import RACE
from aoti_debug.triage.session import triage_races
from tests import schema
from tests.models import Counter


def test_the_launches_whose_delays_matter() -> None:
    runs: list[tuple[int, ...]] = []

    def shows(chosen: tuple[int, ...]) -> bool:
        runs.append(chosen)
        return {2, 9} <= set(chosen)

    search = DelaySearch(shows)
    assert search.smallest(range(12)) == (2, 9)
    assert search.counts[2, 9] == (NEEDED, NEEDED)
    assert len(runs) <= 90


def test_a_set_that_shows_it_sometimes_is_tried_again() -> None:
    turns = itertools.count(1)
    search = DelaySearch(lambda chosen: 5 in chosen and next(turns) % TRIES != 1)
    assert search.smallest(range(8)) == (5,)
    assert search.counts[5,] == (NEEDED, TRIES)


def test_a_set_that_shows_it_once_is_chance() -> None:
    turns = itertools.count()
    search = DelaySearch(lambda chosen: chosen == (5,) and next(turns) % TRIES == 0)
    assert search.smallest(range(8)) == ()


def test_all_launches_are_no_smaller_set() -> None:
    assert DelaySearch(lambda chosen: len(chosen) == 3).smallest(range(3)) == ()


def test_nothing_shows_it_in_a_bounded_number_of_runs() -> None:
    runs = []
    assert DelaySearch(lambda chosen: bool(runs.append(chosen))).smallest(range(500)) == ()  # type: ignore[func-returns-value]
    assert len(runs) == 90


ACT = "native::act.default"


@pytest.mark.parametrize(("fields", "option"), [({"threads": 1}, "--threads 1"), ({"runners": 0}, "--runners 0")])
def test_wrong_numbers(fields: dict[str, int], option: str) -> None:
    chosen: dict[str, Any] = {"run": RunOptions(Path("m.pt2")), "threads": 2, **fields}
    with pytest.raises(UsageError, match=option):
        call_from_threads(ThreadsOptions(**chosen))


def called(package: Path, folder: Path, action: str, **fields: Any) -> ThreadedCalls:
    """Calls the package from two threads, with an operator that acts so."""
    options = RunOptions(package, out=folder, calls=4, environment={"NATIVE_OPS": action}, stall=5.0)
    return call_from_threads(ThreadsOptions(run=recorded_by_default(options), threads=2, **fields))


def test_a_failure_of_calls_that_were_not_compared(tmp_path: Path) -> None:
    """Its threads are those of the run that failed, and not that of the calls alone."""
    calls = tuple(ThreadCall(thread=number % 2, inputs=0) for number in range(4))
    threads_json.write(ThreadsRecord(threads=(71, 72), runners=2, sets=1, calls=calls), tmp_path)
    together: Any = SimpleNamespace(
        run=SimpleNamespace(path=tmp_path), verdict=SimpleNamespace(suspects=(), launch=None)
    )
    alone: Any = SimpleNamespace(verdict=None)
    calls = tuple(ThreadCall(thread=0, inputs=0) for _ in range(4))
    record = ThreadsRecord(threads=(70,), runners=1, sets=1, calls=calls)
    found = ThreadedCalls(alone=alone, together=together, record=record, unrepeatable=(1,))
    assert fault_line(found) == "the model was called from 2 threads; the same 4 calls alone ended well"
    threads_json.write(ThreadsRecord(threads=(71, 72), runners=1, sets=1, calls=calls), tmp_path)
    assert "from 2 threads, at most 1 call at once; the same 4 calls alone ended well; with torch" in fault_line(found)


@pytest.mark.slow
class TestCalls:
    """Of a package with an operator of native_library.py between two kernels."""

    def test_an_operator_with_shared_memory_is_named(self, native_package: Path, tmp_path: Path) -> None:
        found = called(native_package, tmp_path, "share")
        assert found.wrong
        for wrong in found.wrong:
            assert wrong.first is not None
            assert wrong.first.launch.kernel == ACT
            assert ACT in {beside.launch.kernel for beside in wrong.first.beside}
        lines = threads_lines(found)
        assert lines[0].startswith(f"DIFFERENT {len(found.wrong)} of 4 calls on 2 threads: not bit-equal")
        assert f"  first    {ACT} differs first in {len(found.wrong)} of {len(found.wrong)} wrong calls" in lines[1]
        assert any(f"{ACT} wrote other values to" in line for line in lines)

    def test_delays_are_not_blamed_for_what_is_wrong_without_them(self, native_package: Path, tmp_path: Path) -> None:
        found = called(native_package, tmp_path, "share", jitter=Jitter(7))
        assert found.delays is not None
        assert (found.delays.without, found.delays.launches) == (TRIES, ())
        assert found.delays.wrong_without > 0
        assert found.delays.runs == 1 + TRIES
        (line,) = delay_lines(found.delays)
        assert line == f"  delays   a call was wrong in {found.delays.wrong_without} of 3 runs without delays, too"
        assert "--jitter 7" in " ".join(found.result.run.info.command)

    def test_perturbed_memory_shows_what_reads_freed_memory(self, native_package: Path, tmp_path: Path) -> None:
        found = called(native_package, tmp_path, "read freed memory", jitter=Jitter(0))
        assert found.delays is not None
        assert (found.delays.wrong_without, found.delays.shown) == (0, found.delays.tried)
        assert (found.delays.launches, found.delays.memory) == ((), True)
        (line,) = delay_lines(found.delays)
        assert "a call was wrong in 0 of 10 runs without delays; in 10 of 10 runs with perturbed memory (" in line
        first = found.wrong[0].first
        assert first is not None
        assert (first.launch.kernel, first.kind) == (ACT, DifferenceKind.WROTE)

    @pytest.mark.parametrize("updates", WeightUpdates)
    def test_a_clean_model(self, native_package: Path, tmp_path: Path, updates: WeightUpdates) -> None:
        found = called(native_package, tmp_path, "", updates=updates, runners=1)
        assert found.wrong == ()
        assert found.record is not None
        assert found.record.updates == (2 if updates is WeightUpdates.EQUAL else 0)
        assert found.record.runners == 1
        assert threads_lines(found)[0].startswith("EQUAL 4 calls on 2 threads: bit-equal to the same calls alone")

    def test_a_clean_model_in_perturbed_memory(self, native_package: Path, tmp_path: Path) -> None:
        found = called(native_package, tmp_path, "", jitter=Jitter(3))
        assert (found.wrong, found.delays) == ((), None)

    @pytest.mark.parametrize(
        ("action", "state"), [("read", ExitKind.FAULT), ("check", ExitKind.FAULT), ("spin", ExitKind.TIMEOUT)]
    )
    def test_a_failure_under_threads(self, native_package: Path, tmp_path: Path, action: str, state: ExitKind) -> None:
        found = called(native_package, tmp_path, f"meet and {action}")
        assert found.alone.run.state is ExitKind.CLEAN
        assert found.result.run.state is state
        assert found.result.verdict is not None
        assert {launch.kernel for launch in found.result.verdict.suspects} == {ACT}
        line = fault_line(found)
        assert line.endswith("the model was called from 2 threads; the same 4 calls alone ended well")
        if found.result.verdict.launch is None:
            assert re.match(r"launch \d\.\d \S+ is of thread [01], \d\.\d \S+ of thread [01]; ", line)
        else:
            assert re.match(
                r"launch \d\.\d \S+ is of thread [01]; (\d\.\d \S+ of thread [01].* ran beside it; )?the model", line
            )
        assert threads_lines(found) == []

    def test_other_ways_are_tried_until_a_call_is_wrong(self, native_package: Path, tmp_path: Path) -> None:
        tried = (Way(runners=2, updates=WeightUpdates.EQUAL, jitter=Jitter(1)), Way(runners=2))
        found = called(native_package, tmp_path, "share", runners=1, further=tried)
        assert found.wrong
        assert (found.runs, found.way) == (2, tried[0])
        assert found.record is not None
        assert (found.record.runners, found.record.updates) == (2, 2)

    def test_a_race_keeps_no_way_from_being_tried(
        self, native_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(thread_races, "find", lambda _: (SimpleNamespace(doubt=""),))
        tried = (Way(runners=2, updates=WeightUpdates.EQUAL, jitter=Jitter(1)),)
        found = called(native_package, tmp_path, "share", runners=1, further=tried)
        assert found.wrong
        assert (found.runs, found.way) == (2, tried[0])

    def test_a_model_that_takes_no_other_inputs(self, native_package: Path, tmp_path: Path) -> None:
        found = called(native_package, tmp_path, "check inputs")
        assert (found.alone.run.state, found.wrong) == (ExitKind.CLEAN, ())
        assert found.record is not None
        assert found.record.sets == 1

    def test_a_failure_of_the_calls_alone(self, native_package: Path, tmp_path: Path) -> None:
        found = called(native_package, tmp_path, "check")
        assert found.together is None
        assert fault_line(found) == "it was called from one thread: the calls alone fail already"
        assert "--threads" not in found.alone.run.info.command


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("counter")
    torch.export.save(torch.export.export(Counter().eval(), (torch.rand(2048, 64),)), folder / "counter.pt2")
    return builder.build(folder / "counter.pt2", output=folder / "counter.instrumented.pt2")


@pytest.mark.slow
class TestState:
    """Calls that cannot be compared with those alone, as each changes what the next one reads."""

    def test_the_race_is_found_all_the_same(
        self, counter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        words = ["run", str(counter), "--threads", "3", "--calls", "24", "--out", str(tmp_path), "--json"]
        assert main.run(words) == EXIT_FINDING
        document = json.loads(capsys.readouterr().out)
        assert schema.problems(document, json.loads((schema.DOCS / "run.schema.json").read_text())) == []
        (race,) = document["threads"]["races"]
        assert document["threads"]["unrepeatable"]
        assert (race["memory"], race["bytes"], race["doubt"]) == ("count", [0, 256], "")
        assert race["first"]["thread"] != race["second"]["thread"]

    def test_as_text(self, counter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main.run(["run", str(counter), "--threads", "3", "--out", str(tmp_path)]) == EXIT_FINDING
        text = capsys.readouterr().out
        assert re.search(r"RACE nothing recorded orders \S+ cpp_fused_\S+ of thread \d and \S+ cpp_fused_", text)
        said = " ".join(text.split())
        assert "both are passed bytes 0 to 255 of count, which all calls of the package share" in said
        assert "calls overwrite one count: a lock around each call, or the package loaded once for each thread" in said
        assert re.search(r"  second   \S+ cpp_fused_\S+ of thread \d reads and writes count: ", text)

    def test_of_a_run_that_is_there(self, counter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert (
            main.run(["run", str(counter), "--threads", "3", "--calls", "24", "--out", str(tmp_path)]) == EXIT_FINDING
        )
        capsys.readouterr()
        run = str((tmp_path / "latest").resolve())
        assert main.run(["show", run, "--races"]) == 0
        assert "both are passed bytes 0 to 255 of count" in " ".join(capsys.readouterr().out.split())
        assert main.run(["show", run, "--races", "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert schema.problems(document) == []
        assert [race["memory"] for race in document["races"]] == ["count"]

    def test_of_a_run_without_one(self, counter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        main.run(["run", str(counter), "--calls", "2", "--out", str(tmp_path)])
        capsys.readouterr()
        assert main.run(["show", str((tmp_path / "latest").resolve()), "--races"]) == 0
        assert capsys.readouterr().out.strip() == "no race of threads was seen: 2 launches in 2 calls of 1 thread"

    def test_one_call_at_a_time_does_not_race(self, counter: Path, tmp_path: Path) -> None:
        run = recorded_by_default(RunOptions(counter, out=tmp_path, calls=12))
        found = call_from_threads(ThreadsOptions(run=run, threads=3, runners=1))
        assert found.unrepeatable
        assert found.races == ()

    def test_a_triage_of_races_alone(self, counter: Path, tmp_path: Path) -> None:
        finding = triage_races(TriageOptions(model=counter, out=tmp_path, threads=3)).record.finding
        assert finding.kind == RACE
        assert finding.where is not None
        assert (finding.where.argument, finding.where.input, finding.where.input_kind) == ("count", "count", "buffer")
        assert finding.next[0].endswith(" --threads 3")

"""Calls from several threads, if they are asked for: they return something else than the same calls alone, or fail."""

from __future__ import annotations

from dataclasses import replace

from aoti_debug.compare.bisect.threaded_calls import ThreadedCalls
from aoti_debug.compare.bisect.threads_text import fault_line, threads_lines
from aoti_debug.runs.diagnosis.findings import CLEAN, INCOMPLETE, Finding, place_of
from aoti_debug.runs.diagnosis.run_findings import finding_of
from aoti_debug.runs.diagnosis.suggested_commands import package
from aoti_debug.runs.rundir.threads_json import WeightUpdates
from aoti_debug.runs.show.fault import argument_sentences
from aoti_debug.triage.investigation.investigation import Check, Investigation, Outcome, Suspicion
from aoti_debug.triage.results.finding_kinds import THREADS

_LABELS = ("first", "beside", "launch", "delays", "when")


def _look(investigation: Investigation) -> Suspicion | None:
    """The calls that differ, or the failure, when several threads call the model."""
    count = investigation.options.threads
    if count is None:
        return None
    found = investigation.runs.from_threads(count)
    return Suspicion(finding_of_calls(found), found.result.diagnosed)


def finding_of_calls(found: ThreadedCalls) -> Finding:
    """The finding of calls from threads; of kind CLEAN if they are equal, INCOMPLETE if they were not compared."""
    again = f"aoti-debug run {package(found.result.run)} {_options(found)}"
    if found.result.verdict is not None:
        failed = finding_of(found.result.run, found.result.verdict, argument_sentences(found.result.verdict))
        evidence = (fault_line(found), *failed.evidence)
        return replace(failed, kind=THREADS, evidence=evidence, next=(again,), also=())
    lines = [line.strip() for line in threads_lines(found)]
    if found.unrepeatable:
        text = lines[0].removeprefix("NOT COMPARED ")
        return Finding(INCOMPLETE, f"calls from threads were not compared: {text}")
    if not found.wrong:
        return Finding(CLEAN, lines[0].removeprefix("EQUAL ") if lines else "")
    first = next((call.first for call in found.wrong if call.first is not None), None)
    return Finding(
        THREADS,
        lines[0].removeprefix("DIFFERENT "),
        where=None if first is None else place_of(first.launch, first.names[0]),
        evidence=tuple(filter(None, map(_sentence, lines[1:]))),
        next=(f"{again} --jitter",),
    )


def _sentence(line: str) -> str:
    """A line without its label; "" of the model line, which the finding has."""
    label, _, text = line.partition(" ")
    return "" if label == "model" else text.strip() if label in _LABELS else line


def _options(found: ThreadedCalls) -> str:
    """ "--threads 4 --runners 2 --update-weights", the options of the run but for its delays."""
    threads = 0 if found.record is None else len(found.record.threads)
    words = [f"--threads {threads}"]
    if found.way is not None:
        words += [f"--runners {found.way.runners}"] if found.way.runners != threads else []
        words += ["--update-weights"] if found.way.updates is WeightUpdates.EQUAL else []
    return " ".join(words)


def _confirm(investigation: Investigation, suspicion: Suspicion) -> Outcome:
    """The finding as it is: a launch that is replayed alone has no threads beside it."""
    return Outcome(suspicion.finding, suspicion.run)


CHECK = Check(THREADS, _look, _confirm)

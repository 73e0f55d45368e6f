"""Races of a call: launches that touch the same memory in no order. The text of the wrapper alone shows them.

Calls from several threads, if they are asked for: they race, return something else than the same calls alone, or fail.
"""

from __future__ import annotations

from dataclasses import replace

from aoti_debug.base import wording
from aoti_debug.compare.bisect.threaded_calls import ThreadedCalls
from aoti_debug.compare.bisect.threads_text import (
    access_text,
    doubtful_race,
    fault_line,
    race_evidence,
    race_text,
    shared_state,
    threads_lines,
    unsearched_launches,
)
from aoti_debug.compare.diff.thread_races import RaceSide, ThreadRace
from aoti_debug.package.manifest import Manifest
from aoti_debug.package.stream_order import Race, Racer
from aoti_debug.runs.diagnosis.dataflow import input_kind, input_or_weight_name
from aoti_debug.runs.diagnosis.findings import CLEAN, INCOMPLETE, Finding, Place, place_of
from aoti_debug.runs.diagnosis.suggested_commands import package
from aoti_debug.runs.diagnosis.verdict_text import finding_of
from aoti_debug.runs.rundir import threads_json
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.threads_json import WeightUpdates
from aoti_debug.runs.show.verdict import argument_sentences
from aoti_debug.triage.investigation.investigation import Check, Investigation, Outcome, Suspicion
from aoti_debug.triage.results.finding_kinds import RACE, THREADS

_HOST = -1  # as a stream
_CALLER = -1  # as a site


def findings(manifest: Manifest, run: RunDir | None = None) -> tuple[Finding, ...]:
    """The races of a model that are beyond doubt, a finding each; those with a doubt are notes of the first.

    Without any race but with notes there is one finding of kind CLEAN, or of kind INCOMPLETE where something could not
    be decided. None if all launches run on one stream.

    Args:
        run: a run of the model, whose launches are named; without one their sites are.
    """
    order = manifest.stream_order
    if order is None:
        return ()
    names = _Names(manifest, run)
    certain = [race for race in order.races if not race.doubt]
    notes = (*(names.doubtful(race) for race in order.races if race.doubt), *order.undecided)
    if certain:
        first, *others = (names.finding(race) for race in certain)
        return (replace(first, warnings=notes), *others)
    kind = INCOMPLETE if order.undecided else CLEAN
    streams = wording.pluralize(len(order.streams) + 1, "stream")
    sites = wording.pluralize(len(manifest.sites), "launch site")
    return (Finding(kind, f"{sites} on {streams}: no race", warnings=notes),)


class _Names:
    """Names launches as a person knows them."""

    def __init__(self, manifest: Manifest, run: RunDir | None) -> None:
        self._manifest = manifest
        self._launches: dict[int, str] = {}
        for launch in () if run is None else run.launches:
            self._launches.setdefault(launch.site.id, launch.id)

    def _launch(self, racer: Racer) -> str:
        """ "0.3", "site 4", "the caller"."""
        if racer.site == _CALLER:
            return "the caller"
        return self._launches.get(racer.site) or f"site {racer.site}"

    def _memory(self, race: Race) -> str:
        """ "buf0, float32 (64, 64),", without dtype and sizes where they are not known."""
        for promise in self._manifest.promises:
            if promise.name == race.memory and promise.function == "run_impl":
                return f"{race.memory}, {promise.dtype} ({', '.join(promise.sizes)}),"
        return race.memory

    def _does(self, race: Race, racer: Racer, memory: str) -> str:
        """ "0.3 triton_poi_fused_0 writes buf0 on stream 1", "… writes buf9, in the memory of buf0, on stream 1"."""
        kernel = "" if racer.site == _CALLER else f" {self._manifest.sites[racer.site].kernel}"
        shown = memory if racer.argument == race.memory else f"{racer.argument}, in the memory of {race.memory},"
        return f"{self._launch(racer)}{kernel} {racer.does} {shown} {_on(racer.stream)}"

    def _both(self, race: Race) -> str:
        """Both sides of a race, in the order in which the host starts them."""
        again = "it" if race.first.argument == race.memory else race.memory
        first = self._does(race, race.first, self._memory(race))
        return f"{first}, {self._does(race, race.second, again)}"

    def _where(self, racer: Racer) -> str:
        """ "0.3, buf0: model.py:7 in forward: …", "0.3, buf0_view: line 190 of the generated wrapper"."""
        site = self._manifest.sites[racer.site]
        source = site.provenance.source
        place = f"line {site.line} of the generated wrapper"
        if source:
            place = f"{source[0].place} in {source[0].function}: {source[0].text.strip()}"
        return f"{self._launch(racer)}, {racer.argument}: {place}"

    def _place(self, racer: Racer) -> Place:
        site = self._manifest.sites[racer.site]
        frame = site.provenance.source[0] if site.provenance.source else None
        return Place(self._launches.get(racer.site, ""), site.kernel, site.op, "", racer.argument, None, frame)

    def finding(self, race: Race) -> Finding:
        """The finding of a race."""
        first, second = race.first, race.second
        names = self._launch(first), self._launch(second)
        late = "read" if second.does == "reads" else "write"
        instead = f"before {names[0]} has written it" if late == "read" else f"while {names[0]} still uses its memory"
        what = f"no event orders {names[0]} {_on(first.stream)} before {names[1]} {_on(second.stream)}"
        if first.stream == second.stream:
            what = f"{names[1]} may begin before {names[0]} has ended, {_on(first.stream)}, and does not wait for it"
        return Finding(
            RACE,
            f"{what}: both use {_part(race)}",
            where=self._place(second),
            evidence=(
                f"{self._both(race)}; {race.missing}",
                *(self._where(racer) for racer in (first, second)),
            ),
            possible=(f"{names[1]} may {late} {second.argument} {instead}",),
            chain=(self._place(first), self._place(second)),
        )

    def doubtful(self, race: Race) -> str:
        """A sentence about a race that may be none."""
        return f"there may be a race: {self._both(race)}; {race.missing}; {race.doubt}"


def _part(race: Race) -> str:
    """ "buf0", "bytes 0 to 16383 of buf0"."""
    return race.memory if race.bytes is None else f"bytes {race.bytes[0]} to {race.bytes[1] - 1} of {race.memory}"


def _on(stream: int) -> str:
    return "on the host" if stream == _HOST else f"on stream {stream}"


def statically(manifest: Manifest) -> Finding:
    """The races that the text of a model's wrapper shows; of kind CLEAN if all launches run on one stream."""
    found = findings(manifest)
    if not found:
        sites = wording.pluralize(len(manifest.sites), "launch site")
        return Finding(CLEAN, f"{sites}, all on the stream of the call: no race")
    return replace(found[0], also=found[1:])


def also(finding: Finding, run: RunDir | None) -> Finding:
    """A finding of another kind, with the races of the model beside it."""
    if finding.kind == RACE or not finding.kind.is_fault or run is None:
        return finding
    races = (found for found in findings(run.manifest, run) if found.kind == RACE)
    return replace(finding, also=(*finding.also, *races))


def _look(investigation: Investigation) -> Suspicion | None:
    """The races of the model; notes where there may be one."""
    first = investigation.first
    found = findings(first.run.manifest, first.run)
    if not found:
        return None
    finding = replace(found[0], also=found[1:])
    if not finding.kind.is_fault and not finding.warnings:
        return None
    return Suspicion(finding, first.diagnosed)


def _confirm(_: Investigation, suspicion: Suspicion) -> Outcome:
    """A replay of one launch alone has no race: there is nothing to confirm."""
    return Outcome(suspicion.finding, suspicion.run)


CHECK = Check(RACE, _look, _confirm)


_LABELS = ("first", "beside", "launch", "delays", "when")


def _look_at_threads(investigation: Investigation) -> Suspicion | None:
    """The calls that differ, or the failure, when several threads call the model."""
    count = investigation.options.threads
    if count is None:
        return None
    found = investigation.runs.from_threads(count)
    return Suspicion(finding_of_calls(found), found.result.diagnosed)


def finding_of_calls(found: ThreadedCalls) -> Finding:
    """The finding of calls from threads; of kind CLEAN if they are equal, INCOMPLETE if they were not compared."""
    again = f"aoti-debug run {package(found.result.run)} {_options(found)}"
    manifest = found.result.run.manifest
    races = tuple(_race(race, again, manifest) for race in found.races if not race.doubt)
    left_out = filter(None, (unsearched_launches(found.result.run),))
    notes = (*(doubtful_race(race) for race in found.races if race.doubt), *left_out)
    if found.result.verdict is not None:
        failed = finding_of(found.result.run, found.result.verdict, argument_sentences(found.result.verdict))
        evidence = (fault_line(found), *failed.evidence)
        return replace(failed, kind=THREADS, evidence=evidence, next=(again,), also=races, warnings=notes)
    lines = [line.strip() for line in threads_lines(found)]
    if not found.wrong:
        compared = _not_wrong(found, lines[0] if lines else "")
        if not races:
            return replace(compared, warnings=notes)
        return replace(races[0], evidence=(*races[0].evidence, compared.what), also=races[1:], warnings=notes)
    first = next((call.first for call in found.wrong if call.first is not None), None)
    return Finding(
        THREADS,
        lines[0].removeprefix("DIFFERENT "),
        where=None if first is None else place_of(first.launch, first.names[0]),
        evidence=tuple(filter(None, map(_sentence, lines[1:]))),
        next=(f"{again} --jitter",),
        also=races,
        warnings=notes,
    )


def _not_wrong(found: ThreadedCalls, line: str) -> Finding:
    """Calls that are equal, or were not compared."""
    if found.unrepeatable:
        text = line.removeprefix("NOT COMPARED ")
        return Finding(INCOMPLETE, f"calls from threads were not compared: {text}")
    return Finding(CLEAN, line.removeprefix("EQUAL "))


def joined(static: Finding, of_calls: Finding) -> Finding:
    """One finding of the generated code and of calls from threads: that of the calls first, if they have one."""
    warnings = (*static.warnings, *of_calls.warnings)
    if of_calls.kind.is_fault:
        others = (replace(static, also=()), *static.also) if static.kind.is_fault else ()
        return replace(of_calls, also=(*of_calls.also, *others), warnings=warnings)
    if static.kind.is_fault:
        return replace(static, warnings=warnings)
    kind = INCOMPLETE if INCOMPLETE in (static.kind, of_calls.kind) else CLEAN
    return Finding(kind, f"{static.what}; {of_calls.what}", warnings=warnings)


def _race(race: ThreadRace, again: str, manifest: Manifest) -> Finding:
    """The finding of a race of two threads; its places name the weight, the state or the input of the model."""
    sides = (race.first, race.second)
    places = tuple(_place(side, manifest) for side in sides)
    return Finding(
        RACE,
        race_text(race),
        where=places[1],
        evidence=(*(f"{side.launch.id} {access_text(side)}" for side in sides), race_evidence(race)),
        possible=(*((shared_state(race),) if race.is_shared else ()), _consequence(*sides)),
        chain=places,
        next=(again,),
    )


def _place(side: RaceSide, manifest: Manifest) -> Place:
    arguments = (argument for argument in side.launch.args if argument.name == side.argument)
    name = next((name for one in arguments if (name := input_or_weight_name(manifest, one))), "")
    return replace(place_of(side.launch, side.argument, input_=name), input_kind=input_kind(manifest, name))


def _consequence(first: RaceSide, second: RaceSide) -> str:
    """ "1.3 may overwrite count while call 0 still uses it"."""
    if second.does == "reads":
        return f"{second.launch.id} may read {second.argument} before or after {first.launch.id} has written it"
    return f"{second.launch.id} may write {second.argument} while call {first.launch.key.call} still uses its memory"


def _sentence(line: str) -> str:
    """A line without its label; "" of the model line, which the finding has."""
    label, _, text = line.partition(" ")
    return "" if label == "model" else text.strip() if label in _LABELS else line


def _options(found: ThreadedCalls) -> str:
    """ "--threads 4 --runners 2 --update-weights", the options of the run but for its delays."""
    record = threads_json.read(found.result.run.path)
    threads = 0 if record is None else len(record.threads)
    words = [f"--threads {threads}"]
    if found.way is not None:
        words += [f"--runners {found.way.runners}"] if found.way.runners != threads else []
        words += ["--update-weights"] if found.way.updates is WeightUpdates.EQUAL else []
    return " ".join(words)


def _confirm_threads(investigation: Investigation, suspicion: Suspicion) -> Outcome:
    """The finding as it is: a launch that is replayed alone has no threads beside it."""
    return Outcome(suspicion.finding, suspicion.run)


OF_THREADS = Check(THREADS, _look_at_threads, _confirm_threads)

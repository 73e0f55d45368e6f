"""Calls from several threads against the same calls alone, in lines for people and as JSON data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from aoti_debug.base import wording
from aoti_debug.compare.bisect.threaded_calls import DelayedLaunches, ThreadedCalls, WrongCall
from aoti_debug.compare.diff import thread_races
from aoti_debug.compare.diff.repeated_calls import DifferenceKind, FirstDifference, beside
from aoti_debug.compare.diff.thread_races import Meanwhile, RaceSide, ThreadRace
from aoti_debug.package import recording_settings
from aoti_debug.runs.rundir import threads_json
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.threads_json import CallState, OutputElement, ThreadsRecord

MAX_LISTED = 3  # wrong calls
_MAX_BESIDE = 4

# AOTInductorModelContainer::run in torch/csrc/inductor/aoti_runtime/model_container.h; that of torch 2.13 names it.
_FEWER_RUNNERS = (
    "with torch before 2.13, first calls may wait for each other for ever where fewer may run than there are threads"
)


def threads_lines(found: ThreadedCalls) -> list[str]:
    """The outcome of a comparison of calls from threads with the same calls alone; [] of runs that failed."""
    record = found.record
    if record is None:
        return []
    if found.unrepeatable:
        return _unrepeatable_lines(found, record)
    if found.together is None or found.together.verdict is not None:
        return []
    calls = f"{wording.pluralize(len(record.calls), 'call')} on {wording.pluralize(len(record.threads), 'thread')}"
    updates = f"; {_updates(record)}" if record.updates else ""
    if not found.wrong:
        runs = f", in {found.runs} runs" if found.runs > 1 else ""
        return [f"EQUAL {calls}{runs}: bit-equal to the same calls alone{updates}"]
    lines = [f"DIFFERENT {len(found.wrong)} of {calls}: not bit-equal to the same calls alone{updates}"]
    lines += _pattern(found.wrong)
    lines += delay_lines(found.delays)
    for call in found.wrong[:MAX_LISTED]:
        lines += _call_lines(call, found.together.run, record)
    if len(found.wrong) > MAX_LISTED:
        lines.append(f"and {wording.pluralize(len(found.wrong) - MAX_LISTED, 'more call')}")
    if not any(call.first for call in found.wrong):
        lines += _unknown_lines(found.together.run)
    return [*lines, f"alone: {wording.short_path(found.alone.run.path)}"]


def threads_document(called: ThreadedCalls) -> dict[str, Any]:
    """The member of `aoti-debug run --threads --json`: the wrong calls, and where each of them begins to differ."""
    return {
        "alone": str(called.alone.run.path),
        "together": None if called.together is None else str(called.together.run.path),
        "calls": 0 if called.record is None else len(called.record.calls),
        "unrepeatable": list(called.unrepeatable),
        "wrong": [
            {
                "number": wrong.number,
                "thread": wrong.call.thread,
                "state": wrong.call.state.value,
                "call": wrong.run_call,
                "first": None
                if wrong.first is None
                else {"launch": wrong.first.launch.id, "kernel": wrong.first.launch.kernel},
            }
            for wrong in called.wrong
        ],
        **races_document(called.races, called.result.run),
    }


def races_document(races: Sequence[ThreadRace], run: RunDir) -> dict[str, Any]:
    """Races of host threads, and how many launches of their run were not looked at, as JSON data."""
    return {"races": [_race(race) for race in races], "races_unsearched": unsearched(run)}


def _race(race: ThreadRace) -> dict[str, Any]:
    return {
        "first": _accessed(race.first),
        "second": _accessed(race.second),
        "memory": race.memory,
        "bytes": list(race.bytes),
        "is_shared": race.is_shared,
        "evidence": race_evidence(race),
        "calls": race.calls,
        "doubt": race.doubt,
    }


def _accessed(access: RaceSide) -> dict[str, Any]:
    return {
        "launch": access.launch.id,
        "kernel": access.launch.kernel,
        "thread": access.thread,
        "argument": access.argument,
        "does": access.does,
    }


def race_lines(races: Sequence[ThreadRace], run: RunDir) -> list[str]:
    """The races of host threads of a run, for people; a line for each that may be none, and for what was left out."""
    lines: list[str] = []
    certain = [race for race in races if not race.doubt]
    for race in certain[:MAX_LISTED]:
        lines.append(f"RACE {race_text(race)}")
        lines += [f"  {label:<8} {_side(side)}" for label, side in (("first", race.first), ("second", race.second))]
        lines.append(f"  when     {race_evidence(race)}")
        lines += [f"  maybe    {shared_state(race)}"] if race.is_shared else []
    if len(certain) > MAX_LISTED:
        lines.append(f"and {wording.pluralize(len(certain) - MAX_LISTED, 'more race')}")
    doubtful = [race for race in races if race.doubt]
    lines += [f"note: {doubtful_race(race)}" for race in doubtful[:MAX_LISTED]]
    unsearched = unsearched_launches(run)
    return [*lines, f"note: {unsearched}"] if unsearched else lines


def unsearched(run: RunDir) -> int:
    """The launches of a run that are not looked at for races: those behind the first `thread_races.MOST_LAUNCHES`."""
    if len({call.thread for call in run.timeline.calls}) < 2:
        return 0
    return max(0, len(run.launches) - thread_races.MOST_LAUNCHES)


def unsearched_launches(run: RunDir) -> str:
    """Says how many launches of a run were not looked at for races; "" if all were."""
    count = unsearched(run)
    if not count:
        return ""
    looked_at = f"the first {thread_races.MOST_LAUNCHES} of {len(run.launches)} launches"
    return f"only {looked_at} were looked at for races of threads: the others may have some"


def race_text(race: ThreadRace) -> str:
    """ "nothing recorded orders 0.1 k of thread 0 and 1.1 k of thread 1: both are passed bytes 0 to 255 of count"."""
    sides = " and ".join(
        f"{one.launch.id} {one.launch.kernel} of thread {one.thread}" for one in (race.first, race.second)
    )
    first, last = race.bytes[0], race.bytes[1] - 1
    shared = ", which all calls of the package share" if race.is_shared else ""
    return f"nothing recorded orders {sides}: both are passed bytes {first} to {last} of {race.memory}{shared}"


def shared_state(race: ThreadRace) -> str:
    """The remedies of a race in a weight or a state: "calls overwrite one count: a lock … may be what is needed"."""
    remedies = "a lock around each call, or the package loaded once for each thread, may be what is needed"
    return f"calls overwrite one {race.memory}: {remedies}"


def race_evidence(race: ThreadRace) -> str:
    """The evidence that nothing orders its launches: what was recorded of the time in which they ran."""
    first, second = race.first.launch, race.second.launch
    pairs = f"; so in {wording.pluralize(race.calls, 'pair')} of calls" if race.calls > 1 else ""
    match race.meanwhile:
        case Meanwhile.BOTH_RAN:
            return f"{second.id} began before {first.id} had ended{pairs}"
        case Meanwhile.BETWEEN:
            before, after = race.around
            return f"{second.id} ran between {before.id} and {after.id}, which are passed these bytes, too{pairs}"
        case Meanwhile.BOTH_CALLS:
            return f"calls {first.key.call} and {second.key.call} ran at the same time{pairs}"


def doubtful_race(race: ThreadRace) -> str:
    """A sentence about a race that may be none."""
    sides = ", ".join(
        f"{one.launch.id} {one.launch.kernel} of thread {one.thread} {one.does} {one.argument}"
        for one in (race.first, race.second)
    )
    return f"there may be a race: {sides}, in the same memory; {race_evidence(race)}; {race.doubt}"


def _side(access: RaceSide) -> str:
    return f"{access.launch.id} {access_text(access)}"


def access_text(access: RaceSide) -> str:
    """ "k of thread 1 reads and writes count: model.py:9  self.count.add_(1)"."""
    source = access.launch.site.provenance.source
    line = f": {source[0].place}  {source[0].text.strip()}" if source else ""
    return f"{access.launch.kernel} of thread {access.thread} {access.does} {access.argument}{line}"


def _named(launch: Launch) -> dict[str, Any]:
    return {"launch": launch.id, "kernel": launch.kernel}


def fault_line(found: ThreadedCalls) -> str:
    """Says in which thread a run failed, and what ran beside; "" if it did not fail, or that is not known."""
    record, verdict = threads_json.read(found.result.run.path), found.result.verdict
    if record is None or verdict is None:
        return ""
    if found.together is None:
        return "it was called from one thread: the calls alone fail already"
    text = _suspects(verdict.suspects, record)
    if verdict.launch is not None:
        listed = [_of_thread(launch, record) for launch in beside(found.result.run, verdict.launch)]
        text += f"; {wording.join_truncated(listed, _MAX_BESIDE)} ran beside it" if listed else ""
    ended_well = f"the same {wording.pluralize(len(record.calls), 'call')} alone ended well"
    is_limited = record.runners < len(record.threads)
    at_once = f", at most {wording.pluralize(record.runners, 'call')} at once" if is_limited else ""
    called = f"the model was called from {wording.pluralize(len(record.threads), 'thread')}{at_once}; {ended_well}"
    if is_limited and not verdict.suspects:
        called += f"; {_FEWER_RUNNERS}"
    return f"{text}; {called}" if text else called


def _suspects(launches: Sequence[Launch], record: ThreadsRecord) -> str:
    """ "launch 0.7 cpp_fused_0 is of thread 0, 3.2 mine::op of thread 2"; "" if a thread is none of the plan."""
    threads = [record.thread_number(launch.thread) for launch in launches]
    if not launches or None in threads:
        return ""
    pairs = zip(launches, threads, strict=True)
    words = [f"{launch.id} {launch.kernel} of thread {thread}" for launch, thread in pairs]
    return f"launch {words[0].replace(' of ', ' is of ', 1)}" + "".join(f", {word}" for word in words[1:])


def _updates(record: ThreadsRecord) -> str:
    return f"the weights were replaced by equal ones {wording.pluralize(record.updates, 'time')} meanwhile"


def _unrepeatable_lines(found: ThreadedCalls, record: ThreadsRecord) -> list[str]:
    number = found.unrepeatable[0]
    call = record.calls[number]
    calls = f"{len(found.unrepeatable)} of {wording.pluralize(len(record.calls), 'call')}"
    lines = [f"NOT COMPARED {calls} alone, in one thread, differ from an earlier call with the same inputs"]
    if call.element is not None:
        later = " after a later call" if call.state is CallState.CHANGED else ""
        lines.append(f"  call {number}: {_element(call.element, found.alone.run, 'an earlier call')}{later}")
    package = found.alone.run.info.command[2]
    return [*lines, f"next: aoti-debug run {package} --repeat 5 names launches whose results change"]


def _pattern(wrong: Sequence[WrongCall]) -> list[str]:
    """The launch that differs first, over all calls, and the kernels ran beside it each time."""
    known = [call.first for call in wrong if call.first is not None]
    kernels = Counter(first.launch.kernel for first in known)
    lines = [
        f"  first    {kernel} differs first in {count} of {len(known)} wrong calls that were looked into"
        for kernel, count in kernels.most_common(MAX_LISTED)
    ]
    kernels_beside = [{one.launch.kernel for one in first.beside} for first in known]
    always = sorted(set.intersection(*kernels_beside)) if kernels_beside else []
    if len(known) > 1 and always:
        lines.append(f"  beside   {wording.join_truncated(always, 2)} of another thread ran at the same time in each")
    return lines


def delay_lines(delays: DelayedLaunches | None) -> list[str]:
    """The part that random delays before launches have in it."""
    if delays is None:
        return []
    without = f"in {delays.wrong_without} of {wording.pluralize(delays.without, 'run')} without delays"
    if delays.wrong_without and not _parts(delays):
        return [f"  delays   a call was wrong {without}, too"]
    if not _parts(delays):
        return [f"  delays   a call was wrong {without}; no part of the delays and the memory showed it"]
    shown = f"in {delays.shown} of {wording.pluralize(delays.tried, 'run')}"
    runs = wording.pluralize(delays.runs, "run")
    return [f"  delays   a call was wrong {without}; {shown} with {_parts(delays)} ({runs} in all)"]


def _parts(delays: DelayedLaunches) -> str:
    """ "delays before launch 1 k of each call and perturbed memory"; "" of none."""
    names = wording.join_truncated([f"{one.key.launch} {one.kernel}" for one in delays.launches], 4)
    launches = "launch" if len(delays.launches) == 1 else "launches"
    before = f"delays before {launches} {names} of each call" if delays.launches else ""
    return " and ".join(filter(None, (before, "perturbed memory" if delays.memory else "")))


def _call_lines(wrong: WrongCall, run: RunDir, record: ThreadsRecord) -> Iterator[str]:
    assert wrong.call.element is not None
    number = wrong.number if wrong.run_call is None else wrong.run_call
    place = f"call {number}, number {wrong.order} of thread {wrong.call.thread}"
    yield f"{place}: {_element(wrong.call.element, run, 'alone')}"
    if wrong.call.state is CallState.CHANGED:
        yield "  when     it was equal when the call returned, and changed before the next call of its thread ended"
    if wrong.first is not None:
        yield from _first_lines(wrong.first, record)


def _first_lines(first: FirstDifference, record: ThreadsRecord) -> Iterator[str]:
    launch, names = first.launch, wording.join_truncated(first.names, 4)
    head = f"  launch   {launch.id} {launch.kernel} "
    match first.kind:
        case DifferenceKind.WROTE:
            when = "before and after it" if first.looked_after else "before it"
            yield f"{head}wrote other values to {names}; what it reads was the same as alone {when}"
        case DifferenceKind.MEANWHILE:
            yield f"{head}wrote other values; {names}, which it only reads, changed while it ran"
        case DifferenceKind.UNKNOWN:
            yield f"{head}wrote other values to {names}; not all that it read is recorded"
        case DifferenceKind.GIVEN:
            yield f"{head}read other values in {names}, which no launch of this call had written"
        case DifferenceKind.READ:
            assert first.writer is not None
            written = f"{first.writer.id} {first.writer.kernel} had written the same as alone"
            yield f"{head}read other values in {names}; {written}"
    yield from (f"  model    {line.place}  {line.text.strip()}" for line in launch.site.provenance.source[:1])
    sharing = [one for one in first.beside if one.shares]
    for one in sharing[:_MAX_BESIDE]:
        yield f"  beside   {_of_thread(one.launch, record)} wrote {one.shares} to the same memory meanwhile"
    others = sorted(
        (one for one in first.beside if not one.shares), key=lambda one: one.launch.site.id != launch.site.id
    )
    if others:
        listed = wording.join_truncated([_of_thread(one.launch, record) for one in others], _MAX_BESIDE)
        yield f"  beside   {listed} ran at the same time"
    if not first.beside:
        yield "  beside   no launch of another thread ran at the same time"


def _of_thread(launch: Launch, record: ThreadsRecord) -> str:
    return f"{launch.id} {launch.kernel} of thread {record.thread_number(launch.thread)}"


def _unknown_lines(run: RunDir) -> list[str]:
    if run.level not in recording_settings.WITH_HASHES:
        level = recording_settings.written_level(run.level)
        return [f"  launch   not known: level {level} records no values; --level hash does"]
    return ["  launch   not known: what was recorded of the launches of these calls is the same as alone"]


def _element(element: OutputElement, run: RunDir, other: str) -> str:
    variables = run.manifest.outputs
    named = element.output < len(variables) and variables[element.output]
    output = f"output {element.output} ({variables[element.output]})" if named else f"output {element.output}"
    expected, actual = element.values
    if not element.elements:
        return f"{output} is {actual}, {other} {expected}"
    index = f"[{', '.join(map(str, element.index))}]" if element.index else ""
    different = f"{element.different} of {wording.pluralize(element.elements, 'element')} differ"
    return f"{output}{index} is {actual}, {other} {expected}; {different}"

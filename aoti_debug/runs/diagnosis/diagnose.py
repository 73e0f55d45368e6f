"""Diagnoses how a run ended: the launch that caused it, and how certain that is.

Two records are used: the journal (the state of the host) and the breadcrumbs (the launches that the device completed).
A device error is reported late, by a later call of the host; the first launch that the device had not completed caused
it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from aoti_debug.base import wording
from aoti_debug.base.abi import FaultDomain, NoteCode, Variable
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.native import crash_stacks, exception_text
from aoti_debug.base.native.frames import is_of_openmp, is_recording, without_compiled_folders
from aoti_debug.package.launch_traits import traits_of
from aoti_debug.package.manifest import Site
from aoti_debug.runs.diagnosis import suggested_commands
from aoti_debug.runs.diagnosis.verdict import ASYNCHRONOUS, Proof, Verdict, signal_text
from aoti_debug.runs.diagnosis.verdict_text import headline
from aoti_debug.runs.rundir.breadcrumbs import Crumb, Crumbs
from aoti_debug.runs.rundir.formats.journal_records import FaultRecord
from aoti_debug.runs.rundir.launch import Launch, LaunchStatus
from aoti_debug.runs.rundir.run_directory import GPU_CORE, RunDir
from aoti_debug.runs.rundir.run_json import ExitKind, RunStage

CRASHES = frozenset({"SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL"})
DEATHS = CRASHES | {"SIGABRT"}  # signals whose stack is caught


def diagnose(run: RunDir) -> Verdict | None:
    """Diagnoses a run; None if it ended cleanly, is still running, or a watchpoint stopped it."""
    if not run.state.is_failure:
        return None
    case = _Case(run)
    of_device = case.device_error()
    finding = case.as_far_as_read(of_device or case.host_error())
    if of_device is None or not of_device.suspects or case.crumbs is None:  # which the device itself has written
        finding = case.as_far_as_recorded(finding)
    return Verdict(
        what=finding.what,
        headline=headline(run, finding.what, finding.proof, finding.suspects, finding.why),
        proof=finding.proof,
        suspects=finding.suspects,
        why=finding.why,
        surfaced=finding.surfaced if finding.surfaced not in finding.suspects else None,
        next_commands=(
            *suggested_commands.gpu_core(run),
            *suggested_commands.after_failure(
                run, finding.suspects, finding.narrow, level=3 if case.has_lost_records else 1
            ),
        ),
        frames=case.frames(finding),
        hangs=run.state is ExitKind.TIMEOUT,
        waits=() if case.caught is None else case.caught.waits({x.thread: x.id for x in case.open}),
    )


@dataclass(frozen=True)
class _Finding:
    what: str
    proof: Proof
    suspects: tuple[Launch, ...]
    why: str
    surfaced: Launch | None = None
    narrow: str = ""  # the environment variable that narrows the range
    fault: FaultRecord | None = None  # what a launch reported


class _Case:
    def __init__(self, run: RunDir) -> None:
        self.run = run
        self.exit = run.info.exit
        self.launches = run.launches
        self.faults = run.timeline.faults
        captured = run.timeline.calls if run.timeline.calls.has_graphs else ()
        self.captured = frozenset((x.kind, x.call) for x in captured if x.capturing)
        self.open = run.launches.of_status(LaunchStatus.OPEN)
        self.on_device = run.manifest.device != "cpu"
        self.caught = crash_stacks.read(run.path) or (crash_stacks.decode(run.path) if run.is_made_here else None)
        # The exit contains the signal, unless the parent process died too.
        vanished = run.state is ExitKind.ABORTED and not self.exit.signal
        died = self.caught.died if self.caught is not None else None
        self.died = died if vanished or self.exit.signal in DEATHS else None
        self.signal = self.exit.signal or (self.died.signal if self.died is not None else "")
        calls = len(run.manifest.unrecognised)
        self.unparsed = f"{wording.pluralize(calls, 'call')} that the build did not parse" if calls else ""

    def as_far_as_read(self, finding: _Finding) -> _Finding:
        """The finding without a place, where the records that lead to it are not all that there were."""
        journal = self.run.journal
        if journal is None or not journal.is_incomplete or finding.fault is not None:
            return finding
        last = (
            f"the last launch that can be read is {self.launches[-1].id}" if self.launches else "no launch can be read"
        )
        return replace(
            finding,
            proof=Proof.NONE,
            suspects=(),
            why=f"{last}; the journal is damaged or cut off: the launch that it happened in may be missing",
        )

    def as_far_as_recorded(self, finding: _Finding) -> _Finding:
        """The finding without a place, where the process went on after its recording had stopped."""
        if not self.has_lost_records or finding.fault is not None:
            return finding
        why = self._note(NoteCode.RECORDING_STOPPED) or "recording stopped"
        why += f", at launch {self.launches[-1].id}" if self.launches else ""
        return replace(finding, proof=Proof.NONE, suspects=(), why=f"{why}; the model went on after that")

    @property
    def has_lost_records(self) -> bool:
        """Whether launches ran after the recording had stopped."""
        return self.run.journal is not None and self.run.journal.header.lost_records > 0

    # What the device did

    @cached_property
    def crumbs(self) -> Crumbs | None:
        """The breadcrumbs; None where the driver wrote a core dump: then launches after the failed one complete."""
        may_be_dumped = self._note(NoteCode.GPU_CORE) and self.run.state is not ExitKind.TIMEOUT
        return None if may_be_dumped or (self.run.path / GPU_CORE).exists() else self.run.crumbs

    @cached_property
    def crumb_of(self) -> dict[int, Crumb]:
        """The breadcrumb by stream slot."""
        return {crumb.stream_slot: crumb for crumb in self.crumbs.crumbs} if self.crumbs else {}

    def device_error(self) -> _Finding | None:
        """The finding of a kernel that failed or hangs on the device; None without evidence of one."""
        if not self.on_device:
            return None
        fault = next((f for f in self.faults if f.domain is FaultDomain.CUDA and f.code in ASYNCHRONOUS), None)
        code = self.exit.code if fault is None else fault.code
        is_of_dump = self.run.state is ExitKind.TIMEOUT and self.crumbs is None  # which ends the kernel that hangs
        if code in ASYNCHRONOUS and not is_of_dump:
            surfaced = self._launch_of(fault) or (self.open[-1] if self.open else None)
            finding = self._first_incomplete(f"CUDA error {code}: {ASYNCHRONOUS[code]}", Proof.CERTAIN, surfaced)
            return finding or self._elsewhere(f"CUDA error {code}: {ASYNCHRONOUS[code]}", surfaced)
        if self.exit.stage is RunStage.SYNCHRONISE and self.exit.exception:
            return self._first_incomplete(self.exit.detail, Proof.CERTAIN) or self._elsewhere(self.exit.detail)
        if self.run.state is ExitKind.TIMEOUT:
            return self._first_incomplete(self._ending(), Proof.CERTAIN)
        if self.signal == "SIGABRT" and self._is_elsewhere(self.open):  # NCCL's watchdog, which has seen an error
            return self._first_incomplete(self._ending(), Proof.LIKELY)
        if self.exit.exception or self.open or self.faults or self.exit.signal in CRASHES:
            return None
        return self._first_incomplete(self._ending(), Proof.LIKELY)

    def _elsewhere(self, what: str, surfaced: Launch | None = None) -> _Finding:
        why = "the device had completed every recorded launch: the error may come from work outside of the package"
        untraced = next((x for x in self.launches if self._is_untraced(x)), None) if self.captured else None
        if untraced is not None:
            why += f", or from a replay of {wording.graph_of(untraced.key.call)} ({self._why_no_crumbs()})"
        why += f", or from one of {self.unparsed}" if self.unparsed else ""
        return _Finding(what, Proof.NONE, (), why, surfaced)

    def _first_incomplete(self, what: str, proof: Proof, surfaced: Launch | None = None) -> _Finding | None:
        """The first launch that the device had not completed; None if it had completed all.

        Args:
            proof: the proof of the finding if the launch is unique.
            surfaced: the launch in which the error was reported: no later launch can have caused it.
        """
        per_stream: dict[int, _Stream] = {}
        for launch in self.launches:
            if surfaced is not None and launch.begin_ns > surfaced.begin_ns:
                break
            if self.crumb_of and self._is_untraced(launch):
                continue
            stream = per_stream.get(launch.stream_slot)
            if stream is None:
                stream = per_stream[launch.stream_slot] = _Stream(self.crumb_of.get(launch.stream_slot))
            stream.add(launch)
        suspects = tuple(sorted(itertools.chain(*(x.suspects for x in per_stream.values())), key=lambda x: x.begin_ns))
        waiting = () if self.crumbs is None else _waiting(suspects, self.run.manifest.sites)
        suspects = tuple(launch for launch in suspects if launch not in waiting)
        streams = len({launch.stream_slot for launch in suspects})
        if not suspects:
            return None
        first = suspects[0]
        if self.crumbs is None:
            why = f"no breadcrumbs say what the device had completed ({self._why_no_crumbs()})"
            return _Finding(what, Proof.RANGE, suspects, why, surfaced, "CUDA_LAUNCH_BLOCKING")
        if streams > 1:
            why = f"{streams} streams had launches that the device had not completed"
            return _Finding(what, Proof.RANGE, suspects, why, surfaced, "CUDA_LAUNCH_BLOCKING")
        if len(suspects) > 1:
            last = suspects[-1]
            why = f"the device had completed every launch before {first.id}; no breadcrumb follows up to {last.id}"
            why += self._replay_of(first)
            return _Finding(what, Proof.RANGE, suspects, why, surfaced, Variable.CRUMB_EVERY.value)
        why = f"the device had completed every launch before {first.id}, and not {first.id}{self._replay_of(first)}"
        if waiting:
            why += f"; {waiting[0].id} on another stream waited for it"
        if self.unparsed:
            return _Finding(
                what, Proof.LIKELY, suspects, f"{why}; one of {self.unparsed} may have failed before it", surfaced
            )
        return _Finding(what, proof, suspects, why, surfaced)

    def _is_captured(self, launch: Launch) -> bool:
        return (launch.key.kind, launch.key.call) in self.captured

    def _is_untraced(self, launch: Launch) -> bool:
        """True of a launch in a CUDA graph of whose replays no breadcrumb tells; capturing it ran nothing."""
        return self._is_captured(launch) and launch.stream_slot not in self.crumb_of

    def _replay_of(self, launch: Launch) -> str:
        """ ", in replay 2 of the CUDA graph of call 0" of a launch; "" if its call was not captured."""
        if not self._is_captured(launch):
            return ""
        number = self.crumb_of[launch.stream_slot].replays
        call = launch.key.call
        return f", in {wording.replay_of(number, call) if number else f'a replay of {wording.graph_of(call)}'}"

    def _why_no_crumbs(self) -> str:
        return self._note(NoteCode.CRUMBS_OFF) or self._note(NoteCode.GPU_CORE) or "crumbs.bin is missing"

    def _note(self, code: NoteCode) -> str:
        """The first note of a subject; "" without one."""
        return next((note.text for note in self.run.timeline.notes if note.code is code), "")

    # What the host did

    def host_error(self) -> _Finding:
        """The finding of a failure on the host: within a launch, by an error that a launch reported, or elsewhere."""
        what = self._ending()
        ended_itself = self.run.state is ExitKind.FAULT and not self.exit.signal
        if self.open and not (ended_itself and self.faults):
            return self._within_a_launch(what)
        fault = self._fault()
        launch = self._launch_of(fault)
        if fault is None:
            return self._outside(what)
        if launch is None and fault.domain is FaultDomain.EXCEPTION and self.exit.exception:
            return self._outside(what)  # the record does not have the words of the exception
        text = self._fault_text(fault)
        if launch is None:
            return _Finding(text, Proof.NONE, (), f"it was noticed at the end of call {fault.call}, in no launch")
        cause = {
            FaultDomain.EXCEPTION: f"launch {launch.id} raised an exception",
            FaultDomain.SHIM: f"it returned error code {fault.code}",
            FaultDomain.CUDA: "the driver refused it",
        }[fault.domain]
        call = next((c for c in self.run.timeline.calls if (c.kind, c.call) == (fault.kind, fault.call)), None)
        went_on = call is not None and call.ended and not call.failed
        why = f"{cause}, which the generated code does not check: the model went on" if went_on else cause
        return _Finding(text, Proof.CERTAIN, (launch,), why, fault=fault)

    def _within_a_launch(self, what: str) -> _Finding:
        innermost = {launch.thread: launch for launch in self.open}
        suspects = tuple(innermost.values())
        killed = self.run.state is ExitKind.ABORTED and (self.died is None or self.died.signal not in DEATHS)
        guilty = None if self.died is None else innermost.get(self.died.thread)
        why = f"launch {suspects[0].id} began and never returned"
        if len(suspects) > 1:
            why = f"{len(suspects)} threads were within a launch; "
            if guilty is None:
                return _Finding(what, Proof.RANGE, suspects, why + "nothing says which of them failed")
            why += "the signal came in the one that ran this launch"
            suspects, killed = (guilty,), False
        doubt = self._doubt(suspects[0])
        return _Finding(what, Proof.LIKELY if killed or doubt else Proof.CERTAIN, suspects, why + doubt)

    def _doubt(self, launch: Launch) -> str:
        """The reason why a signal may have nothing to do with the launch that was open, after "; "; "" without one."""
        if self.died is not None and is_recording(self.died.frames):
            return "; it was being recorded: an earlier launch may have damaged memory, or a tensor may have none"
        if self.died is None or not self._is_elsewhere((launch,)):
            return ""
        return f"; the signal came in another thread, {self.died.thread}, which may have nothing to do with it"

    def _is_elsewhere(self, launches: Sequence[Launch]) -> bool:
        """True if the signal came in a thread that ran none of the launches, and no part of one either."""
        died = self.died if launches else None
        return died is not None and died.thread not in {x.thread for x in launches} and not is_of_openmp(died.frames)

    def _fault(self) -> FaultRecord | None:
        """The fault that ended the model, or the first one if the model went on.

        Of several in one call the first caused the others: generated code does not check every call, and goes on
        without the result.
        """
        located = [f for f in self.faults if f.launch is not None] or list(self.faults)
        if not located:
            return None
        if not (self.exit.exception or self.exit.signal):
            return located[0]
        last = located[-1]
        return next(f for f in located if (f.kind, f.call) == (last.kind, last.call))

    def _outside(self, what: str) -> _Finding:
        if self.run.level == 0:
            why = "level 0 records nothing"
        elif not self.launches:
            why = "it happened before the first launch"
        elif self.exit.stage in (RunStage.SYNCHRONISE, RunStage.UNLOAD):
            why = f"it happened after the last call; every launch had returned, {self.launches[-1].id} last"
        elif all(call.ended for call in self.run.timeline.calls):
            why = f"it happened outside of the model's calls; all had ended, {self.launches[-1].id} was the last launch"
        else:
            why = f"it happened between launches; {self.launches[-1].id} was the last one to return"
            why += f"; it may have happened in one of {self.unparsed}" if self.unparsed else ""
        return _Finding(what, Proof.NONE, (), why)

    def _ending(self) -> str:
        match self.run.state:
            case ExitKind.TIMEOUT:
                return f"no end: {self.exit.detail}" if self.exit.detail else "no end in time"
            case ExitKind.ABORTED if not self.signal:
                return self.exit.detail or "the process vanished"
            case _:
                words = exception_text.abort_message(self.run.path) if self.signal == "SIGABRT" else ""
                text = signal_text(self.signal) or exception_text.message(self.exit.detail) or "a fault"
                return without_compiled_folders(f"{text}: {words}" if words else text)

    def frames(self, finding: _Finding) -> tuple[str, ...]:
        """The call stack of the host, if the host failed or hung: in an open launch, or outside of any launch."""
        open_threads = [launch.thread for launch in finding.suspects if launch.status is LaunchStatus.OPEN]
        died = self.died is not None and (open_threads or not finding.suspects)
        if self.caught is not None and (died or (self.run.state is ExitKind.TIMEOUT and open_threads)):
            return self.caught.useful(open_threads)
        if finding.fault is not None and finding.fault.domain is not FaultDomain.CUDA:
            return exception_text.frames(self._shim_text(finding.fault)) or exception_text.frames(self.exit.detail)
        return ()

    def _fault_text(self, fault: FaultRecord) -> str:
        if fault.domain is FaultDomain.CUDA:
            return f"CUDA error {fault.code}: {fault.text}" if fault.text else f"CUDA error {fault.code}"
        text = exception_text.message(self._shim_text(fault))
        return without_compiled_folders(text) or f"error code {fault.code}"

    def _shim_text(self, fault: FaultRecord) -> str:
        """The text of an error, which torch's C shim may have logged only."""
        is_logged = fault.domain is FaultDomain.SHIM and not fault.text
        return exception_text.shim_exception(self.run.path) if is_logged else fault.text

    def _launch_of(self, fault: FaultRecord | None) -> Launch | None:
        return None if fault is None or fault.launch is None else self.launches.find(fault.launch)


class _Stream:
    """One stream, whose launches are added in their order.

    Attributes:
        suspects: one of these launches is the first that the device had not completed.
    """

    def __init__(self, crumb: Crumb | None) -> None:
        """`crumb`: the progress of the stream; None: no breadcrumbs are written for it."""
        self.suspects: list[Launch] = []
        self._crumb = crumb
        self._last: Launch | None = None  # that is not proved to be completed
        self._is_closed = False

    def add(self, launch: Launch) -> None:
        """Adds the next launch."""
        if self._crumb is not None and self._crumb.has_completed(launch.sequence):
            return
        last, self._last = self._last, launch
        if _host_waited(launch):
            self.suspects.clear()
            self._is_closed = False
            return
        if self.suspects and self._crumb is not None and last is not None and _breadcrumb_between(last, launch):
            self._is_closed = True
        if not self._is_closed and launch.status is not LaunchStatus.NOT_STARTED:
            self.suspects.append(launch)


def _waiting(suspects: Sequence[Launch], sites: Sequence[Site]) -> tuple[Launch, ...]:
    """The launches that had not begun: they wait for one of another stream that was not completed.

    The event that they wait for comes behind the breadcrumb of that one.
    """
    firsts = {launch.stream_slot: launch for launch in reversed(suspects)}.values()
    return tuple(x for x in suspects if any(other.breadcrumb and _waits_for(x, other, sites) for other in firsts))


def _waits_for(launch: Launch, other: Launch, sites: Sequence[Site]) -> bool:
    """True if a launch begins only when one of another stream, of the same call, has ended."""
    ended = (sites[site] for site in launch.site.waits_for)
    is_same_call = (launch.key.kind, launch.key.call) == (other.key.kind, other.key.call)
    return is_same_call and any(x.stream == other.site.stream and other.site.id <= x.id for x in ended)


def _breadcrumb_between(launch: Launch, following: Launch) -> bool:
    """True if the device was asked to write a breadcrumb after a launch: the last one of a call always has one."""
    return launch.breadcrumb or launch.key.call != following.key.call


def _host_waited(launch: Launch) -> bool:
    """True if the host has read a result of the launch, so that the device had completed it."""
    return traits_of(launch.site.kind).waits_for_device and launch.status is LaunchStatus.RETURNED

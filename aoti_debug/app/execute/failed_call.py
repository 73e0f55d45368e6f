"""The call that failed in a script that has ended, its package, and the file of its inputs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from aoti_debug.app.execute import kept_inputs, kept_weights
from aoti_debug.app.execute.call_file import KeptCall, KeptEnd
from aoti_debug.app.execute.kept_inputs import NOT_FINITE
from aoti_debug.app.execute.kept_weights import WeightsInForce
from aoti_debug.base.abi import CallKind
from aoti_debug.base.frozen import dataclass
from aoti_debug.package.manifest import MEMBER, Manifest
from aoti_debug.package.pt2 import archive
from aoti_debug.runs.diagnosis.diagnosed_run import DiagnosedRun
from aoti_debug.runs.diagnosis.verdict import Proof
from aoti_debug.runs.rundir import run_directory, run_json
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.run_json import RunInfo

NOTHING_SEEN = "nothing was seen in it"
MAX_CAUGHT = 3  # whose inputs are written
_FROZEN = "_frozen_param"  # begins the names that torch's constant folding gives
_NOT_FINITE, _RAISED, _OPEN, _SUSPECTED, _CRASHED = range(2, 7)  # weights of evidence


@dataclass(frozen=True)
class CalledPackage:
    """A run of an instrumented package in the process of a script, and the calls whose inputs were kept.

    Attributes:
        package: None if it was not found.
        caught: the numbers of calls that were refused before they launched anything, with exceptions that were caught.
    """

    ended: DiagnosedRun
    package: Path | None
    calls: tuple[KeptCall, ...]
    caught: frozenset[int] = frozenset()

    @property
    def run(self) -> RunDir:
        """Its run."""
        return self.ended.run

    @property
    def process(self) -> int:
        """The number of its process."""
        return self.run.info.pid if self.run.journal is None else self.run.journal.header.pid

    @property
    def uncaught(self) -> tuple[KeptCall, ...]:
        """The calls that were kept, without those whose exceptions were caught."""
        return tuple(call for call in self.calls if call.number not in self.caught)


@dataclass(frozen=True)
class CaughtCall:
    """A call that was refused with an exception, after which the script went on.

    Attributes:
        number: of the call, from 0.
        error: "RuntimeError: …", the first line.
        inputs: their file; None where they were not written.
    """

    package: Path
    number: int
    error: str
    inputs: Path | None


@dataclass(frozen=True)
class FailedCall:
    """A call to look into.

    Attributes:
        package: the instrumented package, with the weights that the script has given it.
        number: of the call, from 0; None if its inputs were not kept.
        inputs: their file.
        why: what is known of the call: "its results are not finite".
        is_not_finite: its results are not finite, and the script went on.
        has_returned: it returned results to the script.
        has_other_weights: the script had replaced weights, and they were not kept: the package has its own.
        given: the names of weights that the script had given it after it was loaded, and that the package has.
        frozen: what torch computed from weights when it compiled the package (`freezing`) and the script has left,
            where it had replaced weights.
        packages: that the script has called.
        others: where nothing was seen in any package, the last call of each other one.
        earlier: of a call that did not return, the first one of its package that did, with results that are finite.
        caught: refused calls of any package whose exceptions the script caught; it may be one of them.
        other_not_finite: where this call raised, the first one of its package that returned what is not finite.
    """

    run: RunDir
    package: Path
    number: int | None
    inputs: Path | None
    why: str
    is_not_finite: bool = False
    has_returned: bool = False
    has_other_weights: bool = False
    given: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    packages: int = 1
    others: tuple[FailedCall, ...] = ()
    earlier: FailedCall | None = None
    caught: tuple[CaughtCall, ...] = ()
    other_not_finite: FailedCall | None = None

    def moved(self, old: Path, new: Path) -> FailedCall:
        """The call and its others when a directory was moved, in which their runs may lie.

        Raises:
            RunDirError: the records of a run cannot be read.
        """
        others = tuple(other.moved(old, new) for other in self.others)
        earlier, other = (one and one.moved(old, new) for one in (self.earlier, self.other_not_finite))
        moved = replace(self, others=others, earlier=earlier, other_not_finite=other)
        if not self.run.path.is_relative_to(old):
            return moved
        place = new / self.run.path.relative_to(old)
        inputs = None if self.inputs is None else place / self.inputs.name
        caught = tuple(
            replace(call, inputs=None if call.inputs is None else place / call.inputs.name) for call in self.caught
        )
        return replace(moved, run=run_directory.open_run(place), inputs=inputs, caught=caught)


def called_packages(path: Path, ended: Sequence[DiagnosedRun]) -> tuple[CalledPackage, ...]:
    """Joins runs with their packages and the inputs that were kept.

    Args:
        path: the run directory of the process.
        ended: the runs, in the order in which they began.
    """
    packages: defaultdict[bytes, list[Path]] = defaultdict(list)  # processes may have instrumented one in equal ways
    for file in sorted((path / run_directory.PACKAGES).glob("*.pt2")):
        packages[_manifest(file)].append(file)
    orders: defaultdict[tuple[int, Path], count[int]] = defaultdict(count)
    found = []
    for one in ended:
        files = packages[(one.run.path / run_directory.MANIFEST).read_bytes()]
        process = CalledPackage(one, None, ()).process
        called = (file for file in files if kept_inputs.kept_calls(path, process, file.stem, 0))
        package = next(called, files[0] if files else None)
        calls: list[KeptCall] = []
        if package is not None:
            calls = kept_inputs.kept_calls(path, process, package.stem, next(orders[process, package]))
        found.append(CalledPackage(one, package, tuple(calls)))
    return tuple(found)


def with_caught(
    called: Sequence[CalledPackage], process: int, exit_code: int, *, is_ended_by_error: bool
) -> tuple[CalledPackage, ...]:
    """The packages with the calls of a process that were refused, and whose exceptions it caught.

    All of them if its exit code is 0; all but the last call that raised if an exception of a model ended it; otherwise
    that is not known, and counts as none. Exceptions in other threads end no process: nor is it known of those. A call
    that had launched something has failed, whether that was caught or not: a server catches everything.

    Args:
        process: the script's own.
    """
    own = [one for one in called if one.process == process]
    began = (call.began for one in own for call in one.calls if call.end is KeptEnd.RAISED)
    last = max(began, default=None) if is_ended_by_error else None
    if exit_code and last is None:
        return tuple(called)
    files = {call.file for one in own for call in _refused(one) if call.began != last and _is_in_main_thread(call)}
    return tuple(
        replace(one, caught=frozenset(call.number for call in one.calls if call.file in files)) for one in called
    )


def _refused(called: CalledPackage) -> Iterator[KeptCall]:
    """Yields the calls that raised an exception before anything was launched; none where that cannot be told."""
    if not called.run.manifest.inputs:  # which call of the run is which is not known after one with too many inputs
        return
    launched, begun = {launch.key.call for launch in called.run.launches}, dict(_begun(called))
    for call in called.calls:
        if call.end is KeptEnd.RAISED and begun.get(call) not in launched:
            yield call


def _is_in_main_thread(call: KeptCall) -> bool:
    return call.raised is not None and call.raised.is_in_main_thread


def keep_refused_call(path: Path, info: RunInfo) -> None:
    """Makes a run, without launches, of the first package of a script that refused its only calls before it launched.

    So torch does of a wrong number of inputs: nothing is recorded of such a call but its inputs.

    Args:
        path: the run directory of the script, which has no run yet, or that of another package.
        info: of the script's own process, which comes before those that it has started.
    """
    name = run_directory.MANIFEST
    recorded = [file.read_bytes() for file in (*path.glob(name), *path.glob(f"process-*/{name}"))]
    for process in sorted(kept_inputs.processes(path), key=lambda process: process != info.pid):
        for file in sorted((path / run_directory.PACKAGES).glob("*.pt2")):
            calls = kept_inputs.kept_calls(path, process, file.stem, 0)
            manifest = _manifest(file) if calls and all(call.end is KeptEnd.RAISED for call in calls) else None
            if manifest is None or manifest in recorded:
                continue
            folder = path / f"process-{process}-{len(recorded)}" if recorded else path
            folder.mkdir(exist_ok=True)
            run_json.write(replace(info, pid=process), folder)
            (folder / name).write_bytes(manifest)
            return


def manifest_beside(package: Path) -> Path:
    """The file of the manifest of a package that holds none, as its calls are interposed."""
    return package.with_suffix(".json")


def _manifest(package: Path) -> bytes:
    beside = manifest_beside(package)
    return beside.read_bytes() if beside.exists() else archive.inspect(package).read(MEMBER)


def failed_call(called: Sequence[CalledPackage]) -> FailedCall | None:
    """The call that failed, or else the last one of the first package; None where no package was found.

    The file of its inputs is written into its run directory.
    """
    known = [one for one in called if one.package is not None]
    if not known:
        return None
    chosen = max(known, key=_order)  # the first of equal ones
    call, why = _call_in_question(chosen)
    found = replace(
        _call_of(chosen, call, why),
        packages=len({one.package for one in known}),
        others=() if _evidence(chosen) else _others(known, chosen),
        earlier=None if call is None else _earlier(chosen, call),
        other_not_finite=_other_not_finite(chosen, call),
    )
    return replace(found, caught=tuple(_caught(known, found)))


def _earlier(called: CalledPackage, call: KeptCall) -> FailedCall | None:
    """The first call before one that did not return, with results that are finite; None if there is none."""
    if call.end is KeptEnd.RETURNED:
        return None
    before = [one for one in called.calls if one.number < call.number and one.end is KeptEnd.RETURNED]
    found = next((one for one in before if one.file.name != NOT_FINITE), None)
    return None if found is None else _call_of(called, found, "it returned")


def _other_not_finite(called: CalledPackage, call: KeptCall | None) -> FailedCall | None:
    """The first call with results that are not finite, where another one raised; None if there is none."""
    found = _not_finite(called) if call is not None and call.end is KeptEnd.RAISED else None
    return None if found is None else _call_of(called, found, "its results are not finite")


def _caught(known: Sequence[CalledPackage], found: FailedCall) -> Iterator[CaughtCall]:
    """Yields the calls whose exceptions were caught; the inputs of the first ones are written beside the run."""
    calls = [(one.package, call) for one in known for call in one.calls if call.number in one.caught]
    for at, (package, call) in enumerate(calls):
        assert package is not None
        is_written = at < MAX_CAUGHT and (package, call.number) != (found.package, found.number)
        name = f"caught-{package.stem}-{call.number}.pt"
        inputs = _written(call, package, found.run.path / name) if is_written else None
        yield CaughtCall(package, call.number, "" if call.raised is None else call.raised.error, inputs)


def _call_of(called: CalledPackage, call: KeptCall | None, why: str) -> FailedCall:
    """A call of a package that was found; None: the inputs of none were kept."""
    assert called.package is not None
    if call is None:
        return FailedCall(called.run, called.package, None, None, why)
    weights = kept_weights.of_call(call.file.parent, call.number)
    package, has_other_weights = _with_weights(called.package, call, weights)
    given = () if weights is None else tuple(sorted(weights.names))
    return FailedCall(
        run=called.run,
        package=package,
        number=call.number,
        inputs=_written(call, called.package, called.run.path / f"call-{call.number}.pt"),
        why=why,
        is_not_finite=call.file.name == NOT_FINITE,
        has_returned=call.end is KeptEnd.RETURNED,
        has_other_weights=has_other_weights,
        given=given,
        frozen=_frozen(given, called.run.manifest),
    )


def _with_weights(package: Path, call: KeptCall, weights: WeightsInForce | None) -> tuple[Path, bool]:
    """A package with the weights that the script had given it in a call, and True if it has others in spite of that."""
    is_alone = manifest_beside(package).exists()  # and loaded as it is
    if weights is None or is_alone or weights.is_of_package:
        return package, weights is None or not weights.is_of_package
    output = package.with_name(f"{package.stem}-call-{call.number}{package.suffix}")
    return kept_weights.with_weights(package, weights, output), False


def _frozen(given: Sequence[str], manifest: Manifest) -> tuple[str, ...]:
    """What torch computed from weights when it compiled a package, and has kept while the script replaced weights."""
    frozen = (constant for constant in manifest.constants if given and constant.fqn.startswith(_FROZEN))
    return tuple(constant.fqn for constant in frozen if not {constant.fqn, constant.name} & set(given))


def _others(known: Sequence[CalledPackage], chosen: CalledPackage) -> tuple[FailedCall, ...]:
    """The last calls of the other packages."""
    by_package = {one.package: one for one in reversed(known) if one.package != chosen.package}
    return tuple(_call_of(one, _last(one), NOTHING_SEEN) for one in reversed(by_package.values()))


def _order(called: CalledPackage) -> tuple[int, int]:
    """Puts the package that failed last: of those with equal evidence, the one whose call began first.

    Without evidence, one whose calls were kept comes after the others.
    """
    evidence = _evidence(called)
    if not evidence:
        return 0, len(called.calls[:1])
    find = {_RAISED: _raised, _NOT_FINITE: _not_finite}.get(evidence)
    call = None if find is None else find(called)
    return evidence, 0 if call is None else -call.began


def _evidence(called: CalledPackage) -> int:
    """The weight of what says that it was this package that failed."""
    verdict = called.ended.verdict
    if verdict is not None and verdict.suspects:
        return _CRASHED if verdict.proof is Proof.CERTAIN else _SUSPECTED  # the process may have been ended there
    if verdict is not None and any(not call.ended for call in called.run.timeline.calls):
        return _OPEN
    if _raised(called) is not None:
        return _RAISED
    if _not_finite(called) is not None:
        return _NOT_FINITE
    return int(verdict is not None)


def _call_in_question(called: CalledPackage) -> tuple[KeptCall | None, str]:
    """The call that failed, if its inputs were kept, and what is known of it."""
    verdict, not_finite = called.ended.verdict, _not_finite(called)
    if verdict is None:
        raised = _raised(called)
        if raised is not None:
            return raised, "it raised an exception"
        if not_finite is not None:
            return not_finite, "its results are not finite"
        return _last(called), NOTHING_SEEN
    numbers = [launch.key.call for launch in verdict.suspects if launch.key.kind is CallKind.MODEL]
    guilty = next((call for call, in_run in _begun(called) if in_run in numbers), None)
    is_outside = not verdict.suspects and called.run.timeline.calls and all(x.ended for x in called.run.timeline.calls)
    return guilty or _last(called), f"{verdict.what}, outside of its calls" if is_outside else verdict.what


def _begun(called: CalledPackage) -> Iterator[tuple[KeptCall, int]]:
    """The calls that the model began, with their numbers in the run: one with a wrong number of inputs is refused."""
    takes = len(called.run.manifest.inputs)
    raised = [call for call in called.calls if call.end is KeptEnd.RAISED]
    refused = {call.number for call in raised if takes and len(call.tensors()) != takes}
    for call in called.calls:
        if call.number not in refused:
            yield call, call.number - sum(number < call.number for number in refused)


def _raised(called: CalledPackage) -> KeptCall | None:
    return next((call for call in called.uncaught if call.end is KeptEnd.RAISED), None)


def _not_finite(called: CalledPackage) -> KeptCall | None:
    return next((call for call in called.calls if call.file.name == NOT_FINITE), None)


def _last(called: CalledPackage) -> KeptCall | None:
    """The call that did not return, or the last one; one whose exception was caught only where there is no other."""
    calls = called.uncaught or called.calls
    return max(calls, key=lambda call: (call.end is not KeptEnd.RETURNED, call.number), default=None)


def _written(call: KeptCall, package: Path, path: Path) -> Path:
    """Writes the inputs of a call as a file for `--inputs`."""
    import torch

    values: Any = tuple(call.tensors())
    if not manifest_beside(package).exists():  # of others, the structure of the inputs is not known before they run
        from aoti_debug.package.inputs import input_files  # only a call that failed needs it

        signature = input_files.read_signature(archive.inspect(package))
        positions = [str(position) for position, leaf in enumerate(signature.leaves) if leaf.is_tensor]
        is_taken = len(positions) == len(values)  # a script may pass a runner another number
        values = dict(zip(positions, values, strict=True)) if signature.in_spec and is_taken else values
    torch.save(values, path)
    return path

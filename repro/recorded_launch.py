"""One recorded launch, as a repro needs it: found in a run that is trusted, with its values and saved tensors."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aoti_debug.base.abi import Phase, SaveStatus, Variable
from aoti_debug.base.errors import ArtifactError, RunDirError, UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.version import __version__
from aoti_debug.package.argument_values import Absent, Tensor, Value
from aoti_debug.package.launch_traits import traits_of
from aoti_debug.package.manifest import Arg, Form, Kernel, Site
from aoti_debug.package.pt2 import archive, trust
from aoti_debug.package.pt2.archive import printable
from aoti_debug.package.recording_settings import SiteFilter
from aoti_debug.runs.diagnosis.verdict import Verdict
from aoti_debug.runs.rundir.launch import Argument, Grid, Launch, LaunchStatus
from aoti_debug.runs.rundir.run_directory import RunDir, is_launch_id, name_hint
from aoti_debug.runs.rundir.run_json import EMBEDDED

_SHORTENED = "…"  # in the middle of a name that a table has no room for
_LINE = re.compile(r"[^:]+:\d+")
_PATTERN = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class NamedLaunches:
    """The launches that a word names: the id, the kernel or the line of the model, as `aoti-debug show` prints them.

    Attributes:
        is_one: it names one launch, or those of one kernel; False for a pattern, and for what several names begin with.
    """

    launches: tuple[Launch, ...]
    is_one: bool


def launches_named(run: RunDir, word: str) -> NamedLaunches | None:
    """The launches that a word names; None if it names none.

    Args:
        word: "0.3", "3", a kernel, a pattern (fnmatch), the beginning of a name, a name that was shortened, or
            "model.py:23".

    Raises:
        RunDirError: it is the id of a launch that the run does not have.
    """
    if is_launch_id(word):
        return NamedLaunches((run.launch(word),), is_one=True)
    for pattern in (word, word.replace(_SHORTENED, "*"), f"{word}*"):
        launches = run.launches_of(pattern)
        if launches:
            kernels = {launch.kernel for launch in launches}
            return NamedLaunches(launches, is_one=len(kernels) == 1 and (word in kernels or not _PATTERN.search(word)))
    if _LINE.fullmatch(word):
        sites = SiteFilter(lines=(word,)).site_ids(run.manifest.sites)
        launches = tuple(launch for launch in run.launches if launch.site.id in sites)
        return NamedLaunches(launches, is_one=False) if launches else None
    return None


def unknown_name(run: RunDir, word: str, what: str, others: Iterable[str] = ()) -> UsageError:
    """The error for a word that names no launch.

    Args:
        what: what it is not: "neither a kernel nor a launch".
        others: further names that would do.
    """
    known = tuple(dict.fromkeys((*run.kernels(), *(site.kernel for site in run.manifest.sites))))
    if word in known:
        return UsageError(f"{word} was not launched in run {run.path.name}", hint=name_hint(word, run.kernels()))
    return UsageError(
        f"{word!r} is {what} of run {run.path.name}", hint=name_hint(word, dict.fromkeys((*known, *others)))
    )


def find_launch(run: RunDir, word: str, launch: str | None, suspects: Sequence[Launch] = ()) -> Launch:
    """The launch that a word names: of several the one that is chosen, else one that is suspected, else the first.

    Args:
        word: as `launches_named` takes it; "" for what the run's fault is laid to.
        launch: "0.3", or None.
        suspects: the launches that the run's fault may be laid to.

    Raises:
        UsageError: the word names no launch of this run or those of several kernels, or the chosen launch is another.
        RunDirError: the run has no such launch.
    """
    if not word:
        return run.launch(launch) if launch is not None else _suspected(run, suspects)
    named = launches_named(run, word)
    if named is None:
        raise unknown_name(run, word, "neither a kernel nor a launch")
    launches = named.launches
    if launch is not None:
        chosen = run.launch(launch)
        if chosen not in launches:
            ids = ", ".join(x.id for x in launches[:8]) + (", …" if len(launches) > 8 else "")
            raise UsageError(f"launch {chosen.id} is of {chosen.kernel}", hint=f"{word} was launched as {ids}")
        return chosen
    suspected = next((x for x in suspects if x in launches), None)
    kernels = tuple(dict.fromkeys(x.kernel for x in launches))
    if suspected is None and len(kernels) > 1:
        raise UsageError(f"{word!r} names launches of {len(kernels)} kernels", hint=name_hint(word, kernels))
    return suspected or launches[0]


def _suspected(run: RunDir, suspects: Sequence[Launch]) -> Launch:
    if suspects:
        return suspects[0]
    raise UsageError(
        f"no launch of run {run.path.name} is known to be at fault", hint="name a kernel or a launch: aoti-debug show"
    )


def fault_of(launch: Launch, verdict: Verdict | None) -> str:
    """Returns the fault that a launch ended in, one line; "" if it ended well."""
    if verdict is not None and launch in verdict.suspects:
        return verdict.what.partition("\n")[0]
    if launch.status is LaunchStatus.FAILED:
        text = launch.fault.text.partition("\n")[0] if launch.fault else ""
        return text or f"error code {launch.returned}"
    return "it never returned" if launch.status is LaunchStatus.OPEN else ""


def again_hint(run: RunDir, launch: Launch) -> str:
    """The way to save the tensors of a launch in a program that the tool does not start."""
    from aoti_debug.runs.diagnosis import suggested_commands  # only an error needs it

    variables = {Variable.LAUNCH.value: launch.id}
    command = suggested_commands.run_again(run, level=1, environment=variables) if run.info.host == EMBEDDED else ()
    again = command[0] if command else f"run the model again with AOTI_DEBUG_LEVEL=1 AOTI_DEBUG_LAUNCH={launch.id}"
    return f"{again}, then aoti-debug repro"


def require_inputs(run: RunDir, launch: Launch) -> None:
    """Checks that a run may be repeated to save the tensors of a launch.

    Raises:
        RunDirError: another program has passed the inputs.
    """
    if run.info.host == EMBEDDED:
        raise RunDirError(
            f"{run.path.name} saved no tensors of launch {launch.id}, and the program that loaded the package passed "
            "its own inputs, which are not recorded",
            hint=again_hint(run, launch),
        )


def require_trust(run: RunDir, launch: Launch, *, trusted: bool) -> None:
    """Checks that what the repro executes was made on this account, or is trusted.

    Raises:
        UsageError: it was not.
    """
    if trusted or run.is_made_here:
        return
    what = (
        f"the operator {printable(launch.site.op)}" if launch.site.op else f"the source of {printable(launch.kernel)}"
    )
    loaded = trust.would_load(run.manifest, run.info.imports, run.info.libraries)
    raise UsageError(
        f"{run.path} was not made on this account; its repro would run {what} as the run describes it{loaded}",
        hint=trust.TRUST_HINT,
    )


@dataclass(frozen=True)
class RecordedSlot:
    """An argument of a recorded launch, with its saved tensor files.

    Attributes:
        value: as it was before the launch; of an output slot as it was after it (UNSET where the launch did not end).
        before, after: the saved tensor files; None where there is none.
        reason: why a file is missing; "" if nothing is known.
        made: the launch put a new tensor into a handle that was passed.
    """

    arg: Arg
    value: Value
    before: Path | None = None
    after: Path | None = None
    reason: str = ""
    made: bool = False

    @property
    def is_made(self) -> bool:
        """True if the launch allocated the tensor of the argument."""
        return self.made or self.arg.form is Form.OUTPUT_SLOT

    @property
    def tensor(self) -> Tensor | None:
        """The value of the argument, if that is a tensor."""
        return self.value if isinstance(self.value, Tensor) else None

    @property
    def absent(self) -> bool:
        """None, or an undefined tensor, which operators take for None."""
        return self.value in (Absent.NULL, Absent.UNDEFINED)


@dataclass(frozen=True)
class RecordedRun:
    """The run that a launch comes from.

    Attributes:
        started: ISO 8601.
        tool_version: of the aoti-debug that writes the repro.
        torch_settings: as RunInfo has them.
    """

    path: Path
    started: str
    torch_version: str
    device: str
    tool_version: str
    torch_settings: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class RecordedLaunch:
    """A launch with its values and saved tensors.

    Attributes:
        id: "0.3"
        slots: in the order of `site.args`.
        fault: what the launch ended in, "SIGSEGV" for one; "" if it ended well.
        grid: what launchKernel handed to the device; None where it started nothing, or on the CPU.
        started: False where its grid was empty.
        binary: the device kernel's machine code; None where it is missing.
        no_binary: the reason why it is missing; "" where it is not.
    """

    id: str
    site: Site
    slots: tuple[RecordedSlot, ...]
    run: RecordedRun
    fault: str = ""
    grid: Grid | None = None
    started: bool = True
    binary: bytes | None = None
    no_binary: str = ""

    def by_value(self, value: int) -> tuple[RecordedSlot, ...]:
        """The slots behind one expression of the call."""
        return tuple(slot for slot in self.slots if slot.arg.value == value)


def recorded_launch(run: RunDir, launch: Launch, fault: str) -> RecordedLaunch:
    """Returns a launch with what the run directory holds of it.

    Args:
        fault: what this launch ended in; "" if it ended well.
    """
    torch_version = run.info.torch_version or run.manifest.torch_version
    where = RecordedRun(
        run.path, run.info.started, torch_version, run.manifest.device, __version__, run.info.torch_settings
    )
    started = launch.status is not LaunchStatus.NOT_STARTED
    slots = tuple(_slot(run, argument, started=started) for argument in launch.args)
    binary, no_binary = _binary(run, launch)
    return RecordedLaunch(launch.id, launch.site, slots, where, fault, launch.grid, started, binary, no_binary)


def _binary(run: RunDir, launch: Launch) -> tuple[bytes | None, str]:
    """The machine code of a launch's Triton kernel from the package that was run, or the reason why it is missing."""
    if traits_of(launch.site.kind).replay != "triton":
        return None, ""
    names = [grid.kernel for grid in launch.grids] or list(launch.site.launches)
    return kernel_binary(run, run.manifest.kernel(names[0]) if names else None)


def _slot(run: RunDir, argument: Argument, *, started: bool) -> RecordedSlot:
    made = argument.before is Absent.UNDEFINED and isinstance(argument.after, Tensor)
    value = argument.after if made or argument.spec.form is Form.OUTPUT_SLOT else argument.before
    paths = {
        phase: run.tensor_path(saved)
        for phase, saved in argument.files.items()
        if saved.status is not SaveStatus.SKIPPED
    }
    reason = next((s.reason for s in argument.files.values() if s.status is SaveStatus.SKIPPED), "")
    before = paths.get(Phase.BEFORE)
    after = paths.get(Phase.AFTER, None if started else before)  # what did not start wrote nothing
    return RecordedSlot(argument.spec, value, before, after, reason, made)


def kernel_binary(run: RunDir, kernel: Kernel | None) -> tuple[bytes | None, str]:
    """The cubin of a Triton kernel, or None and the reason why it is missing."""
    if kernel is None or not kernel.cubin:
        return None, "it is embedded in the package's library"
    if run.package is None:
        return None, f"the package that was run was not found: {run.found_package.problem}"
    try:
        code = archive.inspect(run.package).read(f"{archive.AOTINDUCTOR}{run.manifest.model}/{kernel.cubin}")
    except ArtifactError as error:
        return None, str(error)
    if kernel.cubin_sha256 and hashlib.sha256(code).hexdigest() != kernel.cubin_sha256:
        return None, f"{run.package} was rebuilt after the run"
    return code, ""

"""The calls of a run's program in eager, from a child process: its request, its answer."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.errors import ArtifactError, TargetError, UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import cache, torch_settings
from aoti_debug.base.machine.fork_server import python_process
from aoti_debug.base.machine.processes import child_process
from aoti_debug.base.machine.processes.child_process import changed_environment
from aoti_debug.base.machine.processes.messages import ErrorData
from aoti_debug.package.manifest import Certainty, Provenance
from aoti_debug.package.pt2 import archive, trust
from aoti_debug.package.pt2.archive import ArtifactKind
from aoti_debug.package.recording_settings import SiteFilter
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.views.call_text.call import Call


@dataclass(frozen=True)
class EagerRequest:
    """A program to call once in eager.

    Attributes:
        program: the file of the exported program.
        package: the instrumented package, whose inputs are taken.
        inputs: a file of inputs; "" for those embedded in the package.
        hashes: with the hashes of tensors.
        values: with the statistics of tensors.
        imports, libraries: what registers the program's operators.
    """

    program: str
    package: str
    inputs: str
    hashes: bool
    values: bool
    imports: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()


@dataclass(frozen=True)
class EagerCall:
    """A call of an operator in eager.

    Attributes:
        stack: the index of the stack that it was exported with in `EagerAnswer.stacks`; -1 without one.
    """

    call: Call
    stack: int


@dataclass(frozen=True)
class EagerAnswer:
    """The calls of a program in their order.

    Attributes:
        error: the exception that ended the program, or kept it from being called; None if it returned.
    """

    calls: tuple[EagerCall, ...]
    stacks: tuple[str, ...]
    error: ErrorData | None = None


_WORKER = "aoti_debug.views.call_text.eager_worker"
_SECONDS = 3600.0  # that a program may take


@dataclass(frozen=True)
class EagerCalls:
    """The calls of a program.

    Attributes:
        failure: the exception that ended the program; "" if it returned.
    """

    calls: tuple[Call, ...]
    failure: str


def eager_calls(
    run: RunDir, program: Path, chosen: SiteFilter, *, hashes: bool, values: bool, trusted: bool
) -> EagerCalls:
    """Calls a program in eager with the inputs of a run, and words its calls.

    Args:
        chosen: the modules and lines that are asked for.
        hashes, values: with the hashes and the statistics of tensors.
        trusted: execute the program, and the run's operators, even if they were not made on this account.

    Raises:
        ArtifactError: the program cannot be loaded, or is of the wrong kind.
        UsageError: it was not made on this account.
        RunDirError: the package of the run, with its inputs, was not found, or the inputs are not known.
        TargetError: the process died.
    """
    artifact = archive.inspect(program)
    archive.require_kind(artifact, ArtifactKind.EXPORTED)
    trust.require(artifact, trusted=trusted)
    if not (trusted or run.is_made_here):
        raise UsageError(
            f"{run.path} was not made on this account; the operators that it names would run", hint=trust.TRUST_HINT
        )
    run.require_repeatable()
    with cache.scratch() as folder:
        request = EagerRequest(
            program=str(program.resolve()),
            package=str(run.required_package),
            inputs=str(run.inputs or ""),
            hashes=hashes,
            values=values,
            imports=run.info.imports or run.manifest.imports,
            libraries=run.info.libraries or run.manifest.libraries,
        )
        with changed_environment(torch_settings.environment(run.info.torch_settings)):
            answer, status = python_process.ask(_WORKER, request, EagerAnswer, folder, "eager", seconds=_SECONDS)
        if answer is None:
            ended = child_process.describe_end(status, folder / "eager.log")
            raise TargetError(
                f"the process that calls the program in eager ended with {ended}",
                hint="call the program in a script of your own",
            )
    if answer.error is not None and not answer.calls:
        raise answer.error.to_error() or ArtifactError(
            f"{program} cannot be called in eager: {answer.error.type}: {wording.first_line(answer.error.message)}",
            hint="it must be the program that the package was built from",
        )
    calls = []
    for item in answer.calls:
        stacks = (answer.stacks[item.stack],) if item.stack >= 0 else ()
        origin = Provenance(Certainty.EXACT, stacks=stacks, modules=(item.call.module,) if item.call.module else ())
        if chosen.takes(item.call.operator, origin):
            calls.append(item.call)
    error = answer.error
    return EagerCalls(tuple(calls), f"{error.type}: {wording.first_line(error.message)}" if error else "")

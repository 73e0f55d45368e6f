"""Calls of operators and launches: their text in DebugMode's format, conditions on their tensors; those in eager."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

from aoti_debug.base import dtypes, wording
from aoti_debug.base.errors import ArtifactError, TargetError, UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import cache, torch_settings
from aoti_debug.base.machine.processes import child_process, python_process
from aoti_debug.base.machine.processes.child_process import changed_environment
from aoti_debug.base.machine.processes.messages import ErrorData
from aoti_debug.package import origins
from aoti_debug.package.manifest import Certainty, Provenance
from aoti_debug.package.pt2 import archive, trust
from aoti_debug.package.pt2.archive import ArtifactKind
from aoti_debug.package.recording_settings import SiteFilter
from aoti_debug.runs.rundir import watch_condition
from aoti_debug.runs.rundir.formats.statistics import Statistics
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.watch_condition import Condition, ConditionError, Quantity

_INDENT = "  "
_OF_TYPE = ("numel", "ndim", "dtype")


@dataclass(frozen=True)
class CallTensor:
    """A tensor that a call reads or writes.

    Attributes:
        id: its number, "$4"; a name, "%add", for a value that exists inside of a fused kernel only.
        dtype: torch's name: "float32"; "" if unknown.
        shape: sizes, or expressions of symbolic ones.
        hash: of its bytes, 16 hexadecimal digits; "" if it was not recorded, or not asked for.
        statistics: of its elements; None if they were not recorded.
    """

    id: str
    dtype: str
    shape: tuple[str, ...]
    hash: str = ""
    statistics: Statistics | None = None

    def __str__(self) -> str:
        name = f"t{self.id}" if self.id.startswith("$") else self.id
        if not self.dtype:
            return name
        attributes = f"{{hash={self.hash}}}" if self.hash else ""
        known = dtypes.of_name(self.dtype)
        dtype = self.dtype if known is None else known.abbreviation
        return f"{name}: {dtype}[{', '.join(self.shape)}]{attributes}"


@dataclass(frozen=True)
class Call:
    """A call.

    Attributes:
        operator: "aten::mm", "aten::add.Tensor"; the kernel of a launch: "cpp_fused_relu_1".
        arguments, outputs: their text, with that of the tensors.
        module: path of the innermost module that contains all of it; "" for the model itself.
        tensors: those among the arguments and outputs.
        note: what follows the text after a "#": the launch.
        operators: what a fused kernel computes.
    """

    operator: str
    arguments: tuple[str, ...]
    outputs: tuple[str, ...]
    module: str = ""
    tensors: tuple[CallTensor, ...] = ()
    note: str = ""
    operators: tuple[Call, ...] = ()

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        text = f"{self.operator}({', '.join(self.arguments)})"
        if self.outputs:
            text += f" -> {self.outputs[0]}" if len(self.outputs) == 1 else f" -> ({', '.join(self.outputs)})"
        return text + (f"  # {self.note}" if self.note else "")


def list_text(items: Sequence[str]) -> str:
    """ "[t$1: f32[2], t$2: f32[2]]"."""
    return f"[{', '.join(items)}]"


def call_lines(calls: Sequence[Call], depth: int = 0) -> list[str]:
    """The calls in lines, each under the modules that contain it: "[nn.Mod] encoder.layers.0"."""
    known = {call.module for call in calls}
    containing = {module: levels(module, known) for module in known}
    lines: list[str] = []
    open_: tuple[str, ...] = ()
    for call in calls:
        inside = containing[call.module]
        kept = next((n for n, (a, b) in enumerate(zip(open_, inside, strict=False)) if a != b), None)
        kept = min(len(open_), len(inside)) if kept is None else kept
        lines += [f"{_INDENT * (depth + n)}[nn.Mod] {inside[n]}" for n in range(kept, len(inside))]
        open_ = inside
        indent = depth + len(inside)
        lines.append(f"{_INDENT * indent}{call}")
        lines += [f"{_INDENT * (indent + 1)}{operator}" for operator in call.operators]
    return lines


def levels(module: str, known: set[str]) -> tuple[str, ...]:
    """The modules that contain a module, outermost first, and it itself; of the others only those that are known."""
    return tuple(path for path in origins.containing(module) if path and (path == module or path in known))


def common_known_module(modules: Sequence[str], known: set[str]) -> str:
    """The innermost known module that contains all modules; "" for the model itself."""
    around = origins.containing(origins.common_module(modules))
    return next((path for path in reversed(around) if path in known), "")


@dataclass(frozen=True)
class CallCondition:
    """A condition that one tensor of a call has to meet."""

    condition: Condition

    @property
    def needs_values(self) -> bool:
        """True if it is a condition on elements, not only on types."""
        return not watch_condition.names(self.condition).issubset(_OF_TYPE)

    def holds(self, tensor: CallTensor) -> bool:
        """True if it holds for a tensor; what is not known of it meets no comparison."""
        return watch_condition.holds(self.condition, lambda name: _quantity(name, tensor))

    def holds_for_any(self, tensors: Iterable[CallTensor]) -> bool:
        """True if it holds for one of the tensors."""
        return any(map(self.holds, tensors))


def parse_condition(text: str) -> CallCondition:
    """Parses "absmax > 1e4 and dtype == f16".

    Raises:
        UsageError: it does not parse; the message has a caret under the place.
    """
    try:
        parsed = watch_condition.parse(text, numbers=("ndim",), texts=("dtype",))
    except ConditionError as error:
        raise UsageError(
            f"--where does not parse: {error.shown_in(text)}",
            hint="a condition is 'nan', 'absmax > 1e4', 'numel >= 1000 and ndim == 1', 'dtype == f16'",
        ) from error
    return CallCondition(_with_names_of_dtypes(parsed))


def _with_names_of_dtypes(parsed: Condition) -> Condition:
    """The condition with torch's names in place of abbreviated ones: "float16" for "f16" and "torch.float16"."""
    if isinstance(parsed, watch_condition.Joined):
        return watch_condition.Joined(tuple(map(_with_names_of_dtypes, parsed.parts)), parsed.all_of_them)
    if parsed.left.name != "dtype":
        return parsed
    word = str(parsed.right.value).removeprefix("torch.")
    name = next((dtype.name for dtype in dtypes.DTYPES if dtype.abbreviation == word), word)
    return watch_condition.Relation(parsed.left, parsed.sign, watch_condition.ConditionOperand(value=name))


def _quantity(name: str, tensor: CallTensor) -> Quantity:
    match name:
        case "dtype":
            return tensor.dtype or None
        case "ndim":
            return len(tensor.shape)
        case "numel":
            sizes = [int(size) for size in tensor.shape if size.isdecimal()]
            return math.prod(sizes) if len(sizes) == len(tensor.shape) else None
    return None if tensor.statistics is None else watch_condition.statistic(name, tensor.statistics)


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

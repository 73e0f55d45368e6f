"""The request to a worker process and its answer, exchanged as JSON files, with the parts of Inductor to leave out."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from aoti_debug.base.errors import AotiDebugError, ArtifactError, TargetError, ToolchainError, UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import atomic_write, json_data
from aoti_debug.instrument.frontend.protocol.caller_settings import CallerSettings
from aoti_debug.package.manifest import OperatorSchema, Promise

ARCHIVE = "lowered.pt2"
HASHED_ARCHIVE = "hashed.pt2"
INPUTS = "inputs.pt"
SIGNATURE = "signature.json"
MANIFEST = "manifest.json"
REFERENCE = "reference.json"
WEIGHTS = "weights.pt"
REQUEST = "request.json"
ANSWER = "answer.json"
LOG = "lower.log"
MAPPED_WEIGHTS, WEIGHTS_OBJECT = "_serialized_weights.bin", ".weights.o"  # the ends of names that Inductor gives
STACK = "stack.txt"
AUTOTUNED = "autotuned.json"
STACK_SIGNAL = signal.SIGUSR1  # a worker that lowers writes its Python stack to that file
OPERATOR_KEYS = "aot_inductor.custom_ops_to_c_shims"  # the setting whose keys are operators
_OPERATOR_NAME = re.compile(r"\w+(?:::|\.)\w+(?:\.\w+)?")
_OTHER_TORCH = "install torch 2.11 or newer"
LOG_LINES = 20


@dataclass(frozen=True)
class Applied:
    """The parts of Inductor that a program was lowered with, each once, in order.

    Attributes:
        passes: names of graph passes that can be left out with the setting `disabled_passes`.
        decompositions, lowerings: operators that were decomposed, or lowered, "aten.silu.default", and that can be
            called as they are.
    """

    passes: tuple[str, ...] = ()
    decompositions: tuple[str, ...] = ()
    lowerings: tuple[str, ...] = ()


@dataclass(frozen=True)
class TunedChoice:
    """A candidate of autotuning.

    Attributes:
        name: of the kernel or the template, "triton_poi_fused_0", "cpp_CppMicroGemmFP32Vec_0".
        configuration: "XBLOCK: 128, num_warps: 4, num_stages: 1"; "" where the name says all.
    """

    name: str
    configuration: str


@dataclass(frozen=True)
class LeftOut:
    """Operators that are called as they are, and candidates that are not tried.

    Attributes:
        decompositions, lowerings: those that are not decomposed, and those that are not lowered.
        candidates: those that are neither compiled nor timed.
        log: a file for what is applied, an `Applied` as JSON; "" for none.
    """

    decompositions: tuple[str, ...] = ()
    lowerings: tuple[str, ...] = ()
    candidates: tuple[TunedChoice, ...] = ()
    log: str = ""


@dataclass(frozen=True)
class Request:
    """The task of a worker process.

    Attributes:
        program: file of the exported program or compiled package; "" for a program in memory.
        folder: an empty directory for all results.
        configs: Inductor settings, with operators by name (`name_operators`).
        imports, libraries: modules and shared libraries that register operators.
        inputs: file to embed instead of the program's example inputs; "" for those.
        hashed_kernels: lower as a default package, whose kernel binaries are named by their content.
        random_inputs: seed of the inputs to make; None to make none.
        left_out: operators that are called as they are; None to note nothing either.
        weights_by_reference: leave the weights in the program's file.
        caller: settings of the process that asks, for a worker; None for its own.
    """

    program: str
    folder: str
    configs: Mapping[str, Any] = field(default_factory=dict)
    imports: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    inputs: str = ""
    hashed_kernels: bool = False
    random_inputs: int | None = None
    left_out: LeftOut | None = None
    weights_by_reference: bool = False
    caller: CallerSettings | None = None


@dataclass(frozen=True)
class TritonConfig:
    """The configuration that Inductor compiled a Triton kernel with.

    Attributes:
        values: names and values as Python source: ("XBLOCK", "128"), ("num_stages", "1").
        global_scratch, profile_scratch: bytes of scratch memory that a launch gets besides its arguments.
    """

    values: tuple[tuple[str, str], ...]
    global_scratch: int = 0
    profile_scratch: int = 0


@dataclass(frozen=True)
class Autotuning:
    """The kernels whose configuration autotuning has chosen, by where that was.

    Attributes:
        users: in the user's Inductor cache, for a package of their own.
        earlier: in an earlier build.
        measured: in this build.
    """

    users: int = 0
    earlier: int = 0
    measured: int = 0


@dataclass(frozen=True)
class Answer:
    """The result of a worker process.

    Attributes:
        shim_operators: names of the operators that have a C shim ("aten.addmm.default").
        schemas: schema by operator name ("mylib.op.default"): of each of them, of custom_shims and of the operators
            that the proxy executor calls.
        wrapper_opt: optimization level of the wrapper in a default package, "O1"; "" if nothing was lowered.
        without_inputs: why no inputs are embedded; "" if they are.
        times: seconds of each step.
        triton_configs: kernel name -> configuration, of the Triton kernels of a GPU package.
        custom_shims: declarations of the user's C shims, by custom operator.
        operator_stacks: Python stack of each custom operator that the program calls once, by name
            ("mylib::op.default").
        promises: the layouts that Inductor promised for buffers.
        without_promises: why promises of some buffers are missing; "" if they are not.
        autotuning: where the configurations of the Triton kernels of a GPU package come from.
        weight_names: the attribute of the program ("linear.weight"), by the name of the constant, of the weights that
            are left in its file; the others are in the file WEIGHTS.
    """

    torch_version: str
    shim_operators: tuple[str, ...]
    schemas: Mapping[str, OperatorSchema]
    wrapper_opt: str
    without_inputs: str
    times: Mapping[str, float]
    triton_configs: Mapping[str, TritonConfig] = field(default_factory=dict)
    custom_shims: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    operator_stacks: Mapping[str, str] = field(default_factory=dict)
    promises: tuple[Promise, ...] = ()
    without_promises: str = ""
    autotuning: Autotuning = Autotuning()
    weight_names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """A step that failed without a crash.

    Attributes:
        step: a key of ERRORS.
        subject: the module, library or file that it was about.
        error: type of the exception.
        message: text of the exception.
        hint: what to do, if the worker knows better than ERRORS.
    """

    step: str
    subject: str
    error: str
    message: str
    hint: str = ""


def is_weights(name: str) -> bool:
    """True for a file of weights that Inductor writes."""
    return name.endswith((MAPPED_WEIGHTS, WEIGHTS_OBJECT))


def name_operators(configs: Mapping[str, Any]) -> dict[str, Any]:
    """Replaces operators in the settings by their names: "mylib::op", "mylib.op.default".

    Raises:
        UsageError: a key is neither an operator nor the name of one.
    """
    named = dict(configs)
    if OPERATOR_KEYS in named:
        shims = named[OPERATOR_KEYS]
        names = [str(operator) for operator in shims] if isinstance(shims, Mapping) else [str(shims)]
        wrong = [name for name in names if not _OPERATOR_NAME.fullmatch(name)]
        if wrong or not isinstance(shims, Mapping):
            raise UsageError(
                f"--inductor-config {OPERATOR_KEYS}: {(wrong or names)[0]} is not an operator",
                hint='{"mylib::op": ["AOTITorchError aoti_torch_cpu_op(AtenTensorHandle x, AtenTensorHandle* ret0)"]}',
            )
        named[OPERATOR_KEYS] = dict(zip(names, (list(declared) for declared in shims.values()), strict=True))
    return named


def write_request(request: Request) -> Path:
    """Writes the request to its folder; returns the file."""
    path = Path(request.folder) / REQUEST
    path.write_text(json_data.to_text(request, indent=None))
    return path


def read_request(path: Path) -> Request:
    """Reads a request.

    Raises:
        ToolchainError: the file is damaged.
    """
    try:
        return json_data.parse(Request, path.read_bytes())
    except json_data.DamagedJsonError as error:
        raise _damaged(path, error) from error


def write_answer(folder: Path, answer: Answer | Failure) -> None:
    """Writes the answer atomically."""
    atomic_write.write(folder / ANSWER, json_data.to_text(answer, indent=None))


def read_answer(folder: Path) -> Answer | Failure | None:
    """Reads the answer; None if the process ended without one.

    Raises:
        ToolchainError: the file is damaged.
    """
    path = folder / ANSWER
    if not path.exists():
        return None
    try:
        data = json_data.parse_object(path.read_bytes())
        return json_data.from_data(Failure, data) if "step" in data else json_data.from_data(Answer, data)
    except json_data.DamagedJsonError as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: json_data.DamagedJsonError) -> ToolchainError:
    return ToolchainError(f"{path} is damaged: {error}", hint="remove it and build again")


@dataclass(frozen=True)
class _StepError:
    """The error that a failed step is reported as.

    Attributes:
        text: message, formatted with the fields of the Failure.
        log_lines: number of lines of the log to show; 0 for its path only, None for no log.
    """

    error: type[AotiDebugError]
    text: str
    hint: str
    log_lines: int | None = None


ERRORS = {
    "torch": _StepError(ToolchainError, "this torch cannot lower models: {error}: {message}", _OTHER_TORCH, LOG_LINES),
    "import": _StepError(
        UsageError, "--import {subject} fails: {error}: {message}", "name a module that python finds from here"
    ),
    "library": _StepError(
        UsageError, "--load-library {subject} fails: {message}", "name a library of operators that torch can load"
    ),
    "config": _StepError(UsageError, "--inductor-config {subject}: {message}", "see torch/_inductor/config.py"),
    "load": _StepError(
        ArtifactError,
        "the exported program cannot be loaded: {error}: {message}",
        "load it with the torch that wrote it, and --import or --load-library its custom operators; "
        "aoti_debug.build(program) builds it in the process that exports it",
        0,
    ),
    "inputs": _StepError(ArtifactError, "{message}", ""),
    "print": _StepError(
        ArtifactError, "the print at {subject} cannot be compiled: {message}", "correct it and export the program again"
    ),
    "lower": _StepError(
        ToolchainError,
        "Inductor cannot lower the model: {error}: {message}",
        "see whether torch._inductor.aoti_compile_and_package alone fails as well",
        LOG_LINES,
    ),
    "room": _StepError(TargetError, "there is not enough {subject} to build the package: {message}", "", 0),
    "system": _StepError(TargetError, "the package cannot be built: {message}", "", 0),
    "weights": _StepError(
        UsageError,
        "the weights cannot be left in the program's file: {message}",
        "pass --weights inside",
    ),
    "reference": _StepError(ToolchainError, "the reference cannot be written: {error}: {message}", "", LOG_LINES),
    "operators": _StepError(
        ToolchainError, "the operators of this torch cannot be listed: {error}: {message}", _OTHER_TORCH, LOG_LINES
    ),
}


def error_of(failure: Failure, log: Callable[[int], str]) -> AotiDebugError:
    """The exception to raise for a failure.

    Args:
        log: keeps the log; returns text with its path and the given number of last lines.
    """
    step_error = ERRORS[failure.step]
    log_text = "" if step_error.log_lines is None else log(step_error.log_lines)
    return step_error.error(step_error.text.format(**asdict(failure)) + log_text, hint=failure.hint or step_error.hint)

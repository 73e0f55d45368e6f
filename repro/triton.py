"""Triton launches: the kernel's source and machine code, with the grid and the values that the device was handed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from aoti_debug.base.errors import UsageError
from aoti_debug.package.argument_values import Absent, Number
from aoti_debug.package.manifest import ConfigOrigin, Kernel, Manifest, PackageOrigin
from aoti_debug.package.triton_config import result_affecting_parameters
from aoti_debug.repro import literals
from aoti_debug.repro.arguments import ReproArguments
from aoti_debug.repro.recorded_launch import RecordedLaunch, RecordedSlot
from aoti_debug.repro.script import Script, call, mapping_of, tuple_of
from aoti_debug.repro.triton_source import Specialisation, TritonSource, specialisation, standalone_source

_CTYPES = {  # by what a Triton signature calls a type
    "i1": "c_int32",
    "i8": "c_int8",
    "i16": "c_int16",
    "i32": "c_int32",
    "i64": "c_int64",
    "u1": "c_uint32",
    "u8": "c_uint8",
    "u16": "c_uint16",
    "u32": "c_uint32",
    "u64": "c_uint64",
    "fp16": "c_float",
    "bf16": "c_float",
    "fp32": "c_float",
    "f32": "c_float",
    "fp64": "c_double",
}


def value_of(launch: RecordedLaunch, parameter: str, kind: str, arguments: ReproArguments) -> str:
    """Returns the value that a parameter was launched with, as Python source.

    Args:
        kind: Triton's name of its type.

    Raises:
        UsageError: it was not recorded, or is something that cannot be written down.
    """
    slot = next((s for s in launch.slots if s.arg.param == parameter), None)
    if kind.startswith("*"):
        return _pointer(launch, parameter, slot, arguments)
    if launch.grid is not None:
        passed = next((a for a in launch.grid.arguments if a.name == parameter), None)
        if passed is not None:
            return _number(launch, parameter, passed.ctype or kind, passed.value)
    elif slot is not None and isinstance(slot.value, Number):
        return _number(launch, parameter, kind, slot.value)
    is_descriptor = kind.startswith(("tensordesc", "nvTmaDesc"))
    what = "a TMA descriptor" if is_descriptor else f"of type {kind} and was not recorded"
    raise UsageError(f"launch {launch.id} cannot be replayed: its argument {parameter} is {what}")


def _pointer(launch: RecordedLaunch, parameter: str, slot: RecordedSlot | None, arguments: ReproArguments) -> str:
    if slot is not None and slot.tensor is not None:
        return arguments.names[slot.arg.name]
    if slot is not None and slot.value in (Absent.NULL, Absent.UNDEFINED):
        return "None"
    raise UsageError(f"launch {launch.id} cannot be replayed: its argument {parameter} was not recorded")


def _number(launch: RecordedLaunch, parameter: str, declared: str, given: Number) -> str:
    ctype = _CTYPES.get(declared) or literals.CTYPES.get(declared)
    if ctype is None:
        raise UsageError(f"launch {launch.id} cannot be replayed: its argument {parameter} is passed as {declared}")
    return literals.ctypes_number(ctype, given.value)


BINARY = "kernel.cubin"
CONSTANT = "constexpr"
NO_CONFIG = "the package does not record the configuration"
EMPTY_GRID = (0, 0, 0)
SCRATCH = ("global_scratch", "profile_scratch")

WAYS = {
    "jit": "compiles the source here; the default with a CUDA device",
    "cubin": "launches the package's own machine code",
    "interpret": "runs the source on the CPU, checks every access; the default without a CUDA device",
}
VERIFIED = "compiles the source here; launched only if the instructions are the package's own"
BARRIER = "x_grid_barrier"


def refusal(launch: RecordedLaunch, manifest: Manifest) -> str:
    """Returns the reason why a launch of this kind cannot be replayed; "" if it can."""
    name = _device_kernel(launch)
    kernel = manifest.kernel(name) if name else None
    if kernel is None:
        return "it starts no kernel on a GPU: Triton on the CPU has no replay"
    if not kernel.source:
        return f"the package does not hold the source of {name}"
    if launch.started and launch.grid is None:
        return "the run has no record of its grid: the journal ends before the kernel was started"
    if not kernel.config and launch.binary is None:
        again = " (build it again with this version of aoti-debug)" if manifest.source is PackageOrigin.EXPORTED else ""
        return (
            f"the package does not say how {name} was compiled{again}, and its machine code is not available: "
            f"{launch.no_binary}"
        )
    if (unknown := result_affecting_parameters(kernel)) and launch.binary is None:
        return (
            f"the package does not record with which {_joined_names(unknown)} {name} was compiled, several of its "
            f"configurations fit, and they may compute different results; its machine code is not available: "
            f"{launch.no_binary}"
        )
    return ""


def script(launch: RecordedLaunch, manifest: Manifest, arguments: ReproArguments) -> Script:
    """Returns what the launch contributes to repro.py.

    Raises:
        UsageError: the source or a value cannot be written down.
    """
    name = _device_kernel(launch)
    kernel = manifest.kernel(name)
    assert kernel is not None
    source = standalone_source(kernel.source, manifest.triton_helpers)
    spec = specialisation(kernel)
    unknown = result_affecting_parameters(kernel)
    without = _unavailable_backends(launch, source, spec, unknown)
    ways = {**WAYS, "jit": VERIFIED} if unknown else WAYS
    passed = [
        (parameter, kind, value_of(launch, parameter, kind, arguments))
        for parameter, kind in spec.signature.items()
        if kind != CONSTANT and parameter not in spec.constants
    ]
    return Script(
        launch=(call("KERNEL", [f"{p}={value}" for p, _, value in passed], [kind for _, kind, _ in passed]),),
        source=_source(launch, kernel, source, spec, unknown, without),
        standard=("import ctypes",) if any(value.startswith("ctypes.") for _, _, value in passed) else (),
        packages=source.imports,
        imports=(
            *([f"from replay.compile_time import {', '.join(source.compile_time)}"] if source.compile_time else []),
            f"from replay.triton_kernel import {'Binary, ' if launch.binary else ''}TritonKernel",
        ),
        kernel="KERNEL",
        needs="triton, for --backend jit and cubin also a CUDA device",
        about=tuple(_about(launch, kernel)),
        ways=tuple(f"python repro.py --backend {b:10}  {what}" for b, what in ways.items() if b not in without),
        files={BINARY: launch.binary} if launch.binary else {},
    )


def _about(launch: RecordedLaunch, kernel: Kernel) -> Iterator[str]:
    if kernel.name != launch.site.kernel:
        yield f"kernel      {kernel.name}, the variant that ran"
    if launch.grid is None:
        yield "grid        empty: the model did not launch it"
    else:
        grid = launch.grid
        shared = f", {grid.shared_bytes} bytes of shared memory" if grid.shared_bytes else ""
        yield f"grid        {grid.grid}, {grid.num_warps} warps{shared}"
    if kernel.overlaps:
        yield "            may begin before the kernel before it has ended; a race between the two does not show here"
    config = [f"{name}={value}" for name, value in kernel.config if name != "num_warps"]
    yield f"compiled    {', '.join(config) or NO_CONFIG}"
    yield from _inferred(launch, kernel)
    if launch.binary is None:
        yield f"cubin       not available: {launch.no_binary}"
    else:
        yield f"cubin       {BINARY}, the package's own machine code"


def _inferred(launch: RecordedLaunch, kernel: Kernel) -> Iterator[str]:
    """The values of the configuration that the package does not record, and where they come from."""
    derived, chosen = (
        [value.name for value in kernel.inferred if value.origin is origin]
        for origin in (ConfigOrigin.DERIVED, ConfigOrigin.CHOSEN)
    )
    recorded = [
        name for name, _ in kernel.config if kernel.origin(name) is ConfigOrigin.RECORDED and name != "num_warps"
    ]
    if kernel.inferred and recorded:
        yield f"            {', '.join(recorded)}: recorded"
    if derived:
        yield f"            {', '.join(derived)}: derived from the launch's grid and warps"
    if chosen:
        original = "; --backend cubin runs the original" if launch.binary else ""
        yield f"            {', '.join(chosen)}: chosen, not recorded in the package{original}"
    if unknown := result_affecting_parameters(kernel):
        names = _joined_names(unknown)
        yield f"            {names}: the kernel may compute different results with another value that fits"


def _joined_names(names: Sequence[str]) -> str:
    """ "A, B and C"."""
    return " and ".join([*([", ".join(names[:-1])] if names[1:] else []), names[-1]])


def _device_kernel(launch: RecordedLaunch) -> str:
    if launch.grid is not None:
        return launch.grid.kernel
    return launch.site.launches[0] if launch.site.launches else ""


def _unavailable_backends(
    launch: RecordedLaunch, source: TritonSource, spec: Specialisation, unknown: Sequence[str]
) -> dict[str, str]:
    """Back ends that cannot run it, each with the reason."""
    without: dict[str, str] = {}
    if spec.num_stages is None:
        without |= {"jit": NO_CONFIG, "interpret": NO_CONFIG}
    elif BARRIER in source.helpers:
        without["interpret"] = "its programs wait for each other; the interpreter runs them one after another"
    elif unknown:
        without["interpret"] = (
            f"the package does not record {_joined_names(unknown)}; with another value that fits, the kernel "
            "may compute different results"
        )
    if launch.binary is None:
        without["cubin"] = launch.no_binary
    return without


def _others(kernel: Kernel, spec: Specialisation) -> str:
    """Other values that fit what the package records: a tuple of dictionaries, of what differs."""
    current = {name: value for name, value in kernel.config if name in spec.constants or name == "num_stages"}
    values = [
        mapping_of({name: value for name, value in other if current.get(name, value) != value}, 8)
        for other in kernel.other_configs
    ]
    return "\n".join(["(", *(f"        {value}," for value in values), "    )"])


def _source(
    launch: RecordedLaunch,
    kernel: Kernel,
    source: TritonSource,
    spec: Specialisation,
    unknown: Sequence[str],
    without: Mapping[str, str],
) -> str:
    grid = launch.grid.grid if launch.grid else EMPTY_GRID
    binary = [
        literals.text(BINARY),
        literals.text(kernel.mangled),
        f"shared_bytes={kernel.shared_bytes}",
        *(f"{name}={size}" for name in SCRATCH if (size := getattr(kernel, name))),
    ]
    quoted = {name: literals.text(value) for name, value in spec.signature.items()}
    options = [
        source.function,
        f"signature={mapping_of(quoted, 4)}",
        f"constants={mapping_of(spec.constants, 4)}",
        f"divisible={tuple_of(spec.divisible, 4)}",
        f"grid={grid}",
        f"num_warps={kernel.num_warps}",
        *([f"num_stages={spec.num_stages}"] if spec.num_stages is not None else []),
        *([f"others={_others(kernel, spec)}"] if kernel.other_configs else []),
        *([f"decisive={tuple_of(unknown, 4)}"] if unknown else []),
        f"options={mapping_of(spec.options, 4)}",
        *(["overlaps=True"] if kernel.overlaps else []),
        *([f"binary=Binary({', '.join(binary)})"] if launch.binary else []),
        *([f"without={mapping_of({k: literals.text(v) for k, v in without.items()}, 4)}"] if without else []),
    ]
    lines = [f"    {option}," for option in options]
    made = "\n".join(["KERNEL = TritonKernel(", *lines, ")"])
    about = "# The kernel as Inductor compiled it."
    if source.helpers:
        about += " The functions before it are Inductor's helpers, copied from the package."
    return f"{about}\n\n{source.text}\n\n{made}"

"""A Triton kernel that is compiled here, launched as the package's own machine code, or interpreted on the CPU."""

from __future__ import annotations

import ctypes
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from .kernel import Findings, Programs, RefusalError, Settings
from .machine_code import WARP, Function, Value, instructions, use_ptxas_of, version_in

DIVISOR = 16  # what Triton compiles addresses and integers for that are said to be divisible

# Of the interpreter: it adds in another order, has other elementary functions and fuses no multiplication and addition.
TOLERANCE, TOLERANCE_FP64 = 1e-4, 1e-10
SAME_CODE = "compiled here to the package's own instructions"
OTHER_CODE = "compiled here to instructions that differ from the package's"
NO_RECORD = "chosen, not recorded in the package"
STAGES = "num_stages"
PROGRESS_SECONDS = 2.0  # without a line of progress
BAR_SECONDS, BAR_WIDTH = 0.2, 40

TritonArgument: TypeAlias = torch.Tensor | Value | None


@dataclass(frozen=True)
class Binary:
    """The package's own machine code of a kernel.

    Attributes:
        file: in the repro's folder.
        name: of the kernel in it.
        shared_bytes: dynamic shared memory of a block.
        global_scratch, profile_scratch: bytes that each program is given besides its arguments.
    """

    file: str
    name: str
    shared_bytes: int
    global_scratch: int = 0
    profile_scratch: int = 0


@dataclass(eq=False)
class TritonKernel:
    """A `triton.jit` function as it was compiled and launched.

    Attributes:
        signature: parameter -> Triton's name of its type, in order; "constexpr" for one that is compiled in.
        constants: the values of those that are compiled in; a launch takes the others.
        divisible: parameters whose address or value Triton takes for a multiple of 16.
        grid: as it was launched; one of its sizes is 0 where the model did not launch it.
        options: further options of the compilation.
        binary: None where the package has none to launch.
        without: back ends that cannot run it, each with the reason.
        others: where the package does not record everything: other values of constants and of num_stages that fit.
            "jit" looks for those that compile to the package's own instructions.
        decisive: constants among them that what the kernel computes may depend on: "jit" launches nothing but what
            compiles to the package's own instructions. To launch it with values of your own, leave this out.
        overlaps: the model launches it so that it may begin before the kernel before it on its stream has ended.
    """

    function: Any
    _: KW_ONLY
    signature: Mapping[str, str]
    constants: Mapping[str, object]
    divisible: Sequence[str]
    grid: tuple[int, ...]
    num_warps: int
    num_stages: int = 0
    options: Mapping[str, object] = field(default_factory=dict)
    binary: Binary | None = None
    without: Mapping[str, str] = field(default_factory=dict)
    others: Sequence[Mapping[str, object]] = ()
    decisive: Sequence[str] = ()
    overlaps: bool = False
    _settings: Settings = field(init=False, default=Settings(Path()))
    _image: _Image | None = field(init=False, default=None)
    _loaded: dict[int, Function] = field(init=False, default_factory=dict)
    _findings: Findings | None = field(init=False, default=None)
    _names: dict[int, str] = field(init=False, default_factory=dict)
    _passed: Mapping[str, TritonArgument] | None = field(init=False, default=None)

    @property
    def backends(self) -> tuple[str, ...]:
        """The back ends that can run it."""
        return tuple(b for b in ("jit", "cubin", "interpret") if b not in self.without)

    def default_backend(self) -> str:
        """ "jit" or "cubin" with a CUDA device, else "interpret", as far as they are available."""
        order = ("jit", "cubin", "interpret") if torch.cuda.is_available() else ("interpret", "jit", "cubin")
        if self.decisive:
            order = ("cubin", "jit", "interpret")
        return next(backend for backend in order if backend in self.backends)

    def device(self, backend: str, recorded: str) -> str:
        """The CPU for the interpreter, else the recorded device."""
        return "cpu" if backend == "interpret" else recorded

    def part(self, backend: str) -> Programs:
        """Any programs in the interpreter, else a smaller grid."""
        return "any" if backend == "interpret" else "leading"

    def tolerance(self, backend: str) -> float:
        """Not 0.0 for the interpreter only."""
        if backend != "interpret":
            return 0.0
        floats = {kind.lstrip("*") for kind in self.signature.values() if "fp" in kind or "bf" in kind}
        return TOLERANCE_FP64 if floats == {"fp64"} else TOLERANCE

    def prepare(self, settings: Settings) -> None:
        """Compiles the source or reads the machine code.

        Raises:
            SystemExit: it cannot be compiled for this device, the file of the machine code is gone, or what is compiled
                may compute different results than the package.
        """
        self._settings, self._loaded, self._findings = settings, {}, None
        if settings.backend == "jit":
            recorded = self._recorded(settings.folder)
            if recorded is not None:
                use_ptxas_of(recorded)
            self._image = self._compiled()
            if recorded is not None:
                self._findings = self._against_package(recorded)
            elif self.decisive:
                raise SystemExit(self._refusal("the package's machine code is not available to compare with"))
        elif settings.backend == "cubin":
            self._image = self._packaged(settings.folder)

    def __call__(self, **arguments: TritonArgument) -> None:
        """Launches it. Tensors are passed as their data pointers, numbers as ctypes values, nothing as None."""
        if self._passed is not None:
            self._passed = arguments
            return
        grid = self._settings.grid or self.grid
        if 0 in grid:
            print(f"{self.function.__name__}: the grid {grid} is empty: nothing is launched")
            return
        if self._settings.backend == "interpret":
            self._interpret((grid[0], grid[1], grid[2]), arguments)
            return
        assert self._image is not None, "prepare() comes first"
        tensors = [a for a in arguments.values() if isinstance(a, torch.Tensor)]
        device = tensors[0].device.index if tensors else torch.cuda.current_device()
        with torch.cuda.device(device):
            if device not in self._loaded:
                self._loaded[device] = self._image.load(overlaps=self.overlaps)
            scratch = [torch.zeros(n, dtype=torch.uint8, device="cuda") for n in self._image.scratch(grid)]
            names = [n for n, kind in self.signature.items() if kind != "constexpr" and n not in self.constants]
            passed = [_passed(arguments[name]) for name in names]
            self._loaded[device].launch(grid, [*passed, *(_passed(s if s.numel() else None) for s in scratch)])

    def function_name(self, backend: str) -> str:
        """The name of the kernel in its machine code."""
        if backend == "cubin" and self.binary is not None:
            return self.binary.name
        return str(self.function.__name__)

    def passed_by(self, launch: Callable[[], object]) -> Mapping[str, TritonArgument]:
        """The values that a launch passes, by parameter; nothing is launched."""
        self._passed = {}
        try:
            launch()
        finally:
            passed, self._passed = self._passed, None
        return passed

    def name_arguments(self, arguments: Mapping[str, torch.Tensor]) -> None:
        """Sets the argument names for the findings."""
        self._names = {id(tensor): name for name, tensor in arguments.items()}

    def findings(self) -> Findings | None:
        """The findings of the interpreter, or of the comparison with the package's machine code."""
        return self._findings

    def _compiled(self, other: Mapping[str, object] = MappingProxyType({})) -> _Image:
        """Machine code for this device, with other values of constants and num_stages where they are given."""
        major, minor = torch.cuda.get_device_capability()
        return compile_kernel(self, major * 10 + minor, other)

    def _recorded(self, folder: Path) -> bytes | None:
        """The package's own machine code; None where it is missing."""
        path = folder / self.binary.file if self.binary is not None else None
        return path.read_bytes() if path is not None and path.is_file() else None

    def _against_package(self, recorded: bytes) -> Findings:
        """Compares the compiled instructions with the package's; tries `others` until one compiles to the same.

        Raises:
            SystemExit: none does, and the kernel may compute different results.
        """
        assert self._image is not None
        taken: dict[str, object] = {n: self._value(n) for other in self.others for n in other}
        tried = ({}, *self.others) if self._is_comparable(recorded) else ({},)
        for other in tried:
            image = self._compiled(other) if other else self._image
            if self._is_own(image, recorded):
                self._image = image
                return Findings(remarks=(f"{SAME_CODE}{_listed(', with', taken | dict(other))}",))
        about = [f"Triton {triton.__version__}"]
        if made_by := version_in(recorded):
            about.append(f"the package's ptxas was {made_by}")
        if self._has_lines():
            about.append("its device assertions contain line numbers")
        if taken:
            about.append(f"with{_listed('', taken)}: {NO_RECORD}")
        remark = f"{OTHER_CODE} ({'; '.join(about)})"
        if self.decisive:
            raise SystemExit(self._refusal(f"{remark}; --backend cubin launches the package's own"))
        return Findings(remarks=(remark,))

    def _refusal(self, reason: str) -> str:
        """The reason why it is not launched as it was compiled here."""
        return (
            f"{self.function.__name__} may compute different results here than in the package, which does not record "
            f"{', '.join(self.decisive)}: {reason}"
        )

    def _value(self, name: str) -> object:
        return self.num_stages if name == STAGES else self.constants[name]

    def _is_own(self, image: _Image, recorded: bytes) -> bool:
        assert self.binary is not None
        return instructions(image.code, image.name) == instructions(recorded, self.binary.name)

    def _is_comparable(self, recorded: bytes) -> bool:
        """True if the same configuration should give the same instructions."""
        assert self._image is not None
        return not self._has_lines() and version_in(recorded) == version_in(self._image.code)

    def _has_lines(self) -> bool:
        """True if its instructions contain line numbers."""
        return "device_assert" in self.function.src

    def _packaged(self, folder: Path) -> _Image:
        assert self.binary is not None
        path = folder / self.binary.file
        if not path.is_file():
            raise SystemExit(f"{path} does not exist: it held the package's machine code")
        sizes = (self.binary.global_scratch, self.binary.profile_scratch)
        return _Image(path.read_bytes(), self.binary.name, self.num_warps, self.binary.shared_bytes, sizes)

    def _interpret(self, grid: tuple[int, int, int], arguments: Mapping[str, TritonArgument]) -> None:
        from .interpreter import NotInterpretableError, interpret

        plain = {
            name: argument if argument is None or isinstance(argument, torch.Tensor) else argument.value
            for name, argument in arguments.items()
        }
        progress = _Progress()
        try:
            seen = interpret(
                self.function,
                grid,
                plain,
                self.constants,
                signature=self.signature,
                programs=self._settings.programs,
                progress=progress,
            )
        except NotInterpretableError as error:
            raise RefusalError(f"it cannot be interpreted: {error}") from error
        finally:
            progress.close()
        names = {p: self._names.get(id(argument), "") for p, argument in arguments.items()}
        named = {parameter: name for parameter, name in names.items() if name}
        chosen = {n: self.constants[n] for other in self.others for n in other if n in self.constants}
        remarks = (f"interpreted with{_listed('', chosen)}: {NO_RECORD}",) if chosen else ()
        self._findings = Findings(tuple(access.named(named) for access in seen.accesses), remarks)


@dataclass(frozen=True)
class _Image:
    """Machine code that is not loaded yet.

    Attributes:
        scratch_bytes: of the memory behind its last two parameters, for each program of the grid.
    """

    code: bytes
    name: str
    num_warps: int
    shared_bytes: int
    scratch_bytes: tuple[int, int]

    def load(self, *, overlaps: bool) -> Function:
        return Function(
            self.code, self.name, num_warps=self.num_warps, shared_bytes=self.shared_bytes, overlaps=overlaps
        )

    def scratch(self, grid: Sequence[int]) -> list[int]:
        return [size * math.prod(grid) for size in self.scratch_bytes]


def compile_kernel(kernel: TritonKernel, capability: int, other: Mapping[str, object] = MappingProxyType({})) -> _Image:
    """Machine code of a kernel's source for a device of that capability (90: Hopper).

    Args:
        other: values that take the place of those of its constants and of num_stages.

    Raises:
        SystemExit: Triton refuses the source.
    """
    names = list(kernel.signature)
    attributes = {(names.index(name),): [["tt.divisibility", DIVISOR]] for name in kernel.divisible}
    constants = {name: other.get(name, value) for name, value in kernel.constants.items()}
    source = ASTSource(kernel.function, kernel.signature, constants, attributes)
    num_stages = other.get(STAGES, kernel.num_stages)
    options = {"num_warps": kernel.num_warps, STAGES: num_stages, **kernel.options}
    try:
        made = triton.compile(source, target=GPUTarget("cuda", capability, WARP), options=options)
    except Exception as error:
        raise SystemExit(f"Triton {triton.__version__} does not compile the kernel:\n{error}") from error
    about = made.metadata
    sizes = (getattr(about, "global_scratch_size", 0) or 0, getattr(about, "profile_scratch_size", 0) or 0)
    return _Image(made.asm["cubin"], about.name, about.num_warps, about.shared, sizes)


def _listed(before: str, values: Mapping[str, object]) -> str:
    """ ", with XBLOCK=1, num_stages=2"; "" where there are none."""
    return f"{before} {', '.join(f'{name}={value}' for name, value in values.items())}" if values else ""


def _passed(argument: TritonArgument) -> Value:
    if isinstance(argument, torch.Tensor):
        return ctypes.c_void_p(argument.data_ptr())
    return ctypes.c_void_p() if argument is None else argument


class _Progress:
    """A bar on a terminal; elsewhere a line on stderr from time to time."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._drawn = False

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        terminal = sys.stderr.isatty()
        if now - self._last < (BAR_SECONDS if terminal else PROGRESS_SECONDS) and not (self._drawn and done == total):
            return
        self._last = now
        text = f"{done} of {total} programs"
        if not terminal:
            print(text, file=sys.stderr)
            return
        filled = BAR_WIDTH * done // max(total, 1)
        self._drawn = done < total
        end = "" if self._drawn else "\n"
        print(f"\r[{'#' * filled}{' ' * (BAR_WIDTH - filled)}] {text}", end=end, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Ends the line of a bar that is not full."""
        if self._drawn:
            print(file=sys.stderr)
            self._drawn = False

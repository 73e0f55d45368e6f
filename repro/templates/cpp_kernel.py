"""A generated C++ kernel: compiled as the package compiled it, or with checked pointers, and called."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import torch

from .checked import CheckedCalls
from .cpp_build import CppCompiler, library_of
from .kernel import NATIVE, Findings, Number, Programs, Settings
from .sanitizers import Runtime, runtime_of

__all__ = ["CppCompiler", "CppKernel"]

CHECKED = "checked"

CppArgument: TypeAlias = torch.Tensor | Number | None


class CppKernel:
    """A C++ function with C linkage. Tensors are passed as their data pointers, numbers as ctypes values."""

    backends: tuple[str, ...] = (NATIVE, CHECKED)
    grid: tuple[int, ...] = ()

    def __init__(self, name: str, source: str, compiler: CppCompiler) -> None:
        self.name = name
        self.source = source
        self.compiler = compiler
        self._library: ctypes.CDLL | None = None
        self._scalars: Mapping[int, int] = {}
        self._checked: CheckedCalls | None = None
        self._names: dict[int, str] = {}
        self._passed: list[CppArgument] | None = None

    def default_backend(self) -> str:
        """The package's own code."""
        return NATIVE

    def device(self, backend: str, recorded: str) -> str:
        """The recorded device."""
        return recorded

    def part(self, backend: str) -> Programs:
        """It has no programs."""
        return "none"

    def tolerance(self, backend: str) -> float:
        """Outputs are compared bit for bit."""
        return 0.0

    def name_arguments(self, arguments: Mapping[str, torch.Tensor]) -> None:
        """Sets the argument names for the findings."""
        self._names = {id(tensor): name for name, tensor in arguments.items()}

    def function_name(self, backend: str) -> str:
        """The name of the function, which has C linkage."""
        return self.name

    def passed_by(self, launch: Callable[[], object]) -> Mapping[str, CppArgument]:
        """The values that a launch passes, by parameter; nothing is launched."""
        self._passed = []
        try:
            launch()
        finally:
            passed, self._passed = self._passed, None
        return dict(zip(self._parameters(), passed, strict=False))

    def _parameters(self) -> list[str]:
        """The names of the parameters, from the source."""
        head = re.search(rf"\b{re.escape(self.name)}\s*\(([^()]*)\)", self.source)
        return re.findall(r"(\w+)\s*(?:,|\Z)", head[1].strip()) if head else []

    def findings(self) -> Findings | None:
        """The out-of-bounds accesses of the last launch, with checked pointers only."""
        return None if self._checked is None else Findings(self._checked.accesses)

    def prepare(self, settings: Settings) -> None:
        """Compiles and loads the kernel; what was compiled before from the same text and command is used again.

        Raises:
            SystemExit: the compiler cannot be run or refuses the source, its messages are shown; or the source is of
                no form whose pointers can be checked.
        """
        self._scalars = settings.scalars
        self._checked = None
        if settings.backend == CHECKED:
            self._checked = CheckedCalls(self.name, self.source, self.compiler, settings.folder)
            self._library = self._checked.library
        else:
            self._library = ctypes.CDLL(str(self.build(settings)))
        self._library.replay_call.restype = ctypes.c_char_p

    def build(self, settings: Settings) -> Path:
        """The compiled library; its source lies beside it.

        Raises:
            SystemExit: as `prepare`.
        """
        flags = self.sanitizer().flags if settings.sanitize else settings.flags
        return library_of(self.compiler, self.source, self.name, settings.folder, flags)

    def sanitizer(self) -> Runtime:
        """AddressSanitizer of the compiler.

        Raises:
            SystemExit: it has none.
        """
        return runtime_of(self.compiler.program)

    def __call__(self, *arguments: CppArgument) -> None:
        """Launches the kernel.

        Raises:
            RuntimeError: an exception left it, or the arguments do not fit its parameters.
        """
        if self._passed is not None:
            self._passed += arguments
            return
        if self._checked is None:
            message = self._call([self._value(argument) for argument in arguments])
        else:
            checked = self._checked
            values = [
                checked.pointer(i, a) if a is None or isinstance(a, torch.Tensor) else self._value(a)
                for i, a in enumerate(arguments)
            ]
            tensors = [a if isinstance(a, torch.Tensor) else None for a in arguments]
            names = [self._names.get(id(tensor), "") for tensor in tensors]
            message = checked.run(lambda: self._call(values), tensors, names)
        if message is not None:
            raise RuntimeError(message)

    def _call(self, values: Sequence[ctypes._CData]) -> str | None:
        """The text of the exception that left the kernel; None if none did."""
        assert self._library is not None, "prepare() comes first"
        count = len(values)
        addresses = (ctypes.c_void_p * count)(*(ctypes.addressof(value) for value in values))
        sizes = (ctypes.c_size_t * count)(*(ctypes.sizeof(value) for value in values))
        kernel = ctypes.cast(getattr(self._library, self.name), ctypes.c_void_p)
        message: bytes | None = self._library.replay_call(kernel, addresses, sizes, ctypes.c_size_t(count))
        return None if message is None else message.decode(errors="replace")

    def _value(self, argument: CppArgument) -> ctypes._CData:
        """The value to pass: a data pointer, a number, or a null pointer."""
        if argument is None or isinstance(argument, torch.Tensor):
            return ctypes.c_void_p(None if argument is None else argument.data_ptr())
        value = argument.value
        if isinstance(value, int) and not isinstance(value, bool) and value in self._scalars:
            return type(argument)(self._scalars[value])
        return argument

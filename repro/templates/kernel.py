"""The interface of the kernel that a repro launches."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import torch

from .accesses import Access, lines_of

NATIVE = "native"  # the back end that runs a kernel as the package does; where it is the default, nothing names it

Programs = Literal["none", "leading", "any"]  # which part of its grid a kernel can be launched with

# What a kernel is passed by value.
Number: TypeAlias = (
    ctypes.c_bool
    | ctypes.c_int8
    | ctypes.c_int16
    | ctypes.c_int32
    | ctypes.c_int64
    | ctypes.c_uint8
    | ctypes.c_uint16
    | ctypes.c_uint32
    | ctypes.c_uint64
    | ctypes.c_float
    | ctypes.c_double
)


@dataclass(frozen=True)
class Settings:
    """The settings that a kernel is prepared with.

    Attributes:
        folder: of the repro; what is built may be kept there.
        backend: one of the kernel's back ends; "" where it has none to choose from.
        sanitize: "" or "address": a C++ kernel with AddressSanitizer and UBSan.
        flags: further ones to compile with. Only C++ kernels.
        programs: run these programs of the grid only, as (x, y, z); () for all. Only where `part` is "any".
        grid: launch this grid instead of the recorded one; None for the recorded. Only where `part` is not "none".
        scalars: integers of the call to replace, by their value. Only C++ kernels.
        extents: argument name -> (first element of the argument in its storage, elements of the storage).
    """

    folder: Path
    backend: str = ""
    sanitize: str = ""
    flags: tuple[str, ...] = ()
    programs: tuple[tuple[int, int, int], ...] = ()
    grid: tuple[int, int, int] | None = None
    scalars: Mapping[int, int] = field(default_factory=dict)
    extents: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Findings:
    """The findings of a back end, besides the outputs.

    Attributes:
        accesses: wrong ones; each is a fault.
        remarks: what else there is to say, a line each.
    """

    accesses: tuple[Access, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def outside(self) -> int:
        """The number of wrong accesses; an assertion counts once."""
        return sum(1 if access.seen_by == "assertion" else access.count for access in self.accesses)

    @property
    def lines(self) -> list[str]:
        """To print."""
        return [*(line for access in self.accesses for line in lines_of(access)), *self.remarks]


class RefusalError(Exception):
    """A launch cannot be run in this way; it is no fault of the launch."""


class NotInterpretableError(RuntimeError):
    """The kernel does something that the interpreter cannot do; the text says what."""


class ReplayKernel(Protocol):
    """A kernel with its source or binary; the repro's `launch` calls it."""

    @property
    def backends(self) -> tuple[str, ...]:
        """The ways in which it can be run; () if there is one only."""
        ...

    @property
    def grid(self) -> tuple[int, ...]:
        """The number of programs that it is launched with, along x, y and z; () if it has no programs."""
        ...

    def default_backend(self) -> str:
        """The back end to take where the user names none; "" where there is one only."""
        ...

    def device(self, backend: str, recorded: str) -> str:
        """The device for tensors that were on the recorded one."""
        ...

    def part(self, backend: str) -> Programs:
        """The parts of its grid that it can run: any programs, a smaller grid, or none."""
        ...

    def tolerance(self, backend: str) -> float:
        """The allowed difference from the recorded outputs, absolute and relative; 0.0: bit for bit."""
        ...

    def prepare(self, settings: Settings) -> None:
        """Compiles or loads it, before the tensors are made.

        Raises:
            SystemExit: it cannot be made ready; the text says why.
        """
        ...

    def function_name(self, backend: str) -> str:
        """The name of the kernel in its machine code."""
        ...

    def passed_by(self, launch: Callable[[], object]) -> Mapping[str, object]:
        """The values that a launch passes, by the kernel's parameter; nothing is launched."""
        ...

    def name_arguments(self, arguments: Mapping[str, torch.Tensor]) -> None:
        """Sets the names of the next launch's arguments, for the findings."""
        ...

    def findings(self) -> Findings | None:
        """The findings of the last launch; None if the back end looks for none."""
        ...

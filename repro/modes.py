"""The modes in which this machine can run a repro."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from aoti_debug.base.frozen import dataclass
from aoti_debug.package.launch_traits import traits_of
from aoti_debug.package.manifest import KernelCompilation, Kind


@dataclass(frozen=True)
class Mode:
    """A way of running a repro.

    Attributes:
        name: "jit", "checked", "memcheck", "poison", …
        words: the options that ask for it.
        missing: the reason why it cannot be run here; "" if it can.
    """

    name: str
    words: tuple[str, ...]
    missing: str = ""


@dataclass(frozen=True)
class Machine:
    """The tools that repros need, each with the reason why it is missing; "" where it is installed."""

    cuda: str = ""
    triton: str = ""
    compute_sanitizer: str = ""
    compiler: str = ""
    address_sanitizer: str = ""


def this_machine(compiler: KernelCompilation, *, cuda: bool) -> Machine:
    """Looks for the tools on this machine.

    Args:
        compiler: of the package.
        cuda: True if torch finds a CUDA device here.
    """
    from aoti_debug.repro.templates import address_sanitizer, compute_sanitizer

    program = compiler.command if shutil.which(compiler.command) else Path(compiler.command).name
    no_compiler = "" if program and shutil.which(program) else f"{compiler.command or 'a C++ compiler'} was not found"
    return Machine(
        cuda="" if cuda else "torch finds no CUDA device here",
        triton="" if find_spec("triton") is not None else "triton is not installed",
        compute_sanitizer=_missing_reason(compute_sanitizer.find),
        compiler=no_compiler,
        address_sanitizer=no_compiler or _missing_reason(lambda: address_sanitizer.runtime_of(program)),
    )


def modes(kind: Kind, device: str, machine: Machine) -> tuple[Mode, ...]:
    """The ways to look for a fault of a launch, those that say most first.

    Args:
        kind: of the launch.
        device: that it ran on: "cpu", "cuda".
    """
    cuda = device != "cpu"
    no_sanitizer = machine.cuda or machine.compute_sanitizer
    watched = [Mode(tool, ("--sanitize", tool), no_sanitizer) for tool in ("memcheck", "initcheck")]
    poison = Mode("poison", ("--poison",), machine.cuda if cuda else "")
    replay = traits_of(kind).replay
    if replay == "triton":
        device_needs = machine.triton or machine.cuda
        return (
            Mode("interpret", ("--backend", "interpret"), machine.triton),
            Mode("cubin", ("--backend", "cubin"), device_needs),
            Mode("jit", ("--backend", "jit"), device_needs),
            *(Mode(m.name, m.words, machine.triton or m.missing) for m in watched),
            Mode("poison", ("--poison",), device_needs),
        )
    if replay == "cpp":
        return (
            Mode("checked", ("--backend", "checked"), machine.compiler),
            Mode("native", ("--backend", "native"), machine.compiler),
            Mode("address", ("--sanitize",), machine.address_sanitizer),
            Mode("poison", ("--poison",), machine.compiler),
        )
    return (Mode("operator", (), machine.cuda if cuda else ""), *(watched if cuda else ()), poison)


def _missing_reason(find: Callable[[], object]) -> str:
    """The reason why a tool is missing, in the words of the repro's modules; "" if it is there."""
    try:
        find()
    except SystemExit as error:
        return str(error)
    return ""

"""Which kernels of a fresh build are those of a given compiled package.

Triton kernels are compared by the hash of the machine code in their binaries. The machine code of a C++ kernel depends
on where it lies in its library, so these are compared by what they are compiled from: source and flags.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from aoti_debug import wrapper
from aoti_debug.builder import kernel_details
from aoti_debug.builder.kernel_text import normalised
from aoti_debug.errors import ArtifactError
from aoti_debug.frontend import compile_commands, sources
from aoti_debug.frontend.sources import Flags
from aoti_debug.machine.compiler import Torch
from aoti_debug.manifest import Kernel
from aoti_debug.pt2 import extract
from aoti_debug.pt2.archive import WRAPPER_SOURCE, Artifact, ArtifactKind

_NO_MATTER = ("TORCH_INDUCTOR_PRECOMPILE_HEADERS", "USE_MMAP_SELF", "USE_MMAP_EXTERNAL")
_ONLY_OUTPUT = ("fPIC", "shared", "g1", "fno-omit-frame-pointer")


@dataclass(frozen=True)
class KernelDifference:
    kernel: str
    reason: str  # "its source differs"


@dataclass(frozen=True)
class KernelComparison:
    """
    Attributes:
        package: the file that was compared with.
        kernels: how many the fresh build has.
        different: of these, those that are not in the package.
        missing: kernels of the package that the fresh build does not have, under any name.
    """

    package: Path
    kernels: int
    different: tuple[KernelDifference, ...]
    missing: tuple[str, ...]

    def __str__(self) -> str:
        same = self.kernels - len(self.different)
        return f"{same} of {self.kernels} kernels identical to those of {self.package.name}"


@dataclass(frozen=True)
class Kernels:
    """The kernels of one build.

    Attributes:
        flags: that its C++ kernels were compiled with.
    """

    kernels: tuple[Kernel, ...]
    flags: frozenset[str]


def flags_of(flags: Flags) -> frozenset[str]:
    """What of a compiler's flags may change the code of a kernel; no directories."""
    definitions = (definition.strip() for definition in flags.definitions)
    words = (*flags.cflags, *(word.removeprefix("-") for word in flags.passthrough))
    return frozenset(
        [
            *(f"-D{name}" for name in definitions if name not in (*_NO_MATTER, "NDEBUG")),
            *(f"-{word}" for word in words if word not in _ONLY_OUTPUT and not word.startswith(("W", "DNDEBUG"))),
        ]
    )


def read(package: Artifact, model: str, directory: Path, torch: Torch) -> Kernels:
    """The kernels of a model of a package, unpacked in an empty directory.

    Raises:
        ArtifactError: it holds no sources, or is damaged.
    """
    extract.unpack(package, model, directory)
    if package.kind is ArtifactKind.SOURCES:
        found = sources.read(directory, wrapper_opt="")
        text, kernels, flags = found.wrapper, found.kernels, flags_of(found.compile_flags)
    else:
        if not package.has_source(model):
            raise ArtifactError(
                f"{package.path} holds no source of its wrapper",
                hint="its kernels can only be compared if its sources are in it",
            )
        text = extract.read_text(extract.single_file(package, directory, WRAPPER_SOURCE))
        kernels = "".join(extract.read_text(path) for path in sorted(directory.glob("*.kernel.cpp")))
        commands = compile_commands.parse(kernels, torch.directory) or compile_commands.parse(text, torch.directory)
        flags = frozenset() if commands is None else flags_of(commands.compile)
        kernels = sources.COMMANDS.sub("", kernels)
    return Kernels(kernel_details.with_configs(wrapper.kernels_of(text, kernels), {}, directory), flags)


def compare(package: Path, fresh: Kernels, other: Kernels) -> KernelComparison:
    """
    Args:
        package: which `other` comes from.
    """
    theirs, ours = _identities(other), _identities(fresh)
    different = tuple(
        KernelDifference(kernel.name, _reason(kernel, fresh, other))
        for identity, kernel in zip(ours, fresh.kernels, strict=True)
        if identity not in theirs
    )
    missing = tuple(
        kernel.name
        for identity, kernel in zip(theirs, other.kernels, strict=True)
        if identity not in ours and kernel.name not in {found.kernel for found in different}
    )
    return KernelComparison(package, len(fresh.kernels), different, missing)


def _identities(found: Kernels) -> list[tuple[object, ...]]:
    return [_identity(kernel, found.flags) for kernel in found.kernels]


def _identity(kernel: Kernel, flags: frozenset[str]) -> tuple[object, ...]:
    if kernel.language == "triton" and kernel.code_sha256:
        return (kernel.code_sha256,)
    return (normalised(kernel), flags if kernel.language == "cpp" else "")


def _reason(kernel: Kernel, fresh: Kernels, other: Kernels) -> str:
    text = normalised(kernel)
    twins = [found for found in other.kernels if found.language == kernel.language and normalised(found) == text]
    if not twins:
        named = any(found.name == kernel.name for found in other.kernels)
        return "its source differs" if named else "the package has no such kernel"
    if kernel.language == "triton":
        return "equal source, another kernel binary"
    return f"equal source, other compiler flags: {' '.join(_flag_changes(fresh.flags, other.flags))}"


def _flag_changes(fresh: Iterable[str], other: Iterable[str]) -> Iterator[str]:
    """ "+-O3" of a flag that only the fresh build has, "--O2" of one that only the package has."""
    ours, theirs = set(fresh), set(other)
    yield from (f"+{flag}" for flag in sorted(ours - theirs))
    yield from (f"-{flag}" for flag in sorted(theirs - ours))

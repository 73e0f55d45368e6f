"""Completes what is known of kernels, compares those of two packages, and verifies that a package has kept its own.

Triton kernels are compared by the hash of the machine code in their binaries. The machine code of a C++ kernel depends
on where it lies in its library, so these are compared by what they are compiled from: source and flags.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from aoti_debug.base.errors import ArtifactError, InternalError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.compiler import Torch
from aoti_debug.instrument.frontend import sources
from aoti_debug.instrument.frontend.lowered_model import LoweredModel
from aoti_debug.instrument.frontend.protocol.messages import TritonConfig
from aoti_debug.instrument.frontend.sources import Flags
from aoti_debug.instrument.wrapper.analysis import kernels_of
from aoti_debug.instrument.wrapper.launches.kernels import helpers_of
from aoti_debug.package.manifest import Kernel, PackageOrigin
from aoti_debug.package.pt2 import extract, kernel_hashes
from aoti_debug.package.pt2.archive import WRAPPER_SOURCE, Artifact, ArtifactKind
from aoti_debug.package.triton_config import infer_config

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_PYTHON_COMMENT = re.compile(r"#[^\n]*")
_INCLUDE = re.compile(r"^\s*#\s*include[^\n]*$", re.MULTILINE)
_SPACE = re.compile(r"\s+")
_NAME = "kernel"
HELPERS = "_inductor/runtime/triton_helpers.py"  # below torch's directory
_MACHINE = re.compile(r"^[ \t]*inductor_meta=\{.*\},$|'device': DeviceProperties\([^()]*\), ", re.MULTILINE)


def normalised_source(kernel: Kernel) -> str:
    """The kernel's source without comments, includes and decorators, with a fixed name and single spaces.

    It is equal for kernels that differ only in names, comments and spaces. The decorator of a kernel that the user has
    written holds its constants; all but Inductor's settings and the properties of the GPU stays.
    """
    if kernel.language == "triton":
        definition = re.search(rf"^[ \t]*def {re.escape(kernel.name)}\(", kernel.source, re.MULTILINE)
        text = kernel.source[definition.start() :] if definition else _MACHINE.sub("", kernel.source)
        text = _PYTHON_COMMENT.sub("", text)
    else:
        text = _COMMENT.sub("", _INCLUDE.sub("", kernel.source))
    return _SPACE.sub(" ", re.sub(rf"\b{re.escape(kernel.name)}\b", _NAME, text)).strip()


def complete_kernels(
    kernels: Iterable[Kernel], configs: Mapping[str, TritonConfig], directory: Path
) -> tuple[Kernel, ...]:
    """Adds the configuration that each Triton kernel was compiled with, and the hashes of its binary.

    The configuration of a kernel that is not in `configs` is inferred as far as possible.

    Args:
        configs: kernel name -> configuration that Inductor recorded.
        directory: the folder of the kernel binaries.
    """
    return tuple(_complete(k, configs, directory) if k.language == "triton" else k for k in kernels)


def triton_helpers(kernels: Iterable[Kernel], torch_directory: Path) -> str:
    """The source of Inductor's helper functions that the Triton kernels call, from the torch that compiled them."""
    sources = [k.source for k in kernels if k.language == "triton" and k.source]
    path = torch_directory / HELPERS
    return helpers_of(sources, path.read_text()) if sources and path.is_file() else ""


def _complete(kernel: Kernel, configs: Mapping[str, TritonConfig], directory: Path) -> Kernel:
    binary = directory / kernel.cubin
    if kernel.cubin and binary.is_file():
        whole, code = kernel_hashes.hash_binary(binary)
        kernel = replace(kernel, cubin_sha256=whole, code_sha256=code)
    config = configs.get(kernel.name)
    if config is None:
        return infer_config(kernel)
    return replace(
        kernel, config=config.values, global_scratch=config.global_scratch, profile_scratch=config.profile_scratch
    )


_IRRELEVANT_MACROS = ("TORCH_INDUCTOR_PRECOMPILE_HEADERS", "USE_MMAP_SELF", "USE_MMAP_EXTERNAL")
_IRRELEVANT_FLAGS = ("fPIC", "shared", "g1", "fno-omit-frame-pointer")


@dataclass(frozen=True)
class KernelDifference:
    """A kernel of the new build that the package does not have, with the reason."""

    kernel: str
    reason: str  # "its source differs"


@dataclass(frozen=True)
class KernelComparison:
    """The result of a comparison.

    Attributes:
        package: the file of the compiled package.
        kernels: number of kernels of the new build.
        different: kernels of the new build that are not in the package.
        missing: kernels of the package that the new build does not have, under any name.
    """

    package: Path
    kernels: int
    different: tuple[KernelDifference, ...]
    missing: tuple[str, ...]

    def __str__(self) -> str:
        same = self.kernels - len(self.different)
        return f"{same} of {self.kernels} kernels identical to those of {self.package.name}"


@dataclass(frozen=True)
class KernelSet:
    """The kernels of one build.

    Attributes:
        flags: the compiler flags of its C++ kernels.
    """

    kernels: tuple[Kernel, ...] = ()
    flags: frozenset[str] = frozenset()


def relevant_flags(flags: Flags) -> frozenset[str]:
    """The compiler flags that may change the code of a kernel, without directories."""
    definitions = (definition.strip() for definition in flags.definitions)
    words = (*flags.cflags, *(word.removeprefix("-") for word in flags.passthrough))
    return frozenset(
        [
            *(f"-D{name}" for name in definitions if name not in (*_IRRELEVANT_MACROS, "NDEBUG")),
            *(f"-{word}" for word in words if word not in _IRRELEVANT_FLAGS and not word.startswith(("W", "DNDEBUG"))),
        ]
    )


def read_kernels(package: Artifact, model: str, directory: Path, torch: Torch) -> KernelSet:
    """Reads the kernels of one model of a package, which is unpacked to an empty directory.

    Raises:
        ArtifactError: it holds no sources, or is damaged.
    """
    extract.unpack(package, model, directory, left_out=".so")
    if package.kind is ArtifactKind.SOURCES:
        unpacked = sources.read(directory, wrapper_opt="")
        text, kernels, flags = unpacked.wrapper, unpacked.kernels, relevant_flags(unpacked.compile_flags)
    else:
        if not package.has_source(model):
            raise ArtifactError(
                f"{package.path} holds no source of its wrapper",
                hint="its kernels can only be compared if its sources are in it",
            )
        text = extract.read_text(extract.single_file(package, directory, WRAPPER_SOURCE))
        kernels = "".join(extract.read_text(path) for path in sorted(directory.glob("*.kernel.cpp")))
        commands = sources.parse_commands(kernels, torch.directory) or sources.parse_commands(text, torch.directory)
        flags = frozenset() if commands is None else relevant_flags(commands.compile)
        kernels = sources.COMMANDS.sub("", kernels)
    return KernelSet(complete_kernels(kernels_of(text, kernels), {}, directory), flags)


def compare(package: Path, fresh: KernelSet, other: KernelSet) -> KernelComparison:
    """Compares the kernels of a new build with those of a package.

    Args:
        package: the file that `other` was read from.
    """
    other_identities, fresh_identities = _identities(other), _identities(fresh)
    different = tuple(
        KernelDifference(kernel.name, _reason(kernel, fresh, other))
        for identity, kernel in zip(fresh_identities, fresh.kernels, strict=True)
        if identity not in other_identities
    )
    missing = tuple(
        kernel.name
        for identity, kernel in zip(other_identities, other.kernels, strict=True)
        if identity not in fresh_identities and kernel.name not in {difference.kernel for difference in different}
    )
    return KernelComparison(package, len(fresh.kernels), different, missing)


def _identities(build: KernelSet) -> list[tuple[object, ...]]:
    return [_identity(kernel, build.flags) for kernel in build.kernels]


def _identity(kernel: Kernel, flags: frozenset[str]) -> tuple[object, ...]:
    if kernel.language == "triton" and kernel.code_sha256:
        return (kernel.code_sha256,)
    if not kernel.source:
        return (object(),)  # it equals nothing: neither its binary nor its source is known
    return (normalised_source(kernel), flags if kernel.language == "cpp" else "")


def _reason(kernel: Kernel, fresh: KernelSet, other: KernelSet) -> str:
    text = normalised_source(kernel)
    candidates = [candidate for candidate in other.kernels if candidate.language == kernel.language]
    namesake = next((candidate for candidate in candidates if candidate.name == kernel.name), None)
    if namesake is not None and not (kernel.source and namesake.source):
        known = kernel.code_sha256 and namesake.code_sha256
        return "another kernel binary" if known else "neither its binary nor its source can be compared"
    if not any(normalised_source(candidate) == text for candidate in candidates):
        same_name = any(candidate.name == kernel.name for candidate in other.kernels)
        return "its source differs" if same_name else "the package has no such kernel"
    if kernel.language == "triton":
        return "equal source, another kernel binary"
    return f"equal source, other compiler flags: {' '.join(_flag_changes(fresh.flags, other.flags))}"


def _flag_changes(fresh: Iterable[str], other: Iterable[str]) -> Iterator[str]:
    """Yields "+-O3" for a flag that only the new build has, "--O2" for one that only the package has."""
    fresh_flags, other_flags = set(fresh), set(other)
    yield from (f"+{flag}" for flag in sorted(fresh_flags - other_flags))
    yield from (f"-{flag}" for flag in sorted(other_flags - fresh_flags))


def original_hashes(lowered: LoweredModel) -> Mapping[str, str]:
    """SHA-256 of the machine code of each kernel of a compiled package, by name; empty for an exported program."""
    return {} if lowered.source is PackageOrigin.EXPORTED else kernel_hashes.hash_files(lowered.sources.shipped)


def verify_originals(package: Artifact, originals: Mapping[str, str], model: str) -> None:
    """Compares the kernels of the package that was written with the original ones.

    Raises:
        InternalError: they differ.
    """
    if not originals:
        return
    comparison = kernel_hashes.compare(originals, kernel_hashes.hash_package(package, model))
    if comparison.different:
        raise InternalError(
            f"{package.path}: {comparison}; not {', '.join(comparison.different)}", hint="report this as a bug"
        )

"""Checks that a compiled package can run on this machine (system, processor, GPU) and with the installed torch.

A package does not name its torch. Evidence: functions of the C shim that its library needs, headers that its wrapper
includes, and the C++ standard that it was compiled with.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from aoti_debug.base.errors import ArtifactError, ToolchainError
from aoti_debug.base.machine.compiler import Compiler, Torch, this_processor
from aoti_debug.base.machine.files import json_data
from aoti_debug.base.native.elf import Library
from aoti_debug.instrument.frontend.sources import Flags, Sources
from aoti_debug.package.pt2.archive import Artifact

# Inductor's names of instruction sets -> what Linux calls the features that they need.
_FLAGS: Mapping[str, tuple[str, ...]] = {
    "AVX2": ("avx2", "fma"),
    "AVX512": ("avx512f", "avx512dq", "avx512vl", "avx512bw", "fma"),
    "AVX512_VNNI": ("avx512_vnni",),
    "AVX512_BF16": ("avx512_bf16",),
    "AMX": ("amx_tile",),
    "AMX_TILE": ("amx_tile",),
    "AMX_FP16": ("amx_fp16",),
    "ASIMD": ("asimd",),
    "NEON": ("asimd",),
    "SVE": ("sve",),
    "SVE128": ("sve",),
    "SVE256": ("sve",),
}
_MACHINES: Mapping[int, str] = {21: "ppc64le", 62: "x86_64", 183: "aarch64", 243: "riscv64"}  # numbers of <elf.h>
METADATA = ".wrapper_metadata.json"
_INCLUDE = re.compile(r"^#include <(torch/[^>\n]+)>", re.MULTILINE)
_DECLARED = re.compile(r"\b(aoti_\w+)\(")
_EXTERN = re.compile(r'^\s*extern "C" [^;{]*;', re.MULTILINE)
_STANDARD = re.compile(r"std=(?:c|gnu)\+\+(\d\d)")
_DEFAULT = re.compile(r'\bstd_num: str = "c\+\+(\d\d)"')
_CPP_BUILDER = "_inductor/cpp_builder.py"  # below torch's directory
_SHIM = "aoti_"
_LISTED = 5
_NO_CUDA = re.compile(r"fatal error: '?((?:cuda|nvrtc)\w*\.h)'?(?:: No such file| file not found)")
CUDA_HINT = "install the CUDA toolkit, or set CUDA_HOME to its directory"
TORCH_HINT = "install the torch that compiled it, or build from the exported program"


def parse_metadata(path: Path, name: str, text: str | bytes) -> dict[str, str]:
    """Parses a `*.wrapper_metadata.json`.

    Args:
        path, name: of the package and of the file, for the message.

    Raises:
        ArtifactError: the text is damaged.
    """
    try:
        return {key: str(value) for key, value in json_data.parse_object(text).items()}
    except json_data.DamagedJsonError as error:
        raise ArtifactError(
            f"{name} of {path} is damaged: {error}", hint="copy or compile the package again"
        ) from error


def check_machine(path: Path, metadata: Mapping[str, Any]) -> None:
    """Checks that this machine has the system and the processor that a package was compiled for.

    Args:
        path: of the package, for the message.
        metadata: its `*.wrapper_metadata.json`.

    Raises:
        ArtifactError: the package was compiled for another system, or uses instructions that this processor lacks.
    """
    system = str(metadata.get("AOTI_PLATFORM", ""))
    if system and system != platform.system().lower():
        raise ArtifactError(
            f"{path} was compiled for {system}; this machine runs {platform.system()}",
            hint="run it on a machine of that kind",
        )
    machine = str(metadata.get("AOTI_MACHINE", ""))
    if machine and machine != os.uname().machine:
        raise ArtifactError(
            f"{path} was compiled for {machine}; this machine is {os.uname().machine}",
            hint="run it on a machine of that kind",
        )
    missing = missing_instruction_sets(str(metadata.get("AOTI_CPU_ISA", "")), this_processor().features)
    if missing:
        raise ArtifactError(
            f"{path} was compiled for a processor with {', '.join(missing)}, which this one lacks",
            hint="run it on a machine with such a processor",
        )


def check_library(path: Path, library: Path) -> None:
    """Checks that a package's library is an ELF library for this machine's architecture.

    Args:
        path: of the package, for the message.
        library: unpacked from the package.

    Raises:
        ArtifactError: the file is not a library, or holds code of another architecture.
    """
    try:
        with Library(library) as elf:
            number = elf.machine
    except (OSError, ValueError) as error:
        raise ArtifactError(
            f"{library.name} is no library: {error}", hint="copy or compile the package again"
        ) from error
    host = os.uname().machine
    machine = _MACHINES.get(number, f"machine {number} of the ELF format")
    if host in _MACHINES.values() and machine != host:
        raise ArtifactError(
            f"{path} holds a library for {machine}; this machine is {host}", hint="run it on a machine of that kind"
        )


def missing_instruction_sets(instruction_sets: str, flags: frozenset[str]) -> tuple[str, ...]:
    """Returns those of the instruction sets ("AVX512 AVX512_VNNI") that a processor lacks.

    Args:
        flags: features of the processor, as Linux names them; if empty (unknown), nothing counts as missing.
    """
    if not flags:
        return ()
    return tuple(name for name in instruction_sets.split() if not flags.issuperset(_FLAGS.get(name.upper(), ())))


def check_this_gpu(package: Artifact, folder: str) -> None:
    """Checks that this machine's GPU can run a model of a package.

    Args:
        folder: of the model in the package, with a slash at its end.

    Raises:
        ArtifactError: this machine has no GPU, or one that the package was not compiled for.
    """
    import torch

    if not torch.cuda.is_available():
        raise ArtifactError(
            f"{package.path} was compiled for a GPU, and torch {torch.__version__} finds none here",
            hint="see what is missing: aoti-debug doctor",
        )
    for member in package.members:
        if member.startswith(folder) and member.endswith(METADATA):
            metadata = parse_metadata(package.path, member, package.read(member))
            check_gpu(package.path, metadata, torch.cuda.get_device_capability())


def check_gpu(path: Path, metadata: Mapping[str, Any], capability: tuple[int, int]) -> None:
    """Checks the compute capability that a package was compiled for against a GPU's.

    Kernel binaries need the same major version and at least the same minor version.

    Args:
        capability: of the GPU, (9, 0).

    Raises:
        ArtifactError: the package's kernel binaries do not run on such a GPU.
    """
    compiled = str(metadata.get("AOTI_COMPUTE_CAPABILITY", ""))
    if not compiled.isdigit():
        return
    major, minor = int(compiled[:-1] or 0), int(compiled[-1])
    if major != capability[0] or minor > capability[1]:
        raise ArtifactError(
            f"{path} was compiled for a GPU of compute capability {major}.{minor}; this one has "
            f"{capability[0]}.{capability[1]}",
            hint="run it on such a GPU, or build it from the exported program here",
        )


def check_torch(path: Path, wrapper: str, library: Path | None, torch: Torch) -> None:
    """Checks that the installed torch has the headers and C shim functions that a package needs.

    Args:
        path: file of the package, for the message.
        wrapper: its C++ source.
        library: its compiled library; None if it holds sources.

    Raises:
        ToolchainError: the installed torch lacks some of them.
        ArtifactError: the library is not an ELF file.
    """
    headers = [name for name in dict.fromkeys(_INCLUDE.findall(wrapper)) if not _header(name, torch).exists()]
    functions = [] if library is None else missing_functions(wrapper, library, torch)
    for kind, names in (("headers", headers), ("functions of the C shim", functions)):
        if names:
            raise ToolchainError(
                f"{path} was compiled by another torch than the installed {torch.version}, which lacks {kind} that it "
                f"needs: {_listed(names)}",
                hint=TORCH_HINT,
            )


def missing_functions(wrapper: str, library: Path, torch: Torch) -> list[str]:
    """The functions of the C shim that a library needs and the installed torch does not have, sorted.

    Functions that the wrapper itself declares belong to a library of the user's operators and are left out.
    """
    declared = {name for text in _EXTERN.findall(wrapper) for name in _DECLARED.findall(text)}
    needed = {name for name in _symbols(library, Library.undefined_symbols) if name.startswith(_SHIM)} - declared
    for shared in sorted((torch.directory / "lib").glob("libtorch_c*.so")):
        needed -= _symbols(shared, partial(Library.defined, symbols=frozenset(needed))) if needed else set()
    return sorted(needed)


def use_installed_standard(flags: Flags, torch: Torch) -> tuple[Flags, str]:
    """Replaces the C++ standard in the flags by that of the installed torch, whose headers may need it.

    Returns:
        The flags, and a note if the package was compiled with another standard, "" otherwise.
    """
    installed = _DEFAULT.search(_text(torch.directory / _CPP_BUILDER))
    compiled = next((match for flag in flags.cflags if (match := _STANDARD.fullmatch(flag))), None)
    if installed is None or compiled is None or installed.group(1) == compiled.group(1):
        return flags, ""
    cflags = tuple(f"std=c++{installed.group(1)}" if flag == compiled.group() else flag for flag in flags.cflags)
    note = (
        f"another torch than the installed {torch.version} compiled it: as C++{compiled.group(1)}, this one compiles "
        f"C++{installed.group(1)}"
    )
    return replace(flags, cflags=cflags), note


def explain_compile_error(error: ToolchainError, sources: Sources, compiler: Compiler, torch: Torch) -> ToolchainError:
    """The error of package sources that do not compile or link here, with the possible reasons added."""
    missing = _NO_CUDA.search(str(error))
    if missing is not None:
        return ToolchainError(f"the package is for a GPU, and there is no {missing[1]} here", hint=CUDA_HINT)
    reason = sources.other_torch or (
        f"a package does not name its torch: it may be another one than the installed {torch.version}"
    )
    package_compiler = Path(sources.compile_flags.compiler).name
    if ("clang" in package_compiler) != compiler.is_clang:
        reason += f"; it was compiled with {package_compiler}, and CXX is {compiler.path} here"
    return ToolchainError(f"{error}\n{reason}", hint=TORCH_HINT)


def _header(name: str, torch: Torch) -> Path:
    return torch.directory / "include" / name


def _symbols(path: Path, kind: Callable[[Library], frozenset[str]]) -> frozenset[str]:
    try:
        with Library(path) as library:
            return kind(library)
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{path.name} is no library: {error}", hint="copy or compile the package again") from error


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _listed(names: Iterable[str]) -> str:
    all_names = list(names)
    more = f" and {len(all_names) - _LISTED} more" if len(all_names) > _LISTED else ""
    return f"{', '.join(all_names[:_LISTED])}{more}"

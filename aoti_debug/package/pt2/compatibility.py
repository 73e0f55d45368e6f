"""Checks that a compiled package can run on this machine: its system, processor and GPU."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aoti_debug.base.errors import ArtifactError
from aoti_debug.base.machine.compiler import this_processor
from aoti_debug.base.machine.files import json_data
from aoti_debug.base.native.elf import Library
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


def check(path: Path, metadata: Mapping[str, Any]) -> None:
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

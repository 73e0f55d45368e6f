"""From a compiled package to sources whose kernels, kernel binaries and weights are the package's own.

Only the wrapper is compiled anew. The package's library stays beside the new one, which takes the machine code of the
C++ kernels and the weights from it. A package of C++ sources has no such library: its kernels are compiled here.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import replace
from pathlib import Path

from aoti_debug import __version__, wrapper
from aoti_debug.errors import ArtifactError
from aoti_debug.frontend import compile_commands, exported_program, sources, torch_mismatch
from aoti_debug.frontend.lowered import Lowered, inputs_in
from aoti_debug.frontend.sources import Sources
from aoti_debug.frontend.worker import protocol
from aoti_debug.frontend.worker.protocol import Answer, Request
from aoti_debug.inputs import signature
from aoti_debug.machine import cache
from aoti_debug.machine.compiler import Torch
from aoti_debug.manifest import PackageOrigin
from aoti_debug.native.elf import Library
from aoti_debug.pt2 import compatibility, extract
from aoti_debug.pt2.archive import WEIGHTS_CONFIG, WRAPPER_SOURCE, Artifact, ArtifactKind
from aoti_debug.pt2.kernel_hashes import ORIGINAL
from aoti_debug.wrapper import input_checks, interface

WEIGHTS = "_binary_constants_bin_start"
WEIGHTS_END = "_binary_constants_bin_end"
_NOTHING = 1  # bytes of weights that a library without any has
_MAPPED = "USE_MMAP_SELF"
_CHILD = "aoti_debug.frontend.worker.query_operators"
_KERNEL_TEXT = ".kernel.cpp"
_TORCHS_OWN = ("aten.", "aten::")
_COMPILED_FROM = (".cpp", "kernel_information.json")
_WRAPPER_OPT = "O1"  # as a default package optimizes its wrapper


def adopt(package: Artifact, model: str, request: Request, torch: Torch, *, timeout: float) -> Lowered:
    """Makes ready what an instrumented package is built from.

    Args:
        model: which of the package's models.
        timeout: seconds for finding out what torch knows of its operators.

    Raises:
        ArtifactError: the package holds no wrapper source, is damaged, or was compiled for another machine.
        ToolchainError: torch cannot say what its operators are.
    """
    folder = Path(request.folder)
    directory = folder / "sources"
    directory.mkdir()
    extract.unpack(package, model, directory)
    of_sources = package.kind is ArtifactKind.SOURCES
    if not of_sources and not package.has_source(model):
        raise ArtifactError(
            f"{package.path} holds no source of its wrapper: there is nothing to instrument",
            hint=f"aoti-debug run and aoti-debug triage take it as it is and name its launches; for more, "
            f"{extract.UNCHANGED_PACKAGE_HINT}",
        )
    found = _uncompiled(package, directory, torch) if of_sources else _compiled(package, directory, torch)
    names = interface.inputs(found.wrapper)
    described = input_checks.signature(found.wrapper, names, found.device)
    (folder / protocol.SIGNATURE).write_text(signature.to_json(described))
    answer = _answer(package, request, found.extern_nodes, torch, timeout)
    return Lowered(
        sources=found,
        archive=package,
        inputs=inputs_in(folder, answer),
        signature_file=folder / protocol.SIGNATURE,
        log=folder / protocol.LOG,
        answer=answer,
        triton_configs=answer.triton_configs,
        model=model,
        source=PackageOrigin.UNCOMPILED if of_sources else PackageOrigin.COMPILED,
    )


def _uncompiled(package: Artifact, directory: Path, torch: Torch) -> Sources:
    """The sources of a `package_cpp_only` package, with the directories of this machine."""
    compatibility.check(package.path, _metadata(package, directory))
    if not any(directory.glob(f"*{sources.COMPILE_FLAGS}")):
        raise ArtifactError(
            f"{package.path} holds neither its library nor how to compile it",
            hint=extract.UNCHANGED_PACKAGE_HINT,
        )
    found = sources.read(directory, wrapper_opt=_WRAPPER_OPT)
    torch_mismatch.check(package.path, found.wrapper, None, torch)
    flags, note = torch_mismatch.with_standard(found.compile_flags, torch)
    return replace(
        found,
        other_torch=note,
        compile_flags=compile_commands.mapped(flags, torch.directory),
        link_flags=compile_commands.mapped(found.link_flags, torch.directory),
    )


def _compiled(package: Artifact, directory: Path, torch: Torch) -> Sources:
    """The sources in a directory of unpacked files, with the library under the name that it will be shipped with."""
    wrapper_path = extract.single_file(package, directory, WRAPPER_SOURCE)
    library = extract.single_file(package, directory, ".wrapper.so")
    text = extract.read_text(wrapper_path)
    commands = compile_commands.parse(text, torch.directory)
    if commands is None:
        raise ArtifactError(
            f"{package.path} does not say how it was compiled: its wrapper ends without the compiler's command",
            hint="compile it again with torch 2.11 or newer",
        )
    metadata = _metadata(package, directory)
    compatibility.check(package.path, metadata)
    compatibility.check_library(package.path, library)
    torch_mismatch.check(package.path, text, library, torch)
    flags, note = torch_mismatch.with_standard(commands.compile, torch)
    stem = wrapper_path.stem
    original = library.with_name(f"{stem}-{_digest(library)[:16]}{ORIGINAL}")
    library.rename(original)
    kernels = "".join(extract.read_text(path) for path in sorted(directory.glob(f"*{_KERNEL_TEXT}")))
    mapped = _take_mapped_weights(original) if _MAPPED in commands.compile.definitions else None
    return Sources(
        directory=directory,
        stem=stem,
        device=metadata["AOTI_DEVICE_KEY"],
        wrapper=sources.split_kernels(text)[0],
        kernels=sources.COMMANDS.sub("", kernels),
        extern_nodes=_text_if_there(directory / f"{stem}.json"),
        provenance=_text_if_there(directory / "kernel_information.json"),
        compile_flags=flags,
        link_flags=commands.link,
        objects=(),
        mapped_weights=mapped,
        shipped=tuple(
            path for path in sorted(directory.iterdir()) if not path.name.endswith(_COMPILED_FROM) and path != mapped
        ),
        wrapper_opt=commands.optimization,
        original=original,
        without_weights=_without_weights(original, directory),
        other_torch=note,
    )


def _metadata(package: Artifact, directory: Path) -> dict[str, str]:
    path = extract.single_file(package, directory, ".wrapper_metadata.json")
    found = compatibility.parse_metadata(package.path, path.name, path.read_bytes())
    if "AOTI_DEVICE_KEY" not in found:
        raise ArtifactError(
            f"{path.name} of {package.path} is damaged: AOTI_DEVICE_KEY is missing",
            hint="copy or compile the package again",
        )
    return found


def _text_if_there(path: Path) -> str:
    return extract.read_text(path) if path.exists() else ""


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _take_mapped_weights(library: Path) -> Path:
    """Moves the weights that lie behind the end of a library to a file: the new library looks behind its own end."""
    with Library(library) as found:
        size = int.from_bytes(found.bytes_at(WEIGHTS, 8), "little")
    if size > library.stat().st_size:
        raise ArtifactError(
            f"{library.name} lacks weights that should lie behind it", hint="copy or compile the package again"
        )
    weights = library.with_name("mapped_weights.bin")
    with library.open("rb") as source, weights.open("wb") as out:
        source.seek(library.stat().st_size - size)
        shutil.copyfileobj(source, out, 1 << 20)
    os.truncate(library, library.stat().st_size - size)
    return weights


def _without_weights(original: Path, directory: Path) -> str:
    """Why the package has no weights, for a model that may need some; "" where it has."""
    with Library(original) as library:
        exports = library.exported_symbols()
        if WEIGHTS_END in exports:
            size = library.symbol_address(WEIGHTS_END) - library.symbol_address(WEIGHTS)
        else:  # weights that were compiled from C++ have no end of their own
            size = library.symbol_size(WEIGHTS) if WEIGHTS in exports else 0
    kept = any(path.name == WEIGHTS_CONFIG for path in directory.iterdir())
    return "" if size > _NOTHING or kept else "it was compiled to be given its weights after it is loaded"


def _answer(package: Artifact, request: Request, extern_nodes: str, torch: Torch, timeout: float) -> Answer:
    """What torch knows of the operators; asked once for each torch and operators of its own that a model calls by the
    proxy executor, each time where the model calls operators of somebody else."""
    asked = replace(request, program=str(package.path.resolve()))
    targets = sorted(target.removeprefix("torch.ops.") for target in wrapper.proxy_targets(extern_nodes))
    if request.inputs or not all(target.startswith(_TORCHS_OWN) for target in targets):
        return exported_program.ask(_CHILD, asked, torch, timeout)

    def ask(folder: Path) -> None:
        protocol.write_answer(folder, exported_program.ask(_CHILD, replace(asked, folder=str(folder)), torch, timeout))

    known = protocol.read_answer(cache.entry("operators", cache.key(torch.fingerprint, __version__, *targets), ask))
    assert isinstance(known, Answer)
    return known

"""Prepares a compiled package for instrumentation; its kernels, kernel binaries and weights are kept.

Only the wrapper is compiled again. The original library stays beside the new one, which links the C++ kernels and the
weights from it. A package of C++ sources has no such library: its kernels are compiled here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from aoti_debug.base.errors import ArtifactError
from aoti_debug.base.machine import cache
from aoti_debug.base.machine.compiler import Torch
from aoti_debug.base.native.elf import Library
from aoti_debug.base.version import own_sources
from aoti_debug.instrument.frontend import compatibility, sources
from aoti_debug.instrument.frontend.lowered_model import LoweredModel, embedded_inputs
from aoti_debug.instrument.frontend.protocol import messages
from aoti_debug.instrument.frontend.protocol.messages import Answer, Request
from aoti_debug.instrument.frontend.sources import Sources
from aoti_debug.instrument.frontend.worker_process import WITHOUT_LOWERING, run_worker
from aoti_debug.instrument.wrapper import input_checks, model_variables
from aoti_debug.instrument.wrapper.launches.c_functions import proxy_targets
from aoti_debug.package.inputs import signature
from aoti_debug.package.manifest import PackageOrigin
from aoti_debug.package.pt2 import extract
from aoti_debug.package.pt2.archive import WEIGHTS_CONFIG, WRAPPER_SOURCE, Artifact, ArtifactKind
from aoti_debug.package.pt2.extract import FilePart
from aoti_debug.package.pt2.kernel_hashes import ORIGINAL

WEIGHTS = "_binary_constants_bin_start"
WEIGHTS_END = "_binary_constants_bin_end"
WHOLE = "library_with_weights"
_EMPTY_WEIGHTS = 1  # bytes of the weights symbol in a library without weights
_MAPPED_WEIGHTS_MACRO = "USE_MMAP_SELF"
_KERNEL_TEXT = ".kernel.cpp"
_ATEN = ("aten.", "aten::")
_COMPILED_FROM = (".cpp", "kernel_information.json")
_WRAPPER_OPT = "O1"  # the level of the wrapper in a default package


def prepare_package(package: Artifact, model: str, request: Request, torch: Torch, *, timeout: float) -> LoweredModel:
    """Unpacks a compiled package, reads its sources and asks torch about the operators that it calls.

    Args:
        model: name of the model in the package.
        timeout: seconds for the process that asks torch about the operators.

    Raises:
        ArtifactError: the package holds no wrapper source, is damaged, or was compiled for another machine.
        ToolchainError: torch cannot list its operators, or another torch compiled the package.
    """
    folder = Path(request.folder)
    directory = folder / "sources"
    directory.mkdir()
    appended = extract.unpack(package, model, directory)
    holds_sources = package.kind is ArtifactKind.SOURCES
    if not holds_sources and not package.has_source(model):
        raise ArtifactError(
            f"{package.path} holds no source of its wrapper: there is nothing to instrument",
            hint=f"aoti-debug run and aoti-debug triage take it as it is and name its launches; for more, "
            f"{extract.UNCHANGED_PACKAGE_HINT}",
        )
    if holds_sources:
        package_sources = _read_sources(package, directory, torch)
    else:
        package_sources = _read_compiled(package, directory, appended, torch)
    names = model_variables.inputs(package_sources.wrapper)
    model_signature = input_checks.signature(package_sources.wrapper, names, package_sources.device)
    (folder / messages.SIGNATURE).write_text(signature.to_json(model_signature))
    answer = _query_operators(package, request, package_sources.extern_nodes, torch, timeout)
    return LoweredModel(
        sources=package_sources,
        archive=package,
        inputs=embedded_inputs(folder, answer),
        signature_file=folder / messages.SIGNATURE,
        log=folder / messages.LOG,
        answer=answer,
        triton_configs=answer.triton_configs,
        model=model,
        source=PackageOrigin.UNCOMPILED if holds_sources else PackageOrigin.COMPILED,
    )


def _read_sources(package: Artifact, directory: Path, torch: Torch) -> Sources:
    """Reads the sources of a `package_cpp_only` package and adapts their flags to this machine."""
    compatibility.check_machine(package.path, _metadata(package, directory))
    if not any(directory.glob(f"*{sources.COMPILE_FLAGS}")):
        raise ArtifactError(
            f"{package.path} holds neither its library nor how to compile it",
            hint=extract.UNCHANGED_PACKAGE_HINT,
        )
    read = sources.read(directory, wrapper_opt=_WRAPPER_OPT)
    compatibility.check_torch(package.path, read.wrapper, None, torch)
    flags, note = compatibility.use_installed_standard(read.compile_flags, torch)
    return replace(
        read,
        other_torch=note,
        compile_flags=sources.relocate_flags(flags, torch.directory),
        link_flags=sources.relocate_flags(read.link_flags, torch.directory),
    )


def _read_compiled(package: Artifact, directory: Path, appended: Mapping[str, FilePart], torch: Torch) -> Sources:
    """Reads the sources of a compiled package, and renames its library, which the new package keeps.

    Args:
        appended: to a library, by its name (`extract.unpack`).
    """
    wrapper_path = extract.single_file(package, directory, WRAPPER_SOURCE)
    library = extract.single_file(package, directory, ".wrapper.so")
    text = extract.read_text(wrapper_path)
    commands = sources.parse_commands(text, torch.directory)
    if commands is None:
        raise ArtifactError(
            f"{package.path} does not say how it was compiled: its wrapper ends without the compiler's command",
            hint="compile it again with torch 2.11 or newer",
        )
    metadata = _metadata(package, directory)
    compatibility.check_machine(package.path, metadata)
    compatibility.check_library(package.path, library)
    compatibility.check_torch(package.path, text, library, torch)
    flags, note = compatibility.use_installed_standard(commands.compile, torch)
    stem = wrapper_path.stem
    mapped, rest = None, appended.get(library.name)
    if _MAPPED_WEIGHTS_MACRO in commands.compile.definitions:
        mapped = _mapped_weights(library, rest)
    elif rest is not None:
        extract.append(package, rest, library)
    original = library.with_name(f"{stem}-{_digest(library)[:16]}{ORIGINAL}")
    library.rename(original)
    kernels = "".join(extract.read_text(path) for path in sorted(directory.glob(f"*{_KERNEL_TEXT}")))
    return Sources(
        directory=directory,
        stem=stem,
        device=metadata["AOTI_DEVICE_KEY"],
        wrapper=sources.split_kernels(text)[0],
        kernels=sources.COMMANDS.sub("", kernels),
        extern_nodes=_optional_text(directory / f"{stem}.json"),
        provenance=_optional_text(directory / "kernel_information.json"),
        compile_flags=flags,
        link_flags=commands.link,
        objects=(),
        mapped_weights=mapped,
        shipped=tuple(
            path
            for path in sorted(directory.iterdir())
            if not path.name.endswith(_COMPILED_FROM) and path.name != WHOLE
        ),
        wrapper_opt=commands.optimization,
        original=original,
        without_weights=_missing_weights_reason(original, directory),
        other_torch=note,
    )


def _metadata(package: Artifact, directory: Path) -> dict[str, str]:
    path = extract.single_file(package, directory, ".wrapper_metadata.json")
    metadata = compatibility.parse_metadata(package.path, path.name, path.read_bytes())
    if "AOTI_DEVICE_KEY" not in metadata:
        raise ArtifactError(
            f"{path.name} of {package.path} is damaged: AOTI_DEVICE_KEY is missing",
            hint="copy or compile the package again",
        )
    return metadata


def _optional_text(path: Path) -> str:
    return extract.read_text(path) if path.exists() else ""


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _mapped_weights(library: Path, appended: FilePart | None) -> FilePart:
    """The weights that a library expects appended to itself, as the new one does; they are cut off its end.

    Args:
        appended: in the package, where they stay; None if the library was compressed, and has been unpacked with them.
    """
    with Library(library) as elf:
        size = int.from_bytes(elf.bytes_at(WEIGHTS, 8), "little")
    if size > (library.stat().st_size if appended is None else appended.size):
        raise ArtifactError(
            f"{library.name} lacks the weights that should be appended to it", hint="copy or compile the package again"
        )
    if appended is not None:
        return appended.last(size)
    whole = library.rename(library.with_name(WHOLE))
    end = whole.stat().st_size
    with whole.open("rb") as source:
        library.write_bytes(source.read(end - size))
    return FilePart(whole, end - size, end)


def _missing_weights_reason(original: Path, directory: Path) -> str:
    """Why the package has no weights, for a model that may need some; "" if it has them."""
    with Library(original) as library:
        exports = library.exported_symbols()
        if WEIGHTS_END in exports:
            size = library.symbol_address(WEIGHTS_END) - library.symbol_address(WEIGHTS)
        else:  # weights that were compiled from C++ have no end symbol
            size = library.symbol_size(WEIGHTS) if WEIGHTS in exports else 0
    external = any(path.name == WEIGHTS_CONFIG for path in directory.iterdir())
    return "" if size > _EMPTY_WEIGHTS or external else "it was compiled to be given its weights after it is loaded"


def _query_operators(package: Artifact, request: Request, extern_nodes: str, torch: Torch, timeout: float) -> Answer:
    """Asks torch about the operators. The answer is cached if the proxy executor calls operators of torch only."""
    worker_request = replace(request, program=str(package.path.resolve()))
    targets = sorted(target.removeprefix("torch.ops.") for target in proxy_targets(extern_nodes))
    if request.inputs or not all(target.startswith(_ATEN) for target in targets):
        return run_worker(WITHOUT_LOWERING, worker_request, torch, timeout)

    def fill(folder: Path) -> None:
        folder_request = replace(worker_request, folder=str(folder))
        messages.write_answer(folder, run_worker(WITHOUT_LOWERING, folder_request, torch, timeout))

    answer = messages.read_answer(cache.entry("operators", cache.key(torch.fingerprint, own_sources(), *targets), fill))
    assert isinstance(answer, Answer)
    return answer

"""Prepares the run of a package without wrapper source: its manifest and the two interposing libraries."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from aoti_debug.base.errors import ArtifactError, ToolchainError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import cache, compiler
from aoti_debug.base.machine.compiler import Torch, find_compiler, find_torch
from aoti_debug.base.native.elf import Library
from aoti_debug.base.version import __version__
from aoti_debug.instrument.builder.compiling.runtime_objects import (
    INTERPOSER,
    THIS_MACHINE,
    compile_runtime,
    compile_site_tables,
)
from aoti_debug.instrument.builder.compiling.site_tables import sites_cpp
from aoti_debug.instrument.builder.compiling.toolchain import NO_EXEC_STACK, RUNTIME, Toolchain, link_words
from aoti_debug.instrument.frontend import compatibility
from aoti_debug.instrument.frontend.sources import Flags
from aoti_debug.instrument.wrapper.analysis import SHIM_HEADERS
from aoti_debug.instrument.wrapper.launches import c_functions
from aoti_debug.instrument.wrapper.launches.c_functions import parse_prototypes
from aoti_debug.package import manifest
from aoti_debug.package.manifest import Kernel, Manifest, PackageOrigin
from aoti_debug.package.pt2 import extract
from aoti_debug.package.pt2.archive import Artifact
from aoti_debug.runs.run.interposed_symbols import OTHER_KERNEL, Symbol, SymbolUse, interposed_symbols

_ENTRY = """\
asm(R"(
  .text
  .globl {name}
  .type {name}, @function
{name}:
  .cfi_startproc
  movl ${index}, %r11d
  jmp aoti_debug_interposed_entry
  .cfi_endproc
  .size {name}, .-{name}
)");
"""


def entries(symbols: Sequence[Symbol]) -> str:
    """Assembly that defines the interposed symbols; each jumps to the dispatcher with its index."""
    return "".join(_ENTRY.format(name=symbol.name, index=index) for index, symbol in enumerate(symbols))


def table(symbols: Sequence[Symbol]) -> str:
    """The definition of `aoti_debug_interposed`."""
    return "\n".join(_lines(symbols)) + "\n"


def _lines(symbols: Sequence[Symbol]) -> Iterator[str]:
    yield '#include "interposer/interposer.h"'
    yield "namespace {"
    for index, symbol in enumerate(symbols):
        types = ", ".join(str(param.value) for param in symbol.params) or "0"
        yield f"const uint8_t params_{index}[] = {{{types}}};"
    yield "}  // namespace"
    yield 'extern "C" {'
    yield "const AotiDebugInterposed aoti_debug_interposed[] = {"
    for index, symbol in enumerate(symbols):
        first = symbol.sites[0].id if symbol.sites else 0
        numbers = (first, len(symbol.sites), symbol.action.value, len(symbol.params))
        returns_status = int(symbol.returns_status)
        yield f'    {{"{symbol.name}", {", ".join(map(str, numbers))}, params_{index}, {returns_status}, 0}},'
    yield "};"
    yield f"const uint32_t aoti_debug_n_interposed = {len(symbols)};"
    yield '}  // extern "C"'


SOURCES = RUNTIME / INTERPOSER
FLAGS = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden")
FRONT, RECORDER = "front.so", "recorder.so"


def libraries(
    toolchain: Toolchain, device: str, flags: Flags, generated: Mapping[str, str], manifest_json: str
) -> tuple[Path, Path]:
    """The library with the interposed symbols and the recorder, in this order; cached between runs.

    The objects of what is the same for all packages are compiled once.

    Args:
        flags: header directories, and the libraries that the recorder is linked with.
        generated: "entries.cpp", "table.cpp" and "sites.cpp", by these names.

    Raises:
        ToolchainError: something did not compile or link.
    """
    runtime_objects = compile_runtime(toolchain, device, flags)
    texts = [path.read_text() for path in (*sorted(SOURCES.glob("*")), RUNTIME / "aoti_debug.h")]
    recorder_flags = [*map(str, runtime_objects), "-fopenmp", *link_words(flags)]
    members = {
        FRONT: (("entries.cpp", "entry.cpp", "dispatch.cpp", "table.cpp"), ["-ldl"]),
        RECORDER: (("recorder.cpp", "table.cpp", "sites.cpp"), recorder_flags),
    }

    def compile_to(folder: Path, source: Path) -> Path:
        return toolchain.compile(source, folder / f"{source.stem}.o", [*FLAGS, f"-I{RUNTIME}"])

    def fill_objects(folder: Path) -> None:
        for source in SOURCES.glob("*.cpp"):
            compile_to(folder, source)

    def fill(folder: Path) -> None:
        shared = cache.entry("interposer-objects", toolchain.key(*FLAGS, *texts), fill_objects)
        objects = {f"{path.stem}.cpp": path for path in shared.glob("*.o")}
        for name, text in generated.items():
            (folder / name).write_text(text)
            if name == "sites.cpp":
                objects[name] = compile_site_tables(toolchain, folder, text, manifest_json)
            else:
                objects[name] = compile_to(folder, folder / name)
        for library, (names, link_flags) in members.items():
            command = [
                toolchain.compiler.path,
                "-shared",
                *(str(objects[name]) for name in names),
                *link_flags,
                NO_EXEC_STACK,
            ]
            toolchain.run([*command, "-o", str(folder / library)], f"{library} cannot be linked")

    folder = cache.entry(
        "interposers", toolchain.key(*generated.values(), manifest_json, *texts, *recorder_flags), fill
    )
    return folder / FRONT, folder / RECORDER


def include_dirs(device: str, torch: Torch) -> tuple[str, ...]:
    """The directories of torch's headers, and of CUDA's for a model on a GPU.

    Raises:
        ToolchainError: the model is for a GPU, and there is no cuda.h.
    """
    include = torch.directory / "include"
    torch_dirs = (str(include), str(include / "torch/csrc/api/include"))
    return (*torch_dirs, str(_cuda_include())) if device == "cuda" else torch_dirs


def _cuda_include() -> Path:
    folder = compiler.find_header_directory("cuda.h")
    if folder is None:
        raise ToolchainError("there is no cuda.h", hint=compatibility.CUDA_HINT)
    return folder


LEVEL = 3
LIMITS = (
    "no wrapper source in the package: launches are recorded by symbol interposition, without buffer names, arguments "
    "of C++ and Triton kernels, model lines, guards and repros"
)
_LOCAL_CALLS = "; its library binds the calls of its C++ kernels locally: they are not recorded"


@dataclass(frozen=True)
class Interposition:
    """The manifest of a package without wrapper source, and the libraries that record its launches.

    Attributes:
        text: the manifest as JSON.
        front: the library with the interposed symbols; the model's library finds them first.
        recorder: the library that records the calls.
    """

    manifest: Manifest
    text: str
    front: Path
    recorder: Path


def prepare(package: Artifact, model: str) -> Interposition:
    """Describes a model's launches and compiles the libraries that record them.

    Args:
        model: the name of one of the package's models.

    Raises:
        ArtifactError: the package is damaged, or was compiled for another machine.
        ToolchainError: torch or the compiler are missing, or the libraries do not compile.
    """
    if os.uname().machine != "x86_64":
        raise ArtifactError(
            f"{package.path} holds no wrapper source, and calls can be interposed on x86-64 only",
            hint=extract.UNCHANGED_PACKAGE_HINT,
        )
    toolchain = Toolchain(find_compiler(), find_torch())
    with cache.scratch() as work:
        extract.unpack(package, model, work)
        description, symbols = _describe(package, model, work, toolchain.torch)
    text = description.json_text
    front, recorder = _libraries(toolchain, description, symbols, text)
    return Interposition(description, text, front, recorder)


def _describe(package: Artifact, model: str, files: Path, torch: Torch) -> tuple[Manifest, tuple[Symbol, ...]]:
    """The manifest of a model whose files were extracted, and the symbols to interpose."""
    metadata = _metadata(package, files)
    compatibility.check_machine(package.path, metadata)
    library = extract.single_file(package, files, ".so")
    compatibility.check_library(package.path, library)
    compatibility.check_torch(package.path, "", library, torch)
    kernels = _kernels(files)
    lists = (path for path in sorted(files.glob("*.wrapper.json")) if not path.name.endswith("_metadata.json"))
    nodes = c_functions.parse_proxy("".join(map(extract.read_text, lists)))
    with Library(library) as elf:
        called = elf.relocated_symbols()
        cpp_kernels = set(elf.machine_code("cpp_fused"))
    include = torch.directory / "include"
    shims = [path.read_text() for name in SHIM_HEADERS if (path := include / name).exists()]
    prototypes = {name: prototype for text in shims for name, prototype in parse_prototypes(text).items()}
    symbols = interposed_symbols(called, prototypes, [node.target for node in nodes], [k.name for k in kernels[:-1]])
    cuda = any(symbol.action in (SymbolUse.KERNEL, SymbolUse.CONFIG) for symbol in symbols)
    return (
        Manifest(
            format=manifest.FORMAT,
            tool_version=__version__,
            torch_version=torch.version,
            device=metadata.get("AOTI_DEVICE_KEY", "cpu"),
            level=LEVEL,
            filters=(),
            sites=tuple(site for symbol in symbols for site in symbol.sites),
            kernels=kernels if cuda else (),
            model=model,
            source=PackageOrigin.STRIPPED,
            without_source=LIMITS + (_LOCAL_CALLS if cpp_kernels - called else ""),
        ),
        symbols,
    )


def _metadata(package: Artifact, files: Path) -> Mapping[str, str]:
    metadata: dict[str, str] = {}
    for path in sorted(files.glob("*_metadata.json")):
        metadata |= compatibility.parse_metadata(package.path, path.name, path.read_bytes())
    return metadata


def _kernels(files: Path) -> tuple[Kernel, ...]:
    """The device kernels of the package's binaries, and a last one for every kernel without a binary."""
    kernels: list[Kernel] = []
    for path in sorted(files.glob("*.cubin")):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        try:
            with Library(path) as binary:
                names = sorted(binary.defined_functions())
        except ValueError:
            continue  # not a binary for one GPU: its kernels are found by the name that the driver looks up
        kernels += [device_kernel(name, len(kernels) + i, path.name, digest) for i, name in enumerate(names)]
    return (*kernels, device_kernel(OTHER_KERNEL, len(kernels)))


def device_kernel(name: str, id_: int, cubin: str = "", digest: str = "") -> Kernel:
    """A device kernel of which only the name, and in most cases the binary, is known."""
    return Kernel(name, "triton", "", "", id=id_, mangled=name, cubin=cubin, cubin_sha256=digest)


def _libraries(
    toolchain: Toolchain, description: Manifest, symbols: tuple[Symbol, ...], text: str
) -> tuple[Path, Path]:
    flags = replace(
        THIS_MACHINE,
        include_dirs=include_dirs(description.device, toolchain.torch),
        libraries_dirs=(f"{toolchain.torch.directory}/lib",),
        libraries=("torch_cpu",),
    )
    generated = {
        "entries.cpp": entries(symbols),
        "table.cpp": table(symbols),
        "sites.cpp": sites_cpp(description),
    }
    return libraries(toolchain, description.device, flags, generated, text)

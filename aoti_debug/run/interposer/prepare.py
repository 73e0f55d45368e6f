"""Makes ready what a package without the source of its wrapper is run with: a manifest and two small libraries."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aoti_debug import __version__, manifest, wrapper
from aoti_debug.builder.site_tables import sites_cpp
from aoti_debug.builder.toolchain import Toolchain
from aoti_debug.errors import ArtifactError
from aoti_debug.frontend import torch_mismatch
from aoti_debug.frontend.sources import Flags
from aoti_debug.machine import cache
from aoti_debug.machine.compiler import Torch, find_compiler, find_torch
from aoti_debug.manifest import Kernel, Manifest, PackageOrigin
from aoti_debug.native.elf import Library
from aoti_debug.pt2 import compatibility, extract
from aoti_debug.pt2.archive import Artifact
from aoti_debug.run.interposer import tables
from aoti_debug.run.interposer.include_dirs import include_dirs
from aoti_debug.run.interposer.libraries import libraries
from aoti_debug.run.interposer.symbols import OTHER_KERNEL, Action, Symbol, interposed
from aoti_debug.wrapper import proxy
from aoti_debug.wrapper.prototypes import parse_prototypes

LEVEL = 3
MISSING = (
    "no wrapper source in the package: launches are seen from outside, without buffer names, arguments of C++ and "
    "Triton kernels, model lines, guards and repros"
)
_UNSEEN = "; its library binds the calls of its C++ kernels itself: they are not seen"


@dataclass(frozen=True)
class Interposition:
    """
    Attributes:
        text: the manifest as JSON.
        front: the library that stands in front of what the model's library calls.
        recorder: the library that records it.
    """

    manifest: Manifest
    text: str
    front: Path
    recorder: Path


def prepare(package: Artifact, model: str) -> Interposition:
    """
    Args:
        model: which of the package's models.

    Raises:
        ArtifactError: the package is damaged, or was compiled for another machine.
        ToolchainError: torch or the compiler are missing, or the libraries do not compile.
    """
    if os.uname().machine != "x86_64":
        raise ArtifactError(
            f"{package.path} holds no source of its wrapper, and calls can be followed on x86-64 only",
            hint=extract.UNCHANGED_PACKAGE_HINT,
        )
    tools = Toolchain(find_compiler(), find_torch())
    with cache.scratch() as work:
        extract.unpack(package, model, work)
        described, symbols = _described(package, model, work, tools.torch)
    text = manifest.to_json(described)
    front, recorder = _libraries(tools, described, symbols, text)
    return Interposition(described, text, front, recorder)


def _described(package: Artifact, model: str, files: Path, torch: Torch) -> tuple[Manifest, tuple[Symbol, ...]]:
    metadata = _metadata(package, files)
    compatibility.check(package.path, metadata)
    library = extract.single_file(package, files, ".so")
    compatibility.check_library(package.path, library)
    torch_mismatch.check(package.path, "", library, torch)
    kernels = _kernels(files)
    nodes = proxy.parse("".join(extract.read_text(path) for path in _operator_lists(files)))
    with Library(library) as opened:
        called = opened.relocated_symbols()
        own = set(opened.machine_code("cpp_fused"))
    include = torch.directory / "include"
    shims = [path.read_text() for name in wrapper.SHIM_HEADERS if (path := include / name).exists()]
    prototypes = {name: found for text in shims for name, found in parse_prototypes(text).items()}
    symbols = interposed(called, prototypes, [node.target for node in nodes], [k.name for k in kernels[:-1]])
    cuda = any(symbol.action in (Action.KERNEL, Action.CONFIG) for symbol in symbols)
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
            without_source=MISSING + (_UNSEEN if own - called else ""),
        ),
        symbols,
    )


def _metadata(package: Artifact, files: Path) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for path in sorted(files.glob("*_metadata.json")):
        found |= compatibility.parse_metadata(package.path, path.name, path.read_bytes())
    return found


def _operator_lists(files: Path) -> list[Path]:
    return [path for path in sorted(files.glob("*.wrapper.json")) if not path.name.endswith("_metadata.json")]


def _kernels(files: Path) -> tuple[Kernel, ...]:
    """The device kernels of the package's binaries, and one that stands for those of which there is no binary."""
    found: list[Kernel] = []
    for path in sorted(files.glob("*.cubin")):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        try:
            with Library(path) as binary:
                names = sorted(binary.defined_functions())
        except ValueError:
            continue  # not a binary for one GPU: its kernels are found by the name that the driver tells
        found += [kernel_named(name, len(found) + i, path.name, digest) for i, name in enumerate(names)]
    return (*found, kernel_named(OTHER_KERNEL, len(found)))


def kernel_named(name: str, number: int, cubin: str = "", digest: str = "") -> Kernel:
    """A device kernel of which nothing but the name, and maybe the binary, is known."""
    return Kernel(name, "triton", "", "", id=number, mangled=name, cubin=cubin, cubin_sha256=digest)


def _libraries(tools: Toolchain, described: Manifest, symbols: tuple[Symbol, ...], text: str) -> tuple[Path, Path]:
    flags = Flags(
        compiler="",
        definitions=(),
        include_dirs=include_dirs(described.device, tools.torch),
        cflags=(),
        ldflags=(),
        libraries_dirs=(f"{tools.torch.directory}/lib",),
        libraries=("torch_cpu",),
        passthrough=(),
    )
    generated = {
        "entries.cpp": tables.entries(symbols),
        "table.cpp": tables.table(symbols),
        "sites.cpp": sites_cpp(described),
    }
    return libraries(tools, described.device, flags, generated, text)

"""Libraries (`.so`) that torch compiles without a package, as packages: with their sources, which lie beside them."""

from __future__ import annotations

import json
import mmap
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug.base.errors import ArtifactError
from aoti_debug.base.machine import cache
from aoti_debug.base.machine.files import atomic_write
from aoti_debug.base.native.elf import Library
from aoti_debug.package.pt2 import archive, extract
from aoti_debug.package.pt2.archive import KERNEL_BINARIES, WRAPPER_SOURCE

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

_ELF = b"\x7fELF"
_KERNEL_SOURCE = ".kernel.cpp"
_DRIVER = "cuLaunchKernel"  # begins the names of the functions that launch kernels on a GPU
_SHOWN = 16  # characters of a library's name, which may be a hash
_BINARY = re.compile(rf'"(/[^"\n]+(?:{"|".join(re.escape(suffix) for suffix in KERNEL_BINARIES)}))"')
_OF_ALL = ("custom_objs_config.json", "custom_obj_*")  # of the one model that a folder has such files of
FOLDER = "libraries"  # among the packages: the packages of libraries, and the libraries that were loaded instead


def is_library(path: str | Path) -> bool:
    """True if a file is a library, and no archive."""
    try:
        with open(path, "rb") as file:
            return file.read(len(_ELF)) == _ELF
    except OSError:  # whoever loads it says so
        return False


def packaged(library: Path, packages: Path) -> Path:
    """Writes a package of a library and of its sources; of a library alone that has none beside it.

    Args:
        packages: the folder of the instrumented packages.

    Raises:
        ArtifactError: the library is for a GPU, and its sources do not lie beside it: nothing names its kernels.
        OSError: a file cannot be read or written.
    """
    from torch._inductor.package import package_aoti

    name = library.name.removesuffix(".so").removesuffix(".wrapper")[:_SHOWN]
    wrapper = _named_in(library, WRAPPER_SOURCE)
    if wrapper is None:
        return _packaged_alone(library, _new_folder(packages) / f"{name}.so.pt2")
    stem = wrapper.name.removesuffix(".cpp")
    kernel = _named_in(library, _KERNEL_SOURCE)
    found = [wrapper, *([kernel] if kernel is not None else [])]
    found += [path for name in (f"{stem}_metadata.json", f"{stem}.json") if (path := wrapper.with_name(name)).exists()]
    found += [path for pattern in _OF_ALL for path in sorted(wrapper.parent.glob(pattern))]
    found += sorted(set(map(Path, _BINARY.findall(extract.read_text(wrapper)))))
    target = _new_folder(packages) / f"{name}.so.pt2"
    with cache.scratch() as work:
        own = work / f"{stem}.so"
        atomic_write.link_or_copy(library, own)
        package_aoti(str(target), [str(path) for path in (own, *found)])
    return target


def _packaged_alone(library: Path, target: Path) -> Path:
    from torch._inductor.package import package_aoti

    with Library(library) as elf:
        if any(name.startswith(_DRIVER) for name in elf.relocated_symbols()):
            raise ArtifactError(
                f"{library} is for a GPU and has no sources beside it",
                hint="keep the files that torch writes with it, or compile a package (.pt2)",
            )
    with cache.scratch() as work:
        own = work / "model.wrapper.so"
        atomic_write.link_or_copy(library, own)
        metadata = own.with_name("model.wrapper_metadata.json")
        metadata.write_text(json.dumps({"AOTI_DEVICE_KEY": "cpu"}))
        package_aoti(str(target), [str(own), str(metadata)])
    return target


def _named_in(library: Path, suffix: str) -> Path | None:
    """The file beside a library that it was compiled from: its table of symbols names its sources."""
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        named = (path for path in library.parent.glob(f"*{suffix}") if content.find(path.name.encode()) >= 0)
        return next(named, None)


def unpacked(package: str) -> Path:
    """The library of an instrumented package, in a new folder with the files that it loads.

    Each load has one of its own, as each load of a package has: the runtime in it belongs to one model.

    Raises:
        ArtifactError: the package is damaged.
    """
    instrumented = archive.inspect(package)
    model = instrumented.manifest().model
    folder = _new_folder(instrumented.path.parent)
    appended = extract.unpack(instrumented, model, folder)
    library = extract.single_file(instrumented, folder, ".wrapper.so")
    for name, part in appended.items():
        extract.append(instrumented, part, folder / name)
    return library


def _new_folder(packages: Path) -> Path:
    base = packages / FOLDER
    base.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(dir=base))


def exported(graph: torch.fx.GraphModule, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> ExportedProgram:
    """The program of a graph that a library was compiled from, whose operators keep their model lines.

    Args:
        graph: of an exported program (`program.module()`), or of torch's intermediate representation.
        args, kwargs: example inputs; sizes that are symbolic in the graph are so in the program.
    """
    import torch
    from torch.fx import traceback
    from torch.utils import _pytree as pytree

    shapes = torch.export.ShapesCollection()
    nodes = [node for node in graph.graph.nodes if node.op == "placeholder"]
    is_dynamic = False
    for leaf, node in zip(pytree.tree_leaves((args, dict(kwargs or {}))), nodes, strict=False):
        value = node.meta.get("val", node.meta.get("example_value"))
        sizes = value.shape if isinstance(value, torch.Tensor) else ()
        dims = [dim for dim, size in enumerate(sizes) if isinstance(size, torch.SymInt)]
        if dims and isinstance(leaf, torch.Tensor):
            shapes[leaf] = dict.fromkeys(dims, torch.export.Dim.AUTO)
            is_dynamic = True
    with torch.no_grad(), traceback.preserve_node_meta():
        return torch.export.export(
            graph, args, dict(kwargs or {}), dynamic_shapes=shapes if is_dynamic else None, strict=False
        )

"""Sets up Inductor's cache for a lowering.

Every lowering has its own cache, because kernel binaries are named by kernel in `package_cpp_only` mode and a file
that exists is kept: a second specialisation would get the first one's machine code. At the beginning it has hard links
to the results of earlier lowerings about this machine (instruction sets, autotuning); new results are linked back at
the end. Triton's cache, whose entries are named by content, is shared.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from aoti_debug.base.machine import cache
from aoti_debug.base.machine.compiler import Torch


@contextlib.contextmanager
def environment(folder: Path, torch: Torch) -> Iterator[dict[str, str]]:
    """Yields the environment variables of a lowering whose cache is a new directory in `folder`."""
    triton = cache.directory() / "triton"
    own = folder / "inductor"
    for path in (shared(torch), triton, own):
        path.mkdir(parents=True, exist_ok=True)
    link_new(shared(torch), own)
    try:
        yield {
            "TORCHINDUCTOR_CACHE_DIR": str(own),
            "TRITON_CACHE_DIR": str(triton),
            "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER": "0",
        }
    finally:
        link_new(own, shared(torch))


@contextlib.contextmanager
def apply(changes: Mapping[str, str]) -> Iterator[None]:
    """Changes this process's environment inside a `with`, and clears Inductor's in-memory caches."""
    from torch._inductor.utils import clear_caches

    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    clear_caches()
    try:
        yield
    finally:
        clear_caches()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def shared(torch: Torch) -> Path:
    """The folder of the results about this machine."""
    return cache.directory() / f"inductor-{torch.version}"


def link_new(source: Path, target: Path) -> None:
    """Hard-links files that `target` lacks, or copies them.

    Only those in two-letter folders: lowered models have folders with longer names.
    """
    for folder in source.iterdir():
        if len(folder.name) != 2 or not folder.is_dir():
            continue
        for path in folder.rglob("*"):
            if path.is_file() and path.suffix not in (".lock", ".tmp"):
                linked = target / path.relative_to(source)
                linked.parent.mkdir(parents=True, exist_ok=True)
                try:
                    os.link(path, linked)
                except FileExistsError:
                    continue
                except OSError:  # another file system, or one without hard links
                    partial = linked.with_name(f"{linked.name}.{os.getpid()}.tmp")
                    shutil.copyfile(path, partial)
                    partial.replace(linked)

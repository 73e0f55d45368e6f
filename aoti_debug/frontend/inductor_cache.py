"""Inductor's cache during a lowering.

Every lowering has one of its own, because kernel binaries are named by kernel in `package_cpp_only` mode and a file
that exists is kept: a second specialisation would get the first one's machine code. It begins as hard links to what
earlier lowerings found out about the machine (instruction sets, autotuning) and gives back what is new. Triton's
cache, whose entries are named by their content, is shared.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from aoti_debug.machine import cache
from aoti_debug.machine.compiler import Torch


@contextlib.contextmanager
def environment(folder: Path, torch: Torch) -> Iterator[dict[str, str]]:
    """The environment variables of a lowering whose cache is a new directory in `folder`."""
    known = cache.directory() / f"inductor-{torch.version}"
    triton = cache.directory() / "triton"
    own = folder / "inductor"
    for path in (known, triton, own):
        path.mkdir(parents=True, exist_ok=True)
    _link_new(known, own)
    package = str(Path(__file__).parents[2])
    try:
        yield {
            "TORCHINDUCTOR_CACHE_DIR": str(own),
            "TRITON_CACHE_DIR": str(triton),
            "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER": "0",
            "PYTHONPATH": os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), package))),
        }
    finally:
        _link_new(own, known)


@contextlib.contextmanager
def applied(changes: Mapping[str, str]) -> Iterator[None]:
    """Changes this process's environment for a while, and Inductor's caches in memory with it."""
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


def _link_new(source: Path, target: Path) -> None:
    """Hard-links the files of the two-letter folders that `target` does not have. Lowered models have longer names."""
    for folder in source.iterdir():
        if len(folder.name) != 2 or not folder.is_dir():
            continue
        for path in folder.rglob("*"):
            if path.is_file() and path.suffix not in (".lock", ".tmp"):
                linked = target / path.relative_to(source)
                linked.parent.mkdir(parents=True, exist_ok=True)
                with contextlib.suppress(FileExistsError):
                    os.link(path, linked)

"""Replaces kernel binaries named by kernel by binaries named by the hash of their content.

In `package_cpp_only` mode binaries are named by kernel, so that two specialisations of one kernel share a file and the
second silently runs the first one's machine code. A default package names them by hash: source and binaries are taken
from such a second lowering of the same program; flags and weights stay those of the first.
"""

from __future__ import annotations

import zipfile

from aoti_debug.base.errors import ToolchainError
from aoti_debug.instrument.frontend import sources
from aoti_debug.instrument.frontend.sources import Sources
from aoti_debug.package.pt2.archive import KERNEL_BINARIES, MODEL_FOLDER, Artifact


def use_hashed_binaries(first: Sources, archive: Artifact) -> Sources:
    """Replaces the C++ source and the kernel binaries of `first` by those of a default package, also on disk.

    Args:
        archive: the default package.

    Raises:
        ToolchainError: the two lowerings laid the weights out differently.
    """
    members = _members(archive)
    wrapper = next(text for name, text in members.items() if name.endswith(".wrapper.cpp")).decode()
    kernels = next(text for name, text in members.items() if name.endswith(".kernel.cpp")).decode()
    if _weights_layout(wrapper) != _weights_layout(first.wrapper):
        raise ToolchainError(
            "two lowerings of the model laid its weights out differently",
            hint="give its Triton kernels different names, so that one lowering is enough",
        )
    for path in first.shipped:
        if path.suffix in KERNEL_BINARIES:
            path.unlink()
    for name, content in members.items():
        if name.endswith(KERNEL_BINARIES):
            (first.directory / name).write_bytes(content)
    (first.directory / f"{first.stem}.cpp").write_text(wrapper + kernels)
    return sources.read(first.directory, wrapper_opt=first.wrapper_opt)


def _members(archive: Artifact) -> dict[str, bytes]:
    """The model's text files and kernel binaries by name."""
    prefix = f"{archive.root}/{MODEL_FOLDER}"
    with zipfile.ZipFile(archive.path) as file:
        return {
            info.filename.removeprefix(prefix): file.read(info)
            for info in file.infolist()
            if info.filename.startswith(prefix) and info.filename.endswith((".cpp", *KERNEL_BINARIES))
        }


def _weights_layout(text: str) -> list[str]:
    return [line for line in text.splitlines() if "constants_info_[" in line]

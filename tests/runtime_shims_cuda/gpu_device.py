"""What tests on a real device share."""

from __future__ import annotations

import ctypes
import mmap
import re
import time
from pathlib import Path

import torch

from tests.runtime_shims_cuda import device_library

LONG = 200_000_000  # clock cycles, about a tenth of a second
PAGE = 4096
KEPT: list[object] = []  # mappings that the driver knows


def shared_words(path: Path) -> ctypes.Array[ctypes.c_uint32]:
    """The words of a new file in shared memory, mapped for good."""
    with path.open("x+b") as file:
        file.truncate(PAGE)
        memory = mmap.mmap(file.fileno(), PAGE)
    words = (ctypes.c_uint32 * (PAGE // 4)).from_buffer(memory)
    KEPT.append(words)
    return words


def libcuda() -> Path:
    """The driver's library that torch has loaded."""
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    found = re.search(r"(/\S*libcuda\.so\S*)", Path("/proc/self/maps").read_text())
    assert found is not None
    return Path(found.group(1))


def build(output: Path) -> Path:
    include = device_library.cuda_include()
    assert include is not None, "no cuda.h: neither a CUDA toolkit nor triton is installed"
    sources = (device_library.HARNESS, *device_library.DEVICE_SOURCES)
    return device_library.build(output, sources, "-O3", "-Wno-error", f"-I{include}", f"-Wl,--no-as-needed,{libcuda()}")


def wait_for(crumbs: ctypes.Array[ctypes.c_uint32], word: int, value: int) -> None:
    deadline = time.monotonic() + 20
    while crumbs[word] != value:
        assert time.monotonic() < deadline, f"the word holds {crumbs[word]}, not {value}"


def stream_of(stream: torch.cuda.Stream | None = None) -> int:
    return int((stream or torch.cuda.current_stream()).cuda_stream)

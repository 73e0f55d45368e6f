"""A control page of this process, as the runtime in a package makes one, and a model that is called."""

from __future__ import annotations

import mmap
import os
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from aoti_debug.runs.run import running_process
from aoti_debug.runs.run.running_process import PAGE

LIBRARY = Path("/tmp/x/data/aotinductor/encoder/c4.wrapper.so")


class FakeRuntime:
    """The page of a package."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory

    def put(self, **fields: int | bytes) -> None:
        """Writes fields of the page."""
        at = 0
        for name, form in PAGE.fields:
            if name in fields:
                struct.pack_into(f"<{form}", self._memory, at, fields[name])
            at += struct.calcsize(f"<{form}")

    def get(self, name: str) -> int | bytes:
        """Reads a field of the page."""
        values = dict(zip((field for field, _ in PAGE.fields), PAGE.codec.unpack_from(self._memory), strict=True))
        value: int | bytes = values[name]
        return value

    def settings(self) -> dict[str, str]:
        """What was asked for."""
        text = bytes(self.get("settings"))[: int(self.get("settings_bytes"))].decode()
        return dict(line.split("=", 1) for line in text.splitlines())

    @contextmanager
    def called(self, **fields: int | bytes) -> Iterator[None]:
        """While a thread calls the model: a request is in force soon, and the page then has these fields."""
        ended = threading.Event()

        def accept() -> None:
            while not ended.wait(0.005):
                requested = int(self.get("requested"))
                if requested != self.get("accepted"):
                    self.put(accepted=requested, **fields)

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


@contextmanager
def page(**fields: int | bytes) -> Iterator[FakeRuntime]:
    """A page of this process, of a package at level 0 whose model was called."""
    descriptor = os.memfd_create("aoti-debug-control", os.MFD_CLOEXEC)
    os.ftruncate(descriptor, PAGE.size)
    memory = mmap.mmap(descriptor, PAGE.size)
    os.close(descriptor)  # the mapping holds another one
    with memory:
        runtime = FakeRuntime(memory)
        runtime.put(magic=running_process.MAGIC, version=running_process.VERSION, library=os.fsencode(LIBRARY), calls=1)
        runtime.put(**fields)
        yield runtime


def words(settings: Mapping[str, str]) -> list[str]:
    """Settings without the prefix of their variables, sorted."""
    return sorted(f"{name.removeprefix('AOTI_DEBUG_')}={value}" for name, value in settings.items())

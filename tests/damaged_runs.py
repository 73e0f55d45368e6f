"""Run directories that are cut or damaged anywhere: commands show what is left of them, or say why not in one line."""

from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import torch

from aoti_debug.app.cli import main
from aoti_debug.base import abi
from tests import crashed_run, factories, saved_tensors

MAX_LINE = 2000  # characters of an error
_BLOCK_BYTES = 4096


class Change(Enum):
    """A way in which the content of a file changes at a byte."""

    CUT = "cut"
    KILLED = "zero from there on"
    FLIPPED = "all bits of the byte flipped"
    ZERO = "the byte zero"
    TORN = "512 bytes zero"

    def of(self, data: bytes, at: int) -> bytes:
        """The content with this change at a byte."""
        match self:
            case Change.CUT:
                return data[:at]
            case Change.KILLED:
                return data[:at] + bytes(len(data) - at)
            case Change.FLIPPED:
                return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]
            case Change.ZERO:
                return data[:at] + b"\0" + data[at + 1 :]
            case Change.TORN:
                return data[:at] + bytes(min(512, len(data) - at)) + data[at + 512 :]


@dataclass(frozen=True)
class Point:
    """A file of a run directory that is changed at a byte.

    Attributes:
        file: relative to the run.
    """

    file: str
    at: int
    change: Change

    def __str__(self) -> str:
        return f"{self.file}, byte {self.at}: {self.change.value}"


class DamagedRun:
    """A run directory, a run of ranks that holds it twice, and what commands say of them with a change in a file.

    Attributes:
        files: the content of each, by the path relative to the run.
    """

    def __init__(self, run: Path, folder: Path) -> None:
        self._folder = folder
        self._run = folder / run.name
        shutil.copytree(run, self._run)
        self.files: Mapping[str, bytes] = {
            str(path.relative_to(self._run)): path.read_bytes()
            for path in sorted(self._run.rglob("*"))
            if path.is_file()
        }
        self._whole = self._said_in_json()
        assert self._whole is not None

    def points(self, seed: int) -> Iterator[Point]:
        """Random points of all files, without end; small files as often as large ones."""
        chosen = random.Random(seed)
        names = [name for name, data in self.files.items() if data]
        while True:
            name = chosen.choice(names)
            yield Point(name, chosen.randrange(len(self.files[name])), chosen.choice(list(Change)))

    def problems(self, point: Point, commands: Sequence[str] = ("json", "show", "launch", "report")) -> list[str]:
        """What is wrong with what commands say while a file is changed; the file is as it was afterwards."""
        path = self._run / point.file
        path.write_bytes(point.change.of(self.files[point.file], point.at))
        try:
            return [f"{point}: {problem}" for command in commands for problem in self._problems(command, point)]
        finally:
            path.write_bytes(self.files[point.file])

    def _problems(self, command: str, point: Point) -> Iterator[str]:
        page = self._folder / "page.html"
        words = {
            "json": ["show", "--json", str(self._run)],
            "show": ["show", str(self._run)],
            "launch": ["show", "0.1", "--run", str(self._run)],
            "report": ["report", str(self._run), "-o", str(page)],
        }[command]
        code, said, failed = ran(words)
        page.unlink(missing_ok=True)
        yield from error_problems(command, code, failed)
        if command == "json" and code in (0, 1):
            yield from self._untrue(json.loads(said), point)

    def _said_in_json(self) -> Mapping[str, Any]:
        code, said, failed = ran(["show", "--json", str(self._run)])
        assert code == 0, failed
        document: Mapping[str, Any] = json.loads(said)
        return document

    def _untrue(self, document: Mapping[str, Any], point: Point) -> Iterator[str]:
        """What a document says that the whole run does not: of a file that ends early, nothing may be made up."""
        if point.change is not Change.CUT or point.file != "journal.bin":
            return
        if (point.at - abi.JOURNAL_HEADER.size) % _BLOCK_BYTES == 0:
            return  # as of a process that ended there
        known = {launch["id"]: launch["kernel"] for launch in self._whole["launches"]}
        for launch in document["launches"]:
            if known.get(launch["id"]) != launch["kernel"]:
                yield f"it shows {launch['id']} {launch['kernel']}, which there was not"
        finding, guilty = document["finding"], self._whole["finding"]["launch"]
        if finding["launch"] not in (guilty, None):
            yield f"it blames {finding['launch']} for what {guilty} has done"
        if finding["launch"] is None and not any("may be missing" in sentence for sentence in finding["evidence"]):
            yield f"it does not say that launches may be missing: {finding['evidence']}"


def ran(words: Sequence[str]) -> tuple[int, str, str]:
    """The exit code of a command, and what it has written to stdout and stderr."""
    said, failed = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(failed):
        code = main.run(words)
    return code, said.getvalue(), failed.getvalue()


def error_problems(command: str, code: int, failed: str) -> Iterator[str]:
    """What is wrong with the end of a command: a traceback, or an error that is not one line with one hint."""
    if "Traceback" in failed or code == 70:
        yield f"{command}: a traceback: {failed.strip()[-400:]}"
    elif code not in (0, 1):
        errors, hints = (
            [line for line in failed.splitlines() if line.startswith(word)] for word in ("error: ", "hint: ")
        )
        if not 2 <= code <= 6 or len(errors) != 1 or len(hints) != 1 or len(errors[0]) > MAX_LINE:
            yield f"{command}: exit code {code}: {failed.strip()[-400:]}"


def complete_run(base: Path) -> Path:
    """A run that died in its second launch, with a record of most types, breadcrumbs, stacks and what it printed."""
    from tests.fuzz import readers

    run = crashed_run.crashed(base, None)
    (run / "journal.bin").write_bytes(readers.journal_of_every_record(block_bytes=_BLOCK_BYTES).bytes())
    saved_tensors.save(run / "tensors/before/first/x.safetensors", "x", torch.arange(6.0).reshape(2, 3))
    (run / "crumbs.bin").write_bytes(factories.crumbs(1, 2))
    (run / "backtrace.txt").write_text("thread 1 signal 11 code 1 address 0 pc 7f00 caller 7f10\nframes 1 7f00 7f10\n")
    (run / "backtrace.maps").write_text("7000-8000 r-xp 00000000 00:00 0 /lib/none.so\n")
    (run / "stderr.log").write_text("it failed\n")
    return run

"""A repro in a child process, which may die of its launch, and what it reports through a pipe."""

from __future__ import annotations

import json
import math
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from .accesses import Access

HANG_SECONDS = 120.0  # a launch is given this long

Message = tuple[str, ...]
Text = Literal["through", "kept", "echoed"]


class ReplayReport:
    """What is found. A child tells its parent, too.

    Attributes:
        accesses: wrong ones.
        began: the launch did.
        what: what the launch ended in, or why it could not be run; "" where nothing is to be said.
    """

    def __init__(self, descriptor: int | None) -> None:
        self.descriptor = descriptor
        self.accesses: list[Access] = []
        self.what = ""
        self.began = False

    def access(self, access: Access) -> None:
        self.accesses.append(access)
        self.say("access", access.to_json())

    def take(self, ended: ChildExit) -> None:
        """What a child reported."""
        self.accesses += [Access.of_json(message[1]) for message in ended.messages if message[0] == "access"]
        refused = ended.said("refused")
        self.what = refused[1] if refused is not None else ended.fault

    def say(self, *words: str | int) -> None:
        """One message: its kind, and what belongs to it."""
        self.began = self.began or words[0] == "begin"
        if self.descriptor is not None:
            os.write(self.descriptor, json.dumps([str(word) for word in words]).encode() + b"\n")


@dataclass(frozen=True)
class ChildExit:
    """How a child ended.

    Attributes:
        messages: what it reported, in order.
        code: as Popen.returncode.
        hung: it was killed, HANG_SECONDS after its launch had begun.
        text: its standard output and error, where they were kept.
    """

    messages: tuple[Message, ...]
    code: int
    hung: bool = False
    text: str = ""

    def said(self, kind: str) -> Message | None:
        """The first message of a kind."""
        return next((m for m in self.messages if m[0] == kind), None)

    @property
    def began(self) -> bool:
        return self.said("begin") is not None

    @property
    def failed(self) -> bool:
        """The launch was not run, or not in the way that was asked for."""
        return not self.began or self.said("refused") is not None

    @property
    def fault(self) -> str:
        """What its launch ended in; "" if it ended well."""
        if self.hung:
            return f"no end within {HANG_SECONDS:g} s"
        error = self.said("error")
        if error is not None:
            return error[1]
        return "" if self.said("end") is not None else self.ending

    @property
    def why(self) -> str:
        """Why it never came to its launch, one line."""
        said = self.said("refused") or self.said("error")
        return self.ending if said is None else said[1].partition("\n")[0]

    @property
    def ending(self) -> str:
        with suppress(ValueError):
            if self.code < 0:
                return signal.Signals(-self.code).name
        return f"exit code {self.code}"


def run_child(
    options: Sequence[str],
    *,
    before: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    text: Text = "through",
    seconds: float | None = None,
) -> ChildExit:
    """Runs this script once more, in a process of its own.

    Args:
        before: a command that runs it, compute-sanitizer for one.
        environment: variables to add.
        text: what becomes of what it writes: it goes through; or it is kept, standard error with it; or its standard
            output is written to this process's own `sys.stdout`.
        seconds: how long its launch may take, `math.inf` for any time; None: HANG_SECONDS.
    """
    reader, writer = os.pipe()
    isolated = ["-I"] if sys.flags.isolated else []
    command = [*before, sys.executable, *isolated, os.path.abspath(sys.argv[0]), *options, "--report", str(writer)]
    sys.stdout.flush()
    child = subprocess.Popen(
        command,
        pass_fds=[writer],
        env={**os.environ, **(environment or {})},
        stdout=None if text == "through" else subprocess.PIPE,
        stderr=subprocess.STDOUT if text == "kept" else None,
    )
    with child:
        os.close(writer)
        heard = _echo if text == "echoed" else _keep
        messages, written, hung = _listen(reader, child, HANG_SECONDS if seconds is None else seconds, heard)
        if hung:
            child.kill()
    os.close(reader)
    return ChildExit(messages, child.returncode, hung, written)


def _keep(data: bytes) -> None:
    """What is kept need not be heard."""


def _echo(data: bytes) -> None:
    sys.stdout.write(data.decode(errors="replace"))
    sys.stdout.flush()


def _listen(
    reader: int, child: subprocess.Popen[bytes], seconds: float, heard_text: Callable[[bytes], None]
) -> tuple[tuple[Message, ...], str, bool]:
    """What the child reports and writes until it closes both, and whether it hangs."""
    written = child.stdout.fileno() if child.stdout is not None else None
    heard: dict[int, bytes] = {reader: b""} | ({} if written is None else {written: b""})
    open_ones = set(heard)
    deadline = math.inf
    hung = False
    while open_ones and not hung:
        left = None if deadline == math.inf else max(deadline - time.monotonic(), 0)
        ready = select.select(sorted(open_ones), [], [], left)[0]
        hung = not ready
        for descriptor in ready:
            data = os.read(descriptor, 65536)
            heard[descriptor] += data
            if descriptor == written:
                heard_text(data)
            if not data:
                open_ones.discard(descriptor)
        if deadline == math.inf and b"\n" in heard[reader]:
            deadline = time.monotonic() + seconds
    messages = tuple(tuple(json.loads(line)) for line in heard[reader].splitlines() if line.endswith(b"]"))
    return messages, heard.get(written or -1, b"").decode(errors="replace"), hung

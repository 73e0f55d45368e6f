"""A repro in a child process, which may die of its launch, and what it reports through a pipe."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

HANG_SECONDS = 120.0  # a launch is given this long

Message = tuple[str, ...]


class Report:
    """What a child tells its parent; nowhere where there is no parent."""

    def __init__(self, descriptor: int | None) -> None:
        self.descriptor = descriptor

    def say(self, *words: str | int) -> None:
        """One message: its kind, and what belongs to it."""
        if self.descriptor is not None:
            os.write(self.descriptor, json.dumps([str(word) for word in words]).encode() + b"\n")


@dataclass(frozen=True)
class Ended:
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
    def fault(self) -> str:
        """What its launch ended in; "" if it ended well."""
        if self.hung:
            return f"no end within {HANG_SECONDS:g} s"
        error = self.said("error")
        if error is not None:
            return error[1]
        return "" if self.said("end") is not None else self.ending

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
    keep_text: bool = False,
    seconds: float | None = None,
) -> Ended:
    """Runs this script once more, in a process of its own.

    Args:
        before: a command that runs it, compute-sanitizer for one.
        environment: variables to add.
        keep_text: keep what it writes instead of letting it through.
        seconds: how long its launch may take; None: HANG_SECONDS.
    """
    reader, writer = os.pipe()
    isolated = ["-I"] if sys.flags.isolated else []
    command = [*before, sys.executable, *isolated, os.path.abspath(sys.argv[0]), *options, "--report", str(writer)]
    sys.stdout.flush()
    child = subprocess.Popen(
        command,
        pass_fds=[writer],
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE if keep_text else None,
        stderr=subprocess.STDOUT if keep_text else None,
    )
    with child:
        os.close(writer)
        messages, text, hung = _listen(reader, child, HANG_SECONDS if seconds is None else seconds)
        if hung:
            child.kill()
    os.close(reader)
    return Ended(messages, child.returncode, hung, text)


def _listen(reader: int, child: subprocess.Popen[bytes], seconds: float) -> tuple[tuple[Message, ...], str, bool]:
    """What the child reports and writes until it closes both, and whether it hangs."""
    written = child.stdout.fileno() if child.stdout is not None else None
    heard: dict[int, bytes] = {reader: b""} | ({} if written is None else {written: b""})
    open_ones = set(heard)
    deadline: float | None = None
    hung = False
    while open_ones and not hung:
        left = None if deadline is None else max(deadline - time.monotonic(), 0)
        ready = select.select(sorted(open_ones), [], [], left)[0]
        hung = not ready
        for descriptor in ready:
            data = os.read(descriptor, 65536)
            heard[descriptor] += data
            if not data:
                open_ones.discard(descriptor)
        if deadline is None and b"\n" in heard[reader]:
            deadline = time.monotonic() + seconds
    messages = tuple(tuple(json.loads(line)) for line in heard[reader].splitlines() if line.endswith(b"]"))
    return messages, heard.get(written or -1, b"").decode(errors="replace"), hung

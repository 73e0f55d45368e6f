"""Runs a repro in a child process, which its launch may kill; the child reports through a pipe."""

from __future__ import annotations

import atexit
import ctypes
import gc
import io
import json
import math
import os
import re
import runpy
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, NoReturn

import torch

from .accesses import Access

HANG_SECONDS = 120.0  # a launch is given this long

Message = tuple[str, ...]
Text = Literal["through", "kept", "echoed"]
_FILES = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)  # those that buffer what is written


# Each thread of a GPU that fails an assertion says so in a line.
_ASSERTION = re.compile(rb".*: block: \[[\d,]+\], thread: \[[\d,]+\] (Assertion `.*` failed)\.?\s*")
_LINGERING = 1.0  # seconds that what a child has started may go on to write


class ReplayReport:
    """The findings of a replay; a child also sends them to its parent.

    Attributes:
        accesses: wrong ones.
        began: the launch began.
        what: the fault that the launch ended in, or the reason why it was not run; "" if there is none.
    """

    def __init__(self, descriptor: int | None) -> None:
        self.descriptor = descriptor
        self.accesses: list[Access] = []
        self.what = ""
        self.began = False

    def access(self, access: Access) -> None:
        """Adds a wrong access."""
        self.accesses.append(access)
        self.send("access", access.to_json())

    def add_child(self, child: ChildExit) -> None:
        """Adds the findings that a child sent."""
        self.accesses += [Access.from_json(message[1]) for message in child.messages if message[0] == "access"]
        refused = child.message("refused")
        self.what = refused[1] if refused is not None else child.fault

    def send(self, *words: str | int) -> None:
        """Sends one message: its kind, then its content."""
        self.began = self.began or words[0] == "begin"
        if self.descriptor is not None:
            os.write(self.descriptor, json.dumps([str(word) for word in words]).encode() + b"\n")


@dataclass(frozen=True)
class ChildExit:
    """The end of a child process.

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

    def message(self, kind: str) -> Message | None:
        """The first message of a kind."""
        return next((m for m in self.messages if m[0] == kind), None)

    @property
    def began(self) -> bool:
        """True if its launch began."""
        return self.message("begin") is not None

    @property
    def failed(self) -> bool:
        """True if the launch was not run, or not in the requested way."""
        return not self.began or self.message("refused") is not None

    @property
    def fault(self) -> str:
        """The fault that its launch ended in; "" if none."""
        if self.hung:
            return f"no end within {HANG_SECONDS:g} s"
        error = self.message("error")
        if error is not None:
            return error[1]
        return "" if self.message("end") is not None else self.ending

    @property
    def failure_reason(self) -> str:
        """The reason why its launch was not run, one line."""
        message = self.message("refused") or self.message("error")
        return self.ending if message is None else message[1].partition("\n")[0]

    @property
    def ending(self) -> str:
        """Its signal or exit code."""
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
    folds: bool = False,
) -> ChildExit:
    """Runs this script once more, in a process of its own.

    That process is forked, so that it need not import torch again, unless it needs another command or environment, or
    this process has started threads or uses CUDA: then it is a new one.

    Args:
        before: a command that runs it, compute-sanitizer for one.
        environment: variables to add.
        text: its output is inherited ("through"); or captured, standard error with it ("kept"); or its standard output
            is written to this process's `sys.stdout` ("echoed").
        seconds: how long its launch may take, `math.inf` for any time; None: HANG_SECONDS.
        folds: of the threads of a GPU that fail the same assertion, the first is printed, and how many follow. Not with
            text="kept".
    """
    reader, writer = os.pipe()
    errors, errors_writer = os.pipe() if folds else (None, None)
    words = [*options, "--report", str(writer)]
    sys.stdout.flush()
    sys.stderr.flush()
    if before or environment or not _can_fork():
        child = _start(before, words, environment or {}, text, writer, errors_writer)
    else:
        child = _fork(words, text, reader, errors_writer)
    os.close(writer)
    if errors_writer is not None:
        os.close(errors_writer)
    patience = HANG_SECONDS if seconds is None else seconds
    messages, written, hung = _listen(reader, child.output, errors, patience, echoes=text == "echoed")
    if hung:
        os.kill(child.pid, signal.SIGKILL)
    code = child.wait()
    os.close(reader)
    if errors is not None:
        os.close(errors)
    return ChildExit(messages, code, hung, written)


@dataclass(frozen=True)
class _Child:
    """A running child process.

    Attributes:
        output: descriptor of the pipe with its output; None if it is inherited.
        wait: waits for its end and returns its code, as Popen.returncode.
    """

    pid: int
    output: int | None
    wait: Callable[[], int]


def _start(
    before: Sequence[str],
    words: Sequence[str],
    environment: Mapping[str, str],
    text: Text,
    writer: int,
    errors: int | None,
) -> _Child:
    isolated = ["-I"] if sys.flags.isolated else []
    child = subprocess.Popen(
        [*before, sys.executable, *isolated, os.path.abspath(sys.argv[0]), *words],
        pass_fds=[writer],
        env={**os.environ, **environment},
        stdout=None if text == "through" else subprocess.PIPE,
        stderr=subprocess.STDOUT if text == "kept" else errors,
    )

    def wait() -> int:
        with child:
            return child.wait()

    return _Child(child.pid, None if child.stdout is None else child.stdout.fileno(), wait)


def _threads() -> int:
    """The number of threads of this process; 0 where the system does not tell."""
    return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0


def _has_driver() -> bool:
    """True if the library of the CUDA driver is loaded."""
    try:
        with open("/proc/self/maps", errors="replace") as maps:
            return "libcuda.so" in maps.read()
    except OSError:
        return True


_THREADS_AT_IMPORT = _threads()  # those that numpy has started, which it stops before a fork
_DRIVER_AT_IMPORT = _has_driver()


def _can_fork() -> bool:
    """True if a forked child is as good as a new process: no thread gets lost, and CUDA can be used in it."""
    if not 0 < _threads() <= _THREADS_AT_IMPORT or _has_driver() != _DRIVER_AT_IMPORT:
        return False
    child = os.fork()
    if child == 0:
        os._exit(int(torch.cuda._is_in_bad_fork()))  # after this process has asked for the devices, for one
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _fork(words: Sequence[str], text: Text, reader: int, errors: int | None) -> _Child:
    """Forks a child that runs this script with other options."""
    output, output_writer = (None, None) if text == "through" else os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        if errors is not None:
            os.dup2(errors, 2)
            os.close(errors)
        if output is not None and output_writer is not None:
            os.close(output)
            os.dup2(output_writer, 1)
            if text == "kept":
                os.dup2(output_writer, 2)
        _execute([os.path.abspath(sys.argv[0]), *words])
    if output_writer is not None:
        os.close(output_writer)

    def wait() -> int:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if output is not None:
            os.close(output)
        return code

    return _Child(pid, output, wait)


def _execute(words: list[str]) -> NoReturn:
    """Runs a script as a new interpreter would, and ends the process with its exit handlers."""
    code = 1
    try:
        sys.argv = words
        sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
        code = _exit_code(words[0])
        threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as the interpreter does
        atexit._run_exitfuncs()
        gc.unfreeze()
        for file in [obj for obj in gc.get_objects() if issubclass(type(obj), _FILES)]:
            with suppress(Exception):
                file.flush()
        ctypes.PyDLL(None).exit(code)  # runs the exit handlers of libraries, too
    finally:
        os._exit(code)


def _exit_code(script: str) -> int:
    """Runs a script and returns its exit code; an exception is printed."""
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException as error:  # noqa: BLE001 - as the interpreter does with every exception
        traceback.print_exception(error)
        return 1
    return 0


class _Errors:
    """Writes the standard error of a child to that of this process; equal assertions of a GPU's threads once."""

    def __init__(self) -> None:
        self._times: dict[bytes, int] = {}
        self._rest = b""

    def write(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            failed = _ASSERTION.fullmatch(line)
            if failed is not None:
                self._times[failed[1]] = self._times.get(failed[1], 0) + 1
            if failed is None or self._times[failed[1]] == 1:
                self._print(line + b"\n")

    def end(self) -> None:
        if self._rest:
            self._print(self._rest + b"\n")
        for assertion, times in self._times.items():
            others = f"{times - 1} more thread{'s' if times > 2 else ''}"
            if times > 1:
                self._print(f"{others}: {assertion.decode(errors='replace')}\n".encode())

    def _print(self, data: bytes) -> None:
        sys.stderr.write(data.decode(errors="replace"))
        sys.stderr.flush()


def _listen(
    reader: int, written: int | None, errors: int | None, seconds: float, *, echoes: bool
) -> tuple[tuple[Message, ...], str, bool]:
    """Returns the child's messages, its captured text, which it may also echo, and True if the child hangs."""
    received = {descriptor: b"" for descriptor in (reader, written, errors) if descriptor is not None}
    open_ones = set(received)
    standard_error = _Errors()
    deadline = math.inf
    hung = False
    while open_ones and not hung:
        remaining = None if deadline == math.inf else max(deadline - time.monotonic(), 0)
        if open_ones == {errors}:  # the child has ended, or is about to
            remaining = _LINGERING
        ready = select.select(sorted(open_ones), [], [], remaining)[0]
        if not ready and open_ones == {errors}:
            break
        hung = not ready
        for descriptor in ready:
            data = os.read(descriptor, 65536)
            if descriptor == errors:
                standard_error.write(data)
            else:
                received[descriptor] += data
            if descriptor == written and echoes:
                sys.stdout.write(data.decode(errors="replace"))
                sys.stdout.flush()
            if not data:
                open_ones.discard(descriptor)
        if deadline == math.inf and b"\n" in received[reader]:
            deadline = time.monotonic() + seconds
    standard_error.end()
    messages = tuple(tuple(json.loads(line)) for line in received[reader].splitlines() if line.endswith(b"]"))
    return messages, received.get(written or -1, b"").decode(errors="replace"), hung

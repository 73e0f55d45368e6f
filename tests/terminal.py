"""Runs `aoti-debug` on a terminal of a given size, and into pipes."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

from tests.paths import ROOT

LINK = re.compile("\x1b\\]8;;.*?\x1b\\\\")
COMMAND = (sys.executable, "-m", "aoti_debug")


def on_terminal(*arguments: str, columns: int, **environment: str) -> list[str]:
    """What it writes on a terminal of so many columns, stdout and stderr together, in lines, without the links."""
    return [LINK.sub("", line) for line in with_links_on_terminal(*arguments, columns=columns, **environment)]


def with_links_on_terminal(*arguments: str, columns: int, **environment: str) -> list[str]:
    """The same with its links."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=_environment(environment)
    )
    os.close(theirs)
    written = b""
    try:
        while block := os.read(ours, 1 << 16):
            written += block
    except OSError:  # EIO: the last process that had the terminal open has ended
        pass
    process.wait()
    os.close(ours)
    return written.decode().replace("\r\n", "\n").splitlines()


def piped(*arguments: str, **environment: str) -> list[str]:
    """What it writes into a pipe as stdout, in lines."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env=_environment(environment),
    )
    return done.stdout.splitlines()


def _environment(changes: dict[str, str]) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR", "TERM")}
    return {**inherited, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **changes}

"""Replaces itself by a command that is killed with its process group as soon as a pipe is closed.

`python -I -S end_with_parent.py DESCRIPTOR COMMAND…`: nobody writes into the pipe of DESCRIPTOR; it is closed when the
process that holds its other end is gone, whatever ended that. Imports nothing of aoti-debug.
"""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """Leaves a process that watches the pipe in the process group, then becomes the command."""
    descriptor, *command = int(sys.argv[1]), *sys.argv[2:]
    between = os.fork()
    if between == 0:
        if os.fork() == 0:  # no child of the command's, which may wait for any child
            _watch(descriptor)
        os._exit(0)
    os.waitpid(between, 0)
    os.close(descriptor)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


def _watch(descriptor: int) -> None:
    """Kills the group when the pipe is closed; keeps no output of the command open."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.read(descriptor, 1)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()

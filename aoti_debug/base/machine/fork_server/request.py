"""The request to a fork server, and how it travels over the socket: its length, file descriptors, and JSON."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import json_data

PARENT = "{parent}"  # in an argument: replaced by the id of the parent process
DESCRIPTOR = "{descriptor}"  # replaced by the number of the inherited file descriptor
_LENGTH = struct.Struct("<Q")
_MAX_DESCRIPTORS = 4


@dataclass(frozen=True)
class PythonCommand:
    """The code that a Python process executes: the function `main` of a module, or a script.

    Attributes:
        module: "aoti_debug.runs.run.worker"; "" for a script.
        script: its path; "" for a module.
        arguments: `sys.argv` from 1 on; PARENT and DESCRIPTOR in them are replaced.
    """

    module: str = ""
    script: str = ""
    arguments: tuple[str, ...] = ()

    def filled_in(self, parent: int, descriptor: int | None) -> tuple[str, ...]:
        """The arguments with their replacements."""
        replacements = {PARENT: str(parent), DESCRIPTOR: str(descriptor)}
        return tuple(replacements.get(word, word) for word in self.arguments)


@dataclass(frozen=True)
class ForkRequest:
    """The request to fork.

    Attributes:
        environment: all variables of the child.
        directory: its working directory.
        inherits: True if a descriptor for `command` follows those of its output.
    """

    command: PythonCommand
    environment: Mapping[str, str]
    directory: str
    inherits: bool


def send(channel: socket.socket, request: ForkRequest, descriptors: list[int]) -> None:
    """Sends a request.

    Args:
        descriptors: for the child's status, stdout and stderr, and the inherited one.

    Raises:
        OSError: the server is gone.
    """
    text = json_data.to_text(request, indent=None).encode()
    socket.send_fds(channel, [_LENGTH.pack(len(text))], descriptors)
    channel.sendall(text)


def receive(channel: socket.socket) -> tuple[ForkRequest, list[int]] | None:
    """Waits for a request and its descriptors; None if the other side has gone."""
    header, descriptors, _, _ = socket.recv_fds(channel, _LENGTH.size, _MAX_DESCRIPTORS)
    if len(header) < _LENGTH.size:
        return None
    text = b""
    (length,) = _LENGTH.unpack(header)
    while len(text) < length:
        part = channel.recv(length - len(text))
        if not part:
            return None
        text += part
    return json_data.parse(ForkRequest, text), descriptors

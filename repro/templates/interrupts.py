"""Interrupts that are not lost: Python drops the exception of one that comes while a process is forked."""

from __future__ import annotations

import signal


class Interrupts:
    """Remembers an interrupt while it is entered, and raises KeyboardInterrupt for it, as Python does."""

    def __init__(self) -> None:
        self._has_come = False
        self._before: signal._HANDLER = None

    def __enter__(self) -> Interrupts:
        self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def check(self) -> None:
        """Raises KeyboardInterrupt if an interrupt has come."""
        if self._has_come:
            raise KeyboardInterrupt

    def _handle(self, *_: object) -> None:
        self._has_come = True
        raise KeyboardInterrupt

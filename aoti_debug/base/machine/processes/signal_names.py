"""Names of signals."""

from __future__ import annotations

import signal


def signal_name(number: int) -> str:
    """The name of a signal, "SIGSEGV"; "signal 40" if it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

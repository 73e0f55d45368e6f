"""The verdict on the end of a run: the launch that caused it, how certain that is, and a sentence that says so."""

from __future__ import annotations

import signal
from enum import Enum

from aoti_debug.base import wording
from aoti_debug.base.frozen import dataclass
from aoti_debug.runs.rundir.launch import Launch

# CUresults (and the equal cudaError_t) of a kernel that failed while it ran: the driver reports them in a later call.
# Any other code belongs to the call that returned it.
ASYNCHRONOUS = {
    214: "an uncorrectable ECC error was encountered",
    220: "an uncorrectable NVLink error was encountered",
    700: "an illegal memory access was encountered",
    702: "the launch timed out",
    709: "the context was destroyed",
    710: "a device-side assert was triggered",
    714: "a hardware stack error",
    715: "an illegal instruction was encountered",
    716: "a misaligned address",
    717: "an operation on an address of the wrong space",
    718: "an invalid program counter",
    719: "an unspecified launch failure",
    721: "the context is lost: a contained memory error",
}


class Proof(str, Enum):
    """The certainty of a verdict."""

    CERTAIN = "certain"
    RANGE = "range"  # one of several launches
    LIKELY = "likely"  # it was running; there is no evidence of a fault of its own
    NONE = "none"  # no launch can be named


@dataclass(frozen=True)
class Verdict:
    """The diagnosis of a run that did not end cleanly.

    Attributes:
        what: in the words of the system: "SIGSEGV", "CUDA error 700: an illegal memory access was encountered".
        headline: a sentence about the model, as far as the run tells it, in one line; else the first line of `what`.
        suspects: the guilty launch; several if `proof` is RANGE, in order; none if it is NONE.
        why: the reason for the verdict, one sentence.
        surfaced: the launch in which the error was reported, if that is another one.
        next_commands: the commands to type next.
        frames: at most six useful frames of the host's call stack, innermost first; none if the device failed, or no
            stack was recorded.
        waits: of a process that hung, what each thread was doing, a sentence each.
        hangs: True if the run was ended because nothing went on any more.
    """

    what: str
    headline: str
    proof: Proof
    suspects: tuple[Launch, ...]
    why: str
    surfaced: Launch | None
    next_commands: tuple[str, ...]
    frames: tuple[str, ...] = ()
    hangs: bool = False
    waits: tuple[str, ...] = ()

    @property
    def launch(self) -> Launch | None:
        """The guilty launch; None if it is one of several, or unknown."""
        return self.suspects[0] if len(self.suspects) == 1 else None

    @property
    def message(self) -> str:
        """The first line of `what`, where the headline does not hold it; else ""."""
        first = wording.first_line(self.what)
        return "" if first in self.headline else first


def signal_text(name: str) -> str:
    """A signal with its description: "SIGSEGV (Segmentation fault)"."""
    number = signal.Signals.__members__.get(name)
    return name if number is None else f"{name} ({signal.strsignal(number)})"

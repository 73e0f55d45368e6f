"""One recorded launch, as a repro needs it: the site, and each slot's value with its saved tensors."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.package.manifest import Arg, Form, Site
from aoti_debug.package.recording.values import Absent, Tensor, Value
from aoti_debug.runs.rundir.timeline import Grid


@dataclass(frozen=True)
class RecordedSlot:
    """An argument of a recorded launch, with its saved tensor files.

    Attributes:
        value: as it was before the launch; of an output slot as it was after it (UNSET where the launch did not end).
        before, after: the saved tensor files; None where there is none.
        reason: why a file is missing; "" if nothing is known.
        made: the launch put a new tensor into a handle that was passed.
    """

    arg: Arg
    value: Value
    before: Path | None = None
    after: Path | None = None
    reason: str = ""
    made: bool = False

    @property
    def is_made(self) -> bool:
        """True if the launch allocated the tensor of the argument."""
        return self.made or self.arg.form is Form.OUTPUT_SLOT

    @property
    def tensor(self) -> Tensor | None:
        """The value of the argument, if that is a tensor."""
        return self.value if isinstance(self.value, Tensor) else None

    @property
    def absent(self) -> bool:
        """None, or an undefined tensor, which operators take for None."""
        return self.value in (Absent.NULL, Absent.UNDEFINED)


@dataclass(frozen=True)
class RecordedRun:
    """The run that a launch comes from.

    Attributes:
        started: ISO 8601.
        tool_version: of the aoti-debug that writes the repro.
    """

    path: Path
    started: str
    torch_version: str
    device: str
    tool_version: str


@dataclass(frozen=True)
class RecordedLaunch:
    """A launch with its values and saved tensors.

    Attributes:
        id: "0.3"
        slots: in the order of `site.args`.
        fault: what the launch ended in, "SIGSEGV" for one; "" if it ended well.
        grid: what launchKernel handed to the device; None where it started nothing, or on the CPU.
        started: False where its grid was empty.
        binary: the device kernel's machine code; None where it is missing.
        no_binary: the reason why it is missing; "" where it is not.
    """

    id: str
    site: Site
    slots: tuple[RecordedSlot, ...]
    run: RecordedRun
    fault: str = ""
    grid: Grid | None = None
    started: bool = True
    binary: bytes | None = None
    no_binary: str = ""

    def by_value(self, value: int) -> tuple[RecordedSlot, ...]:
        """The slots behind one expression of the call."""
        return tuple(slot for slot in self.slots if slot.arg.value == value)

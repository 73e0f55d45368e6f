"""A non-finite value that does harm, from where it came into the run to the place of the harm."""

from __future__ import annotations

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.triage.nonfinite.harmful_sinks import Sink
from aoti_debug.triage.nonfinite.observed_values import Occurrence
from aoti_debug.triage.nonfinite.trace_roots import Root


@dataclass(frozen=True)
class NonfiniteCase:
    """A non-finite value that does harm, from its root to the sink.

    The statistics of launches show that there is a way from the root to the sink, not that the value went it.

    Attributes:
        root: where it came from.
        nan: where NaN arose from the root's infinity; else the root's own occurrence.
        sink: where it does harm.
        other_roots: further roots of such values.
        is_doubtful: infinities that are meant reach the sink, too: the root's may do no harm.
    """

    root: Root
    nan: Occurrence
    sink: Sink
    other_roots: tuple[Root, ...]
    is_doubtful: bool = False

    @property
    def path(self) -> tuple[Occurrence, ...]:
        """From the root to where NaN arose, both included."""
        return (self.root.occurrence,) if not self.becomes_nan else (*self.root.path, self.nan)

    @property
    def becomes_nan(self) -> bool:
        """True if the root's value is an infinity that NaN arose from elsewhere."""
        return self.nan.key != self.root.occurrence.key

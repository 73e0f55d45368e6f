"""What became of an operator of PyTorch's database, and the bugs of torch that are known to stop some."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase

from benchmarks.models.operator_samples import Target


class Outcome(str, Enum):
    """What became of an operator."""

    GOOD = "good"
    NO_EXPORT = "torch.export cannot"
    NO_AOTI = "plain AOTI cannot"
    UNSTEADY = "not deterministic in plain"
    KNOWN = "known bug of torch"
    FAILED = "FAILED"
    OTHER_BITS = "OTHER BITS"
    COMPARED = "COMPARED OTHERWISE"
    REPLAYED = "REPRO DIFFERS"
    NOT_RUN = "not run"

    @property
    def is_unexplained(self) -> bool:
        return self in (Outcome.FAILED, Outcome.OTHER_BITS, Outcome.COMPARED, Outcome.REPLAYED)

    @property
    def counts(self) -> bool:
        """True if plain AOTI can do it, so that the instrumented package has to as well."""
        return self in (Outcome.GOOD, Outcome.KNOWN) or self.is_unexplained


@dataclass(frozen=True)
class Result:
    """What became of an operator.

    Attributes:
        said: the reason, in the words of whoever gives it; of a good one what was compared and replayed.
    """

    operator: str
    outcome: Outcome
    said: str


@dataclass(frozen=True)
class KnownBug:
    """A bug of torch that makes an operator come out otherwise than it should.

    Attributes:
        operator, dtype, device: patterns.
        outcome: what it looks like here.
        reason: what is wrong in torch.
    """

    operator: str
    dtype: str
    device: str
    outcome: Outcome
    reason: str


NO_REPRO = "cannot be replayed"  # how the words of a good operator begin where no launch of it can
UNDEFINED = frozenset(  # operators that return memory which nothing has written
    (
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "resize_",
        "resize_as_",
    )
)
KNOWN_BUGS = (
    KnownBug(
        "expm1",
        "float32",
        "cpu",
        Outcome.COMPARED,
        "Inductor's vectorised expm1 is 130 ULP off near zero on the CPU",
    ),
)


def explained(result: Result, target: Target) -> Result:
    """The result; one that a known bug of torch explains names it."""
    for bug in KNOWN_BUGS:
        is_meant = result.outcome is bug.outcome and fnmatchcase(result.operator, bug.operator)
        if is_meant and fnmatchcase(target.dtype, bug.dtype) and fnmatchcase(target.device, bug.device):
            return Result(result.operator, Outcome.KNOWN, f"{bug.reason} ({result.said})")
    return result

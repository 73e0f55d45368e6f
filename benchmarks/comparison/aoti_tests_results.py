"""What became of a model of PyTorch's AOTInductor tests."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path


class Outcome(str, Enum):
    """What became of a model."""

    EQUAL = "equal bit for bit"
    OTHER_KERNELS = "equal bit for bit, other kernels"
    OTHER_BITS = "OTHER BITS"
    REFUSED = "REFUSED"
    FAILED = "FAILED"
    UNSTEADY = "plain does not repeat its bits"
    TORCH = "torch fails"
    NO_MODEL = "no model"
    NOT_RUN = "not run"

    @property
    def is_wrong(self) -> bool:
        return self in (Outcome.OTHER_BITS, Outcome.REFUSED, Outcome.FAILED)

    @property
    def is_equal(self) -> bool:
        return self in (Outcome.EQUAL, Outcome.OTHER_KERNELS)

    @property
    def counts(self) -> bool:
        """True if plain AOTI compiles and runs the model and repeats its results."""
        return self.is_equal or self.is_wrong


@dataclass(frozen=True)
class Result:
    """What became of a model.

    Attributes:
        case: "test_simple", the second model of a test is "test_simple#2".
        said: the reason, in the words of whoever gives it.
        seconds: that all took.
    """

    case: str
    outcome: Outcome
    said: str = ""
    seconds: float = 0.0

    @property
    def test(self) -> str:
        return self.case.partition("#")[0]

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def from_json(line: str) -> Result:
    row = json.loads(line)
    return Result(row["case"], Outcome(row["outcome"]), row["said"], row["seconds"])


def read(file: Path) -> list[Result]:
    """The results in a file, one a line; a last line that was cut off does not count."""
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    return [from_json(line) for line in lines if line.endswith("\n")]


def finished(results: Iterable[Result]) -> frozenset[str]:
    """The tests that need not be run again."""
    listed = list(results)
    return frozenset(result.test for result in listed) - {r.test for r in listed if r.outcome is Outcome.NOT_RUN}

"""The verdict of a triage of a candidate's script: whether that has the finding of the program."""

from __future__ import annotations

from enum import Enum

from aoti_debug.base.lazy.dataclass import dataclass


class TriageAnswer(str, Enum):
    """The answer of a triage."""

    YES = "confirmed"
    NO = "not confirmed"
    UNKNOWN = "not known"


@dataclass(frozen=True)
class ScriptVerdict:
    """The verdict of a triage of a script's program.

    Attributes:
        text: the finding, "FAULT SIGSEGV"; the reason why there is none where the answer is not known.
    """

    confirmation: TriageAnswer
    text: str

    @property
    def line(self) -> str:
        """The text, after the answer where that is not the hoped for."""
        prefix = {TriageAnswer.NO: "NOT CONFIRMED: ", TriageAnswer.UNKNOWN: "not known: "}
        return f"{prefix.get(self.confirmation, '')}{self.text}"


@dataclass(frozen=True)
class TriagedScript:
    """A script that showed the finding, as it was triaged.

    Attributes:
        name: what it is made of: "2 of 13 calls of launch 0.3, inputs random".
    """

    name: str
    verdict: ScriptVerdict

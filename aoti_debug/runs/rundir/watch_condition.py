"""Conditions on a tensor: "absmax > 1e4 or nan"; runtime_shims/watch/watch_condition.cpp parses the same.

    condition   =  all { "or" all }
    all         =  one { "and" one }
    one         =  "(" condition ")"  |  operand [ comparator operand ]
    operand     =  name  |  number

A count alone, such as `nan`, stands for `nan > 0`. A comparison with NaN, or with what is not known, never holds.
A watchpoint, "NAME: CONDITION", is one with the name of what it is evaluated for.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from aoti_debug.base.errors import UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.package.manifest import Manifest
from aoti_debug.runs.rundir.formats.statistics import Statistics

COUNTS = ("nan", "inf", "posinf", "neginf", "nonfinite", "zeros", "numel")
STATISTICS = ("min", "max", "absmax", "mean", "std", *COUNTS)
_DEEPEST = 64
_MAX_COMPARISONS = 32
_TOKEN = re.compile(
    r"[ \t]*(?:(?P<word>[A-Za-z_]+)|(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(?P<sign><=|>=|==|!=|<|>)"
    r"|(?P<other>.))"
)
_TEXT = re.compile(r"[ \t]*(?P<text>[\w.]+)")
_SIGNS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
Quantity: TypeAlias = float | str | None  # None: not known


class ConditionError(ValueError):
    """A text that is no condition.

    Attributes:
        at: the place of the mistake: characters from the beginning of the text.
    """

    def __init__(self, problem: str, at: int) -> None:
        super().__init__(problem)
        self.at = at

    def shown_in(self, text: str) -> str:
        """The problem, the text, and a caret under the place."""
        return f"{self}\n  {text}\n  {' ' * self.at}^"


@dataclass(frozen=True)
class ConditionOperand:
    """A side of a comparison.

    Attributes:
        name: "absmax"; "" for a constant.
        value: the constant.
    """

    name: str = ""
    value: float | str = 0.0


@dataclass(frozen=True)
class Relation:
    """A comparison of two operands; `sign` is "==", "!=", ">=", "<=", ">" or "<"."""

    left: ConditionOperand
    sign: str
    right: ConditionOperand


@dataclass(frozen=True)
class Joined:
    """Conditions that all have to hold, or one of which has to."""

    parts: tuple[Condition, ...]
    all_of_them: bool


Condition: TypeAlias = Relation | Joined


def parse(text: str, begin: int = 0, numbers: Collection[str] = (), texts: Collection[str] = ()) -> Condition:
    """Parses a condition.

    Args:
        begin: where it begins in `text`.
        numbers: names of numbers beside STATISTICS.
        texts: names that are compared with words, by == and !=.

    Raises:
        ConditionError: it is none.
    """
    return _Parser(text, begin, (*STATISTICS, *numbers), texts).whole()


def holds(condition: Condition, quantity: Callable[[str], Quantity]) -> bool:
    """True if a condition holds.

    Args:
        quantity: the value of a name.
    """
    if isinstance(condition, Joined):
        join = all if condition.all_of_them else any
        return join(holds(part, quantity) for part in condition.parts)
    left, right = (quantity(side.name) if side.name else side.value for side in (condition.left, condition.right))
    if left is None or right is None or left != left or right != right:
        return False
    return _SIGNS[condition.sign](left, right)


def names(condition: Condition) -> frozenset[str]:
    """The names in a condition."""
    if isinstance(condition, Joined):
        return frozenset().union(*map(names, condition.parts))
    return frozenset(side.name for side in (condition.left, condition.right) if side.name)


def statistic(name: str, of: Statistics) -> float | None:
    """The value of one of STATISTICS; None if no element counts for it.

    Of min, max and absmax infinities count, of mean and std the finite elements only, of none NaN.
    """
    infinities = of.n_pos_inf + of.n_neg_inf
    match name:
        case "min":
            return -math.inf if of.n_neg_inf else of.min if of.min is not None else math.inf if infinities else None
        case "max":
            return math.inf if of.n_pos_inf else of.max if of.max is not None else -math.inf if infinities else None
        case "absmax":
            return math.inf if infinities else None if of.min is None else max(abs(of.min), abs(of.max or 0))
        case "mean" | "std":
            return None if of.min is None else float(getattr(of, name))
    counts = {
        "nan": of.n_nan,
        "inf": infinities,
        "posinf": of.n_pos_inf,
        "neginf": of.n_neg_inf,
        "nonfinite": of.n_nan + infinities,
        "zeros": of.n_zero,
        "numel": of.numel,
    }
    return counts[name]


class _Parser:
    def __init__(self, text: str, begin: int, numbers: Collection[str], texts: Collection[str]) -> None:
        self._text = text
        self._at = begin
        self._numbers = numbers
        self._texts = texts
        self._depth = 0
        self._comparisons = 0

    def whole(self) -> Condition:
        condition = self._either()
        found = self._next()
        if found is not None:
            raise ConditionError(f"{found[0].strip()!r} is not expected here", found.start(found.lastgroup or 0))
        return condition

    def _either(self) -> Condition:
        parts = [self._both()]
        while self._takes("or"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else Joined(tuple(parts), all_of_them=False)

    def _both(self) -> Condition:
        parts = [self._one()]
        while self._takes("and"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else Joined(tuple(parts), all_of_them=True)

    def _one(self) -> Condition:
        if not self._takes("("):
            return self._comparison()
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ConditionError("there are too many parentheses", self._at - 1)
        condition = self._either()
        self._depth -= 1
        if not self._takes(")"):
            raise ConditionError("a ) is missing", self._at)
        return condition

    def _comparison(self) -> Relation:
        left, begin = self._operand()
        self._comparisons += 1
        if self._comparisons > _MAX_COMPARISONS:
            raise ConditionError(f"there are more than {_MAX_COMPARISONS} comparisons", begin)
        found = self._next()
        if found is None or not found["sign"]:
            if left.name in COUNTS:
                return Relation(left, ">", ConditionOperand())
            raise ConditionError("a comparison is missing, such as > 0", self._at)
        self._at = found.end()
        if left.name in self._texts:
            if found["sign"] not in ("==", "!="):
                raise ConditionError(f"{left.name} is compared by == and != only", found.start("sign"))
            return Relation(left, found["sign"], self._word())
        right, _ = self._operand()
        if not left.name and not right.name:
            raise ConditionError("it compares no statistic", begin)
        return Relation(left, found["sign"], right)

    def _operand(self) -> tuple[ConditionOperand, int]:
        """An operand, and where it begins."""
        found = self._next()
        if found is None or not (found["word"] or found["number"]):
            raise ConditionError("a statistic or a number is missing", self._at)
        word = found["word"]
        if word and word not in self._numbers and word not in self._texts:
            known = ", ".join((*self._numbers, *self._texts))
            raise ConditionError(f"there is no statistic {word!r}: they are {known}", found.start("word"))
        self._at = found.end()
        if word:
            return ConditionOperand(word), found.start("word")
        return ConditionOperand(value=float(found["number"])), found.start("number")

    def _word(self) -> ConditionOperand:
        found = _TEXT.match(self._text, self._at)
        if found is None:
            raise ConditionError("a word is missing", self._at)
        self._at = found.end()
        return ConditionOperand(value=found["text"])

    def _next(self) -> re.Match[str] | None:
        found = _TOKEN.match(self._text, self._at)
        return found if found is not None and found[0].strip() else None

    def _takes(self, word: str) -> bool:
        found = self._next()
        if found is None or found[0].strip() != word:
            return False
        self._at = found.end()
        return True


ACTIONS = ("save", "stack", "stop", "count")


def check(watchpoint: str) -> None:
    """Checks the syntax of a watchpoint.

    Raises:
        UsageError: it does not parse; the message has a caret under the place.
    """
    try:
        _check(watchpoint)
    except ConditionError as error:
        raise UsageError(
            f"--watch does not parse: {error.shown_in(watchpoint)}",
            hint="--watch 'NAME: CONDITION', such as 'buf7: absmax > 1e4' or '*: nan'",
        ) from error


def _check(watchpoint: str) -> None:
    if ";" in watchpoint:
        raise ConditionError("a watchpoint has no semicolon; give --watch more than once", watchpoint.index(";"))
    pattern, colon, text = watchpoint.rpartition(":")
    if not colon:
        raise ConditionError("a colon is missing between the name and the condition", len(watchpoint))
    if not pattern.strip():
        raise ConditionError("the name of an argument or a kernel is missing", 0)
    parse(watchpoint, len(watchpoint) - len(text))


def check_actions(words: str) -> None:
    """Checks a list of actions with commas between them.

    Raises:
        UsageError: one is not known.
    """
    for word in words.split(","):
        if word.strip() not in ACTIONS:
            raise UsageError(f"--on-hit {words}: there is no {word.strip()!r}", hint=f"it takes {', '.join(ACTIONS)}")


def unmatched(watchpoints: Iterable[str], manifest: Manifest) -> tuple[str, ...]:
    """The patterns of watchpoints that match neither an argument nor a kernel of the package."""
    names = {site.kernel for site in manifest.sites} | {arg.name for site in manifest.sites for arg in site.args}
    patterns = (watchpoint.rpartition(":")[0].strip() for watchpoint in watchpoints)
    return tuple(pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in names))

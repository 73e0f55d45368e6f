"""The syntax of watchpoints, checked before a run starts; runtime_shims/watch_condition.cpp parses the same.

    watchpoint  =  pattern ":" condition
    condition   =  all { "or" all }
    all         =  one { "and" one }
    one         =  "(" condition ")"  |  operand [ comparator operand ]
    operand     =  statistic  |  number

A count alone, such as `nan`, stands for `nan > 0`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from aoti_debug.errors import UsageError
from aoti_debug.manifest import Manifest

COUNTS = ("nan", "inf", "posinf", "neginf", "nonfinite", "zeros", "numel")
STATISTICS = ("min", "max", "absmax", "mean", "std", *COUNTS)
ACTIONS = ("save", "stack", "stop", "count")
_DEEPEST = 64
_TOKEN = re.compile(
    r"[ \t]*(?:(?P<word>[A-Za-z_]+)|(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(?P<sign><=|>=|==|!=|<|>)"
    r"|(?P<other>.))"
)


def check(watchpoint: str) -> None:
    """Checks the syntax of a watchpoint.

    Raises:
        UsageError: it does not parse; the message has a caret under the place.
    """
    if ";" in watchpoint:
        raise _error(watchpoint, watchpoint.index(";"), "a watchpoint has no semicolon; give --watch more than once")
    pattern, colon, condition = watchpoint.rpartition(":")
    if not colon:
        raise _error(watchpoint, len(watchpoint), "a colon is missing between the name and the condition")
    if not pattern.strip():
        raise _error(watchpoint, 0, "the name of an argument or a kernel is missing")
    _Parser(watchpoint, len(watchpoint) - len(condition)).whole()


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


def _error(watchpoint: str, at: int, problem: str) -> UsageError:
    return UsageError(
        f"--watch does not parse: {problem}\n  {watchpoint}\n  {' ' * at}^",
        hint="--watch 'NAME: CONDITION', such as 'buf7: absmax > 1e4' or '*: nan'",
    )


class _Parser:
    def __init__(self, text: str, at: int) -> None:
        self._text = text
        self._at = at
        self._depth = 0

    def whole(self) -> None:
        self._either()
        found = self._next()
        if found is not None:
            raise self._fail(f"{found[0].strip()!r} is not expected here", found.start(found.lastgroup or 0))

    def _either(self) -> None:
        self._both()
        while self._takes("or"):
            self._both()

    def _both(self) -> None:
        self._one()
        while self._takes("and"):
            self._one()

    def _one(self) -> None:
        if not self._takes("("):
            self._comparison()
            return
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._fail("there are too many parentheses", self._at - 1)
        self._either()
        self._depth -= 1
        if not self._takes(")"):
            raise self._fail("a ) is missing", self._at)

    def _comparison(self) -> None:
        left, begin = self._operand()
        found = self._next()
        if found is not None and found["sign"]:
            self._at = found.end()
            right, _ = self._operand()
            if left not in STATISTICS and right not in STATISTICS:
                raise self._fail("it compares no statistic", begin)
        elif left not in COUNTS:
            raise self._fail("a comparison is missing, such as > 0", self._at)

    def _operand(self) -> tuple[str, int]:
        """The word or number, and where it begins."""
        found = self._next()
        if found is None or not (found["word"] or found["number"]):
            raise self._fail("a statistic or a number is missing", self._at)
        word = found["word"]
        if word and word not in STATISTICS:
            raise self._fail(f"there is no statistic {word!r}: they are {', '.join(STATISTICS)}", found.start("word"))
        self._at = found.end()
        return (word, found.start("word")) if word else (found["number"], found.start("number"))

    def _next(self) -> re.Match[str] | None:
        found = _TOKEN.match(self._text, self._at)
        return found if found is not None and found[0].strip() else None

    def _takes(self, word: str) -> bool:
        found = self._next()
        if found is None or found[0].strip() != word:
            return False
        self._at = found.end()
        return True

    def _fail(self, problem: str, at: int) -> UsageError:
        return _error(self._text, at, problem)

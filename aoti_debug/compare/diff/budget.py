"""The budget of what may differ between two runs: a TOML file, as a gate of continuous integration.

[[tensor]]                 the first table that matches a tensor holds for it; a tensor that none matches must be equal
kernel = "triton_*"        a pattern; every kernel if it is left out
name = "buf7"              a pattern of the argument, of the model input or of the weight; every one if it is left out
ulp = 2                    limits, all of which must hold
rtol = 1e-5
atol = 1e-6
share = 0.01               of its elements that may differ
rounding = true            rounding has to explain what its launch wrote

[launches]
only_in_one = 0            launches that may be in one of the runs only
"""

from __future__ import annotations

import math
import sys
from dataclasses import fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from aoti_debug.base import wording
from aoti_debug.base.errors import UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.diff.difference import Diff, DiffExplanation, TensorDifference
from aoti_debug.compare.diff.pairs import PairedBy

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_NUMBERS = ("ulp", "rtol", "atol", "share")
_LIMITS = (*_NUMBERS, "rounding")


@dataclass(frozen=True, kw_only=True)
class TensorBudget:
    """The limits for tensors that match; None: no limit of that kind."""

    kernel: str = "*"
    name: str = "*"
    ulp: float | None = None
    rtol: float | None = None
    atol: float | None = None
    share: float | None = None
    rounding: bool = False

    def matches(self, kernel: str, name: str) -> bool:
        """True if it holds for a tensor."""
        return fnmatchcase(kernel, self.kernel) and fnmatchcase(name, self.name)

    def excess(self, difference: TensorDifference, explanation: DiffExplanation | None = None) -> str:
        """The limit that a difference exceeds, in words; "" if it exceeds none.

        Args:
            explanation: of what its launch wrote; None if there is none.
        """
        if self.rounding and not (explanation is not None and explanation.is_explained):
            cause = "it is not known if rounding explains it" if explanation is None else _words(explanation)
            return f"rounding: {cause}"
        if not self._has_numbers:
            return ""
        found = difference.elements
        if found is None:
            return f"how much it differs is not known: {difference.reason}"
        measured = {
            "ulp": found.max_ulp,
            "rtol": found.max_relative,
            "atol": found.max_absolute,
            "share": found.different / max(found.elements, 1),
        }
        for limit in _NUMBERS:
            allowed, value = getattr(self, limit), measured[limit]
            if allowed is None:
                continue
            if value is None:
                return f"{limit} is not defined for its dtype"
            if value > allowed:
                return f"{limit} {wording.number(value)} is more than {wording.number(allowed)}"
        return ""

    @property
    def _has_numbers(self) -> bool:
        return any(getattr(self, limit) is not None for limit in _NUMBERS)


@dataclass(frozen=True)
class Budget:
    """The limits of what may differ between two runs."""

    tensors: tuple[TensorBudget, ...] = ()
    only_in_one: int = 0

    def excesses(self, diff: Diff) -> tuple[str, ...]:
        """The differences that exceed it, one line each."""
        found = [
            f"{item.name}: {reason}" for item in diff.inputs if (reason := self._excess("", item.name, item.tensor))
        ]
        for launch in diff.launches:
            kernel = launch.launch.kernel
            explanation = launch.explanation
            reasons = [(t.name, self._excess(kernel, t.name, t, explanation)) for t in launch.tensors]
            found += [f"{launch.launch.id} {kernel} {name}: {reason}" for name, reason in reasons if reason]
        found += [f"{name}: an output without a counterpart" for name in diff.unpaired_outputs]
        found += diff.unfinished
        alone = len(diff.only_a) + len(diff.only_b)
        if diff.by is PairedBy.LAUNCH and alone > self.only_in_one:
            found.append(f"{wording.pluralize(alone, 'launch')} in one run only, of {self.only_in_one}")
        return tuple(found)

    def _excess(
        self, kernel: str, name: str, difference: TensorDifference, explanation: DiffExplanation | None = None
    ) -> str:
        budget = next((budget for budget in self.tensors if budget.matches(kernel, name)), None)
        return "it must be equal" if budget is None else budget.excess(difference, explanation)


def _words(explanation: DiffExplanation) -> str:
    """ "wrong in b, 3 of 64 elements of buf1"."""
    sides = f" in {' and '.join(explanation.wrong)}" if explanation.wrong else ""
    return f"{explanation.cause.value}{sides}{f', {explanation.reason}' if explanation.reason else ''}"


def read(path: Path) -> Budget:
    """Reads a budget.

    Raises:
        UsageError: the file cannot be read, or is not a budget; the message names the line or the key.
    """
    try:
        data = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise UsageError(f"cannot read the budget {path}: {reason}", hint="--gate names a TOML file") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}", hint=_HINT) from error
    try:
        return _budget(data)
    except ValueError as error:
        raise UsageError(f"{path}: {error}", hint=_HINT) from error


_HINT = 'a budget is [[tensor]] kernel = "triton_*" ulp = 2, and [launches] only_in_one = 0: docs/diff.md'


def _budget(data: dict[str, Any]) -> Budget:
    _check_keys(data, ("tensor", "launches"), "the budget")
    tensors, launches = data.get("tensor", []), data.get("launches", {})
    if not isinstance(tensors, list) or not isinstance(launches, dict):
        raise ValueError("it needs [[tensor]] tables and one [launches] table")
    _check_keys(launches, ("only_in_one",), "[launches]")
    only_in_one = launches.get("only_in_one", 0)
    if type(only_in_one) is not int or only_in_one < 0:
        raise ValueError(f"only_in_one is a number from 0, not {only_in_one!r}")
    return Budget(tuple(map(_tensor, tensors)), only_in_one)


def _tensor(table: Any) -> TensorBudget:
    if not isinstance(table, dict):
        raise ValueError("[[tensor]] is a table")
    _check_keys(table, tuple(field.name for field in fields(TensorBudget)), "[[tensor]]")
    for key, value in table.items():
        if key == "rounding":
            if value is not True:
                raise ValueError(f"rounding is true, or left out, not {value!r}")
            continue
        is_limit = key in _LIMITS
        if is_limit and not (type(value) in (int, float) and math.isfinite(value) and value >= 0):
            raise ValueError(f"{key} is a number from 0, not {value!r}")
        if not is_limit and not isinstance(value, str):
            raise ValueError(f"{key} is a pattern, not {value!r}")
    if not set(table) & set(_LIMITS):
        raise ValueError(f"a [[tensor]] has no limit: {wording.comma_separated(_LIMITS)}")
    return TensorBudget(**table)


def _check_keys(table: dict[str, Any], known: tuple[str, ...], where: str) -> None:
    unknown = sorted(set(table) - set(known))
    if unknown:
        raise ValueError(f"{where} has no {unknown[0]}; it has {wording.comma_separated(known)}")

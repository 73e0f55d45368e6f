from __future__ import annotations

from pathlib import Path

import pytest

from aoti_debug.base.errors import UsageError
from aoti_debug.compare.what_if.replacements import ResultSource, Substitution, parse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.36=eager", Substitution("0.36", ResultSource.EAGER)),
        ("36=fp64", Substitution("0.36", ResultSource.DOUBLE)),
        ("c0.1=skip", Substitution("c0.1", ResultSource.SKIP)),
        ("0.36=a=b.pt2", Substitution("0.36", ResultSource.PACKAGE, Path("a=b.pt2"))),
    ],
)
def test_a_launch_and_what_replaces_it(text: str, expected: Substitution) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize("text", ["0.36", "0.36=", "=eager", "x=eager", "0.36=package", "0.36=float64"])
def test_anything_else_is_wrong_usage(text: str) -> None:
    with pytest.raises(UsageError):
        parse(text)

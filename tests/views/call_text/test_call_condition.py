from __future__ import annotations

import math

import pytest

from aoti_debug.base.errors import UsageError
from aoti_debug.runs.rundir.formats.statistics import Statistics
from aoti_debug.views.call_text.call import CallTensor
from aoti_debug.views.call_text.call_condition import parse_condition

MEASURED = Statistics(12, 1, 0, 2, 3, -5.0, 4.0, 0, 0, 0.5, 1.0)
EMPTY = Statistics(2, 2, 0, 0, 0, None, None, 0, 0, math.nan, math.nan)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("nan", True),
        ("inf >= 3", False),
        ("inf == 2", True),
        ("absmax > 4.5", True),
        ("max>4", False),
        ("numel == 12", True),
        ("ndim != 2", False),
        ("dtype == f16", True),
        ("dtype != torch.float16", False),
        ("std <= 1e0", True),
        ("dtype == f32 or numel > 3 and nan", True),
        ("(dtype == f32 or numel > 3) and posinf", False),
    ],
)
def test_conditions(text: str, holds: bool) -> None:
    assert parse_condition(text).holds(CallTensor("$0", "float16", ("3", "4"), statistics=MEASURED)) == holds


def test_what_is_not_known_meets_no_condition() -> None:
    unknown = CallTensor("$0", "float16", ("s0", "4"))
    assert not any(parse_condition(text).holds(unknown) for text in ("nan", "absmax >= 0", "numel > 0"))
    assert not parse_condition("absmax >= 0").holds(CallTensor("$0", "float16", ("2",), statistics=EMPTY))
    assert [parse_condition(text).needs_values for text in ("nan", "numel > 0")] == [True, False]


@pytest.mark.parametrize(
    "text", ["", "nan >", "absmax > big", "absmax", "size > 3", "dtype > f16", "dtype", "max > 1 2", "nan and"]
)
def test_what_is_no_condition(text: str) -> None:
    with pytest.raises(UsageError, match="--where does not parse: ") as caught:
        parse_condition(text)
    _, shown, caret = str(caught.value).split("\n")
    assert shown == f"  {text}"
    assert caret.strip() == "^"
    assert "absmax > 1e4" in caught.value.hint

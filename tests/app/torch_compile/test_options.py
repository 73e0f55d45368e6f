"""Options of the backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aoti_debug.app.torch_compile.options import CompileOptions, from_mapping
from aoti_debug.base.errors import UsageError


def test_defaults_and_values() -> None:
    assert from_mapping(None) == CompileOptions()
    chosen = from_mapping({"level": 1, "filter": "triton_*", "out": "here", "inductor_configs": {"freezing": True}})
    assert chosen == CompileOptions(1, "triton_*", inductor_configs={"freezing": True}, out=Path("here"))


@pytest.mark.parametrize(
    ("given", "text", "hint"),
    [
        ({"levels": 1}, "has no option 'levels'", "level, filter"),
        ({"level": 7}, "level 7 is not one of", "1 save"),
        ({"filter": ["triton_*"]}, "filter is", "in one text"),
        ({"inductor_configs": "max_autotune"}, "inductor_configs is", "max_autotune"),
        ({"out": 3}, "out is 3", "a directory"),
        ({"phase": "during"}, "phase is 'during'", "before"),
    ],
)
def test_wrong_options(given: dict[str, Any], text: str, hint: str) -> None:
    with pytest.raises(UsageError, match=text) as caught:
        from_mapping(given)
    assert hint in caught.value.hint

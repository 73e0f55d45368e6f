from __future__ import annotations

import pytest

from aoti_debug.rundir import run_json


@pytest.mark.parametrize(
    ("guards", "poison", "environment", "expected"),
    [
        (False, None, {}, None),
        (False, None, {"AOTI_DEBUG_GUARDS": "0", "AOTI_DEBUG_POISON": "11"}, None),
        (True, None, {}, 0xFF),
        (True, 0, {"AOTI_DEBUG_POISON": "11"}, 0),
        (False, None, {"AOTI_DEBUG_GUARDS": "1"}, 0xFF),
        (True, None, {"AOTI_DEBUG_POISON": "3B"}, 0x3B),
        (False, None, {"AOTI_DEBUG_GUARDS": "1", "AOTI_DEBUG_POISON": "0x3"}, 0xFF),
    ],
)
def test_the_poison_in_force(
    monkeypatch: pytest.MonkeyPatch,
    guards: bool,
    poison: int | None,
    environment: dict[str, str],
    expected: int | None,
) -> None:
    for name in ("AOTI_DEBUG_GUARDS", "AOTI_DEBUG_POISON"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert run_json.poison_in_force(guards, poison) == expected

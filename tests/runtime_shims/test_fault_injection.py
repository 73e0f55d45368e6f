"""Calls of the runtime to the system fail: the model does not notice it, and the run says what is missing."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runtime_shims import fault_injection
from tests.runtime_shims.fault_injection import MEMORY, SETTINGS, SYSTEM, Fault, Injection


@pytest.fixture(scope="module")
def inject(objects: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Injection]:
    """Begins with a setting."""
    folder = tmp_path_factory.mktemp("injected")
    built = fault_injection.build(folder, objects, device=False)
    return lambda name: Injection(built, SETTINGS[name], folder / "points")


@pytest.mark.parametrize(
    ("setting", "fault", "first", "most"),
    [
        ("names", Fault(SYSTEM, only=errno.ENOSPC, lasts=True), 0, 40),
        ("names", Fault(SYSTEM, choice=2), 10, 25),  # among them EINTR
        ("tensors", Fault(SYSTEM), 80, 12),
        ("flight recorder", Fault(SYSTEM), 50, 20),
        ("names", Fault(MEMORY), 80, 20),
    ],
)
def test_the_model_does_not_notice(
    inject: Callable[[str], Injection], setting: str, fault: Fault, first: int, most: int
) -> None:
    points = list(inject(setting).points(fault, first=first, most=most))
    assert points
    assert [point for point in points if point.problems] == []

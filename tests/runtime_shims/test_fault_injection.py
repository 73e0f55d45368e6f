"""Calls of the runtime to the system fail: the model does not notice it, and the run says what is missing."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import cache

import pytest

from tests.runtime_shims import fault_injection
from tests.runtime_shims.fault_injection import DEVICE, MEMORY, SETTINGS, SYSTEM, Built, Fault, Injection, Machine
from tests.runtime_shims_cuda import device_library


@pytest.fixture(scope="module")
def inject(compiler: None, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Injection]:
    """Begins with a setting."""
    folder = tmp_path_factory.mktemp("injected")

    @cache
    def built(machine: Machine) -> Built:
        made = folder / machine.name
        made.mkdir()
        return fault_injection.build(made, machine)

    def begin(name: str) -> Injection:
        if SETTINGS[name].machine is Machine.DRIVER and device_library.cuda_include() is None:
            pytest.skip("no cuda.h: neither a CUDA toolkit nor triton is installed")
        return Injection(built(SETTINGS[name].machine), SETTINGS[name], folder / "points")

    return begin


@pytest.mark.parametrize(
    ("setting", "fault", "first", "most"),
    [
        ("names", Fault(SYSTEM, only=errno.ENOSPC, lasts=True), 0, 40),
        ("names", Fault(SYSTEM, choice=2), 10, 25),  # among them EINTR
        ("tensors", Fault(SYSTEM), 80, 12),
        ("flight recorder", Fault(SYSTEM), 50, 20),
        ("names", Fault(MEMORY), 80, 20),
        ("watchpoints", Fault(MEMORY), 178, 4),  # while the link to the latest run is made
        ("statistics, guards", Fault(MEMORY, lasts=True), 300, 2),  # the next model is recorded
        ("a launch throws", Fault(MEMORY, lasts=True), 150, 4),  # the recording has stopped by then
        ("hashes, summaries", Fault(SYSTEM, only=errno.ENOSPC, lasts=True), 15, 5),
        ("one of two ranks", Fault(MEMORY), 110, 5),  # while the directory of all ranks is made
        ("flight recorder of a device", Fault(MEMORY, lasts=True), 260, 2),  # its memory is given back all the same
        ("CUDA: hashes, summaries", Fault(MEMORY), 367, 4),  # hashes wait while it fails, and their tensors change
        ("watchpoints of a device", Fault(MEMORY), 186, 8),  # the queue of a stream
        ("CUDA: names", Fault(DEVICE), 3, 12),
        ("CUDA: statistics, guards", Fault(DEVICE, lasts=True), 527, 2),  # results do not come, a kernel does not load
        ("statistics and guards of a device", Fault(MEMORY), 1780, 4),  # results wait on the device as recording stops
    ],
)
def test_the_model_does_not_notice(
    inject: Callable[[str], Injection], setting: str, fault: Fault, first: int, most: int
) -> None:
    points = list(inject(setting).points(fault, first=first, most=most))
    assert points
    assert [point for point in points if point.problems] == []

from __future__ import annotations

import pytest

from aoti_debug.views.profile.occupancy import Limit, Occupancy, occupancy

KIB = 1024


@pytest.mark.parametrize(
    ("architecture", "warps", "registers", "shared", "held"),
    [
        (80, 8, 32, 0, Occupancy(64, 64, Limit.WARPS)),
        (80, 8, 33, 0, Occupancy(48, 64, Limit.REGISTERS)),  # 1280 registers a warp: 51 warps, 48 in fours
        (80, 8, 64, 0, Occupancy(32, 64, Limit.REGISTERS)),
        (90, 8, 255, 0, Occupancy(8, 64, Limit.REGISTERS)),
        (90, 4, 32, 100 * KIB, Occupancy(8, 64, Limit.SHARED)),
        (90, 4, 32, 113 * KIB, Occupancy(8, 64, Limit.SHARED)),  # 1 KiB more of each block is the system's
        (90, 4, 32, 113 * KIB + 1, Occupancy(4, 64, Limit.SHARED)),
        (75, 4, 32, 32 * KIB, Occupancy(8, 32, Limit.SHARED)),  # none of it is the system's
        (86, 1, 16, 0, Occupancy(16, 48, Limit.BLOCKS)),
        (86, 32, 16, 0, Occupancy(32, 48, Limit.WARPS)),
        (90, 4, 0, 300 * KIB, Occupancy(0, 64, Limit.SHARED)),
    ],
)
def test_the_scarcest_resource(architecture: int, warps: int, registers: int, shared: int, held: Occupancy) -> None:
    assert occupancy(architecture, warps, registers, shared) == held


def test_limits_that_are_not_known() -> None:
    assert occupancy(61, 4, 32, 0) is None
    assert occupancy(90, 0, 32, 0) is None

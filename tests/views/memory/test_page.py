from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.views.memory.page import HEIGHT, WIDTH, picture
from aoti_debug.views.memory.run_memory import call_memory
from tests.views.memory.small_call import EVENTS, KIB, recorded


def test_an_area_for_each_buffer(tmp_path: Path) -> None:
    run = recorded(tmp_path)
    call = call_memory(run.manifest, run.launches, EVENTS)
    drawn = picture(replace(call, workspace={2: KIB}))
    titles = [area.title for area in drawn.areas]
    assert titles == [
        "buf0: 1024 bytes, 0.0 to 0.1",
        "buf1, buf2: 1024 bytes, 0.1 to 0.2",
        "buf1, buf2: 1024 bytes, 0.1 to 0.2",
        "buf3: 1024 bytes, 0.2 to 0.2",
        "workspace: 1024 bytes",
    ]
    step = WIDTH / 3
    assert [(round(a.x / step), round(a.width / step), round(3 * (HEIGHT - a.y) / HEIGHT)) for a in drawn.areas] == [
        (0, 2, 1),
        (1, 1, 2),
        (2, 1, 1),
        (2, 1, 2),
        (2, 1, 3),
    ]
    assert drawn.peak_x == pytest.approx(2.5 * step)

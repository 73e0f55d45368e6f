from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.runs.run.memory_meter import MeasuredMemory
from aoti_debug.views.memory.lifetimes import call_memory, run_memory
from aoti_debug.views.memory.memory import RunMemory
from aoti_debug.views.memory.page import COLOURS, HEIGHT, WIDTH, colours_of, page, picture, write
from aoti_debug.views.memory.storage_timeline import KeptMemory
from tests.views.memory.small_call import EVENTS, KIB, recorded
from tests.views.report.chromium import BEYOND, WIDTHS, Browser, needs_chromium


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
    assert [area.label for area in drawn.areas] == ["buf0", "buf1", "buf1", "buf3", ""]
    heights = [(round(tick.at), tick.text) for tick in drawn.heights]
    assert heights == [(0, "0 B"), (33, "1.0 KiB"), (67, "2.0 KiB"), (100, "3.0 KiB")]
    assert [(round(tick.at), tick.text) for tick in drawn.launches] == [(17, "0.0"), (50, "0.1"), (83, "0.2")]


def test_storages_that_are_there_together_have_other_colours(tmp_path: Path) -> None:
    """So have those that follow one another, as long as there are others."""
    call = call_memory((run := recorded(tmp_path)).manifest, run.launches, EVENTS)
    first, *_ = (s for s in call.storages if s.is_of_call)
    made = [replace(first, names=(f"buf{n}",), first=n % 3, last=2) for n in range(len(COLOURS) + 3)]
    colours = colours_of(replace(call, storages=tuple(made)))
    assert len({colours[s] for s in made[: len(COLOURS)]}) >= len(COLOURS) - 3
    assert max(Counter(colours.values()).values()) == 2
    after = [replace(first, names=(f"buf{n}",), first=n, last=n) for n in range(3)]
    assert len(set(colours_of(replace(call, storages=tuple(after))).values())) == 3


@needs_chromium
@pytest.mark.parametrize("width", WIDTHS)
def test_the_picture_fits_the_window(tmp_path: Path, width: int) -> None:
    run = recorded(tmp_path)
    path = write(RunMemory(run, run_memory(run, MeasuredMemory()), MeasuredMemory()))
    browser = Browser(tmp_path)
    assert browser.measure(path, width, BEYOND) == []
    names = """[...document.querySelectorAll("svg text")].filter((one) => {
      const [text, area] = [one, one.previousElementSibling].map((part) => part.getBoundingClientRect());
      return text.left < area.left || text.right > area.right;
    }).length"""
    assert browser.measure(path, width, names) == 0
    assert browser.measure(path, width, "document.querySelectorAll('svg text').length") > 0


def test_the_page_says_if_memory_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = recorded(tmp_path)
    found = RunMemory(run, run_memory(run, MeasuredMemory()), MeasuredMemory(), "model.pt2")
    assert "<title>peak 2.0 KiB: model.pt2, memory</title>" in (text := page(found))
    assert "memory grows" not in text
    kept = KeptMemory(run.launches[0], 4096, 5, is_measured=True)
    monkeypatch.setattr("aoti_debug.views.memory.page.kept_memory", lambda *_: (kept,))
    assert "<title>memory grows: model.pt2, memory</title>" in page(found)

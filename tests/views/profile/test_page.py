"""The page of a profile: its tree, its boxes, and what it does in a browser."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.app.cli import main
from aoti_debug.views.profile import page as profile_page
from aoti_debug.views.profile.model_profile import ModelProfile, hint
from aoti_debug.views.profile.page import GAPS, Frame, FrameKind, flame, frame_tree
from aoti_debug.views.profile.roofline import Peaks
from tests.views.profile import measured
from tests.views.profile.measured import profile_of
from tests.views.report.chromium import BEYOND, WIDTHS, Browser, needs_chromium

PEAKS = Peaks("a processor, 2 threads", 10e9, {"float32": 100e9})
EVIL = "<img src=x onerror=alert(1)>.pt2"


@pytest.fixture
def profile(tmp_path: Path) -> ModelProfile:
    run = measured.write(tmp_path, [(900_000, 1, 1)] * 3 + [(50_000, 10_000, 20_000)] * 3)
    return profile_of(Path(EVIL), run, PEAKS)


def lines(frame: Frame, level: int = 0) -> list[str]:
    """The tree, a line for each frame: its name and microseconds."""
    own = f"{'  ' * level}{frame.name} {frame.seconds * 1e6:.0f}"
    return [own, *(line for child in frame.children for line in lines(child, level + 1))]


def test_modules_hold_lines_and_these_launches(profile: ModelProfile) -> None:
    assert lines(frame_tree(profile)) == [
        f"{EVIL} 120",
        "  layers 80",
        "    layers.0 80",
        "      linear 50",
        "        model.py:12 50",
        "          aoti_torch_cpu_mm_out 50",
        "      model.py:12 30",
        "        cpp_fused_relu_0 30",
        f"  {GAPS} 40",
    ]


def test_boxes_lie_within_those_above(profile: ModelProfile) -> None:
    boxes = flame(frame_tree(profile)).boxes
    for number, box in enumerate(boxes[1:], 1):
        above = boxes[box.parent]
        assert box.row == above.row + 1
        assert above.left <= box.left + 1e-9
        assert box.left + box.width <= above.left + above.width + 1e-9
        assert box.parent < number < above.end
    assert boxes[0].end == len(boxes)
    assert boxes[-1].frame.kind is FrameKind.GAPS
    assert boxes[-1].left == pytest.approx(80 / 120)


def test_narrow_boxes_are_left_out(profile: ModelProfile) -> None:
    tree = frame_tree(profile)
    whole, few = flame(tree), flame(tree, most=6)
    assert (whole.hidden, len(whole.boxes)) == (0, 9)
    assert (few.hidden, len(few.boxes)) == (3, 6)
    assert few.boxes == tuple(replace(box, end=min(box.end, 6)) for box in whole.boxes[:6])


def test_output_without_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["profile", str(tmp_path / "model.pt2"), "-o", "page.html"]) == 2
    assert "-o needs --plot" in capsys.readouterr().err


def test_the_text_of_a_model_is_no_markup(profile: ModelProfile) -> None:
    path = profile_page.write(profile)
    assert path == profile.run.path / "report" / "profile.html"
    text = path.read_text()
    assert "<img" not in text
    assert text.count('role="treeitem"') == 9
    assert 'aria-label="linear: 50.0 µs, 41.7%"' in text


@needs_chromium
@pytest.mark.parametrize("width", WIDTHS)
def test_a_hint_is_one_line_that_can_be_read(profile: ModelProfile, tmp_path: Path, width: int) -> None:
    page = profile_page.write(profile)
    browser = Browser(tmp_path)
    assert browser.measure(page, width, BEYOND) == []
    hints = """[...document.querySelectorAll(".note div")].map((one) => {
      const { right, height } = one.getBoundingClientRect();
      return [one.textContent, right < document.documentElement.clientWidth, height < 30];
    })"""
    shown = browser.measure(page, width, hints)
    assert shown == [[hint(site), True, True] for site in profile.sites if hint(site)]
    assert shown


KEYS = """<script>
const flame = document.getElementById("flame");
const boxes = [...flame.children];
const press = (key) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
boxes[0].focus();
KEYS_TEXT.split(" ").forEach(press);
const facts = document.querySelector("#detail dl").textContent;
const shown = boxes.filter((box) => !box.hidden);
const words = shown.map((box) => `${box.textContent} ${parseFloat(box.style.width).toFixed(0)}`);
document.title = [document.activeElement.textContent, facts, ...words].join("|");
</script></body>"""


@needs_chromium
@pytest.mark.parametrize(
    ("keys", "focused", "facts", "shown"),
    [
        ("ArrowDown ArrowDown", "layers.0", "modulelayers.0", 9),
        ("ArrowDown ArrowRight", GAPS, "time40.0 µs a call", 9),
        ("ArrowDown ArrowDown ArrowDown Enter", "linear", "modulelayers.0.linear", 6),
        ("ArrowDown ArrowDown ArrowDown Enter ArrowDown ArrowDown", "aoti_torch_cpu_mm_out", "launch3.0", 6),
        ("ArrowDown ArrowDown ArrowDown Enter Escape ArrowUp", "layers.0", "share66.7%", 9),
    ],
)
def test_it_is_used_by_keys(
    keys: str, focused: str, facts: str, shown: int, profile: ModelProfile, tmp_path: Path
) -> None:
    browser = Browser(tmp_path)
    page = profile_page.write(profile)
    text = re.sub(r"<meta http-equiv=[^>]*>", "", page.read_text())  # it forbids other scripts
    page.write_text(text.replace("</body>", KEYS.replace("KEYS_TEXT", f'"{keys}"', 1)))
    title = re.search(r"<title>(.*?)</title>", browser.dom(page), re.DOTALL)
    assert browser.said == ""
    assert title is not None
    chosen, described, *visible = title[1].split("|")
    assert (chosen, len(visible)) == (focused, shown)
    assert facts in described
    if shown == 6:
        assert set(visible) >= {"linear 100", "layers.0 100", "aoti_torch_cpu_mm_out 100"}

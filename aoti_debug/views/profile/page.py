"""The HTML page of a profile: a flame of modules, model lines and launches, and tables of both."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from aoti_debug.base import wording
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import atomic_write
from aoti_debug.compare.modules import TIME_LEGEND
from aoti_debug.package.origins import common_module, containing
from aoti_debug.runs.show import text
from aoti_debug.views.profile.model_profile import ModelProfile, SiteProfile, hint
from aoti_debug.views.profile.roofline import Bound
from aoti_debug.views.profile.text import (
    HINT,
    MODULE_COLUMNS,
    call_word,
    columns,
    device_cells,
    heading,
    module_rows,
    rows,
    sum_lines,
)
from aoti_debug.views.report.page import PageParts, render, static_rows

GAPS, NO_LINE = "between launches", "no model line"
MAX_BOXES = 4000  # the widest; a page of more is slow
NAME = "report/profile.html"
MAX_LAUNCHES = 200  # rows of the table
_WIDE = 10_000  # columns: nothing is wrapped
_PARTS = PageParts("profile.html", ("flame.js",), ("report.css",), ())


class FrameKind(str, Enum):
    """The meaning of a frame."""

    CALL = "call"
    MODULE = "module"
    LINE = "line"
    LAUNCH = "launch"
    GAPS = "gaps"


@dataclass(frozen=True)
class Frame:
    """A part of the time of a call.

    Attributes:
        name: the words in it: "layers.0", "model.py:23", "cpp_fused_relu_0".
        module: the path of the innermost module; "" for the model itself.
        seconds: of all frames in it, medians of the calls.
        children: in the order of their first execution.
        site: of a launch, else None.
    """

    kind: FrameKind
    name: str
    module: str
    seconds: float
    children: tuple[Frame, ...] = ()
    site: SiteProfile | None = None

    @property
    def sites(self) -> Iterator[SiteProfile]:
        """Yields the launches in it."""
        if self.site is not None:
            yield self.site
        for child in self.children:
            yield from child.sites


def frame_tree(profile: ModelProfile) -> Frame:
    """The call with everything in it; a kernel of several modules is in the innermost one that contains them all."""
    root = _Open(FrameKind.CALL, profile.model.name, "")
    for site in sorted(profile.sites, key=lambda one: one.launch.key):
        inner = root
        provenance = site.site.provenance
        common = common_module(provenance.modules)
        for path in containing(common) if common else ():
            inner = inner.child(FrameKind.MODULE, _module_name(path), path, path)
        place = provenance.source[0].place if provenance.source else ""
        line = inner.child(FrameKind.LINE, text.model_line(provenance) if place else NO_LINE, inner.module, place)
        line.closed.append(Frame(FrameKind.LAUNCH, site.site.kernel, inner.module, site.seconds, (), site))
    root.closed.append(Frame(FrameKind.GAPS, GAPS, "", profile.gap_seconds))
    return root.close()


def _module_name(path: str) -> str:
    """The last part of a path, with the one before it if it is a number: "layers.0"."""
    head, _, last = path.rpartition(".")
    return f"{head.rpartition('.')[2]}.{last}" if last.isdigit() and head else last


class _Open:
    """A frame whose parts are still collected."""

    def __init__(self, kind: FrameKind, name: str, module: str) -> None:
        self.kind, self.name, self.module = kind, name, module
        self.closed: list[Frame] = []
        self._inner: dict[tuple[FrameKind, str], _Open] = {}

    def child(self, kind: FrameKind, name: str, module: str, identity: str) -> _Open:
        """The part of a kind and identity; a new one if there is none."""
        return self._inner.setdefault((kind, identity), _Open(kind, name, module))

    def close(self) -> Frame:
        """The frame."""
        children = (*(inner.close() for inner in self._inner.values()), *self.closed)
        return Frame(self.kind, self.name, self.module, sum(child.seconds for child in children), children)


@dataclass(frozen=True)
class Box:
    """A frame in the picture.

    Attributes:
        row: 0 for the call; below it its parts.
        left, width: in proportion to the call.
        parent: the number of the box that it is in; -1 for the call.
        end: the number behind that of the last box in it.
    """

    frame: Frame
    row: int
    left: float
    width: float
    parent: int
    end: int


@dataclass(frozen=True)
class Flame:
    """The boxes, each followed by those in it.

    Attributes:
        hidden: how many were too narrow.
    """

    boxes: tuple[Box, ...]
    hidden: int

    @property
    def rows(self) -> int:
        """The number of rows."""
        return 1 + max(box.row for box in self.boxes)


def flame(tree: Frame, most: int = MAX_BOXES) -> Flame:
    """The picture of a tree.

    Args:
        most: how many boxes are drawn, and all that are as wide as the last of them.
    """
    widths = sorted((frame.seconds for frame in _frames(tree)), reverse=True)
    least = widths[most - 1] if len(widths) > most else 0.0
    boxes: list[Box] = []
    _draw(tree, (0, 0.0, -1), tree.seconds or 1.0, least, boxes)
    return Flame(tuple(boxes), len(widths) - len(boxes))


def _frames(frame: Frame) -> Iterator[Frame]:
    yield frame
    for child in frame.children:
        yield from _frames(child)


def _draw(frame: Frame, place: tuple[int, float, int], whole: float, least: float, boxes: list[Box]) -> None:
    """Adds the boxes of a frame and its parts.

    Args:
        place: row, left end and parent of its box.
        whole: seconds of the call.
        least: seconds of the narrowest box.
    """
    row, left, parent = place
    number = len(boxes)
    boxes.append(Box(frame, row, left, frame.seconds / whole, parent, number + 1))
    at = left
    for child in frame.children:
        if child.seconds >= least:
            _draw(child, (row + 1, at, number), whole, least, boxes)
        at += child.seconds / whole
    boxes[number] = Box(frame, row, left, frame.seconds / whole, parent, len(boxes))


def page(profile: ModelProfile) -> str:
    """The text of the page."""
    picture = flame(frame_tree(profile))
    title, *facts = heading(profile, _WIDE)
    cells = rows(profile, profile.sites[:MAX_LAUNCHES])
    titles = columns(profile)
    hints_at = titles.index(HINT)
    shown = titles[:hints_at] + titles[hints_at + 1 :]
    boxes = [_box(box, profile.wall_seconds, call_word(profile)) for box in picture.boxes]
    values = {
        "title": f"{wording.duration(profile.wall_seconds)} a {call_word(profile)}: {profile.model.name}, profile",
        "model": profile.model.name,
        "run": profile.run.path.name,
        "title_text": title,
        "facts": facts,
        "sums": sum_lines(profile),
        "boxes": boxes,
        "rows": picture.rows,
        "hidden": picture.hidden,
        "module_columns": MODULE_COLUMNS,
        "modules": static_rows(MODULE_COLUMNS, module_rows(profile.modules())),
        "time_legend": TIME_LEGEND,
        "columns": shown,
        "launches": static_rows(shown, [row[:hints_at] + row[hints_at + 1 :] for row in cells]),
        "hints": [str(row[hints_at]) for row in cells],
        "more": len(profile.sites[MAX_LAUNCHES:]),
    }
    data = [
        {name: box[name] for name in ("left", "width", "share", "parent", "end", "title", "facts")} for box in boxes
    ]
    return render(_PARTS, {"boxes": data}, values)


def write(profile: ModelProfile, output: Path | None = None) -> Path:
    """Writes the page over an older one; returns its path.

    Args:
        output: the file; None for report/profile.html in the run.

    Raises:
        UsageError: the file cannot be written.
    """
    return atomic_write.write_page(page(profile), output, profile.run.path / NAME)


def _box(box: Box, call_seconds: float, one: str) -> dict[str, Any]:
    """A box as the page draws it.

    Args:
        one: the word for what was measured: "call".
    """
    frame = box.frame
    share = frame.seconds / call_seconds
    return {
        "left": box.left,
        "width": box.width,
        "share": share,
        "row": box.row,
        "parent": box.parent,
        "end": box.end,
        "name": frame.name,
        "tone": _tone(frame),
        "title": f"{frame.name}: {wording.duration(frame.seconds)}, {share:.1%}",
        "facts": list(_facts(frame, share, one).items()),
    }


def _tone(frame: Frame) -> str:
    """The CSS class of a box: the kind of its frame, and of a launch what bounds it."""
    if frame.site is None:
        return frame.kind.value
    if frame.site.placement is None:
        return "launch unknown"
    bound = frame.site.placement.bound
    return "launch launch-bound" if bound is Bound.LAUNCH else f"launch {bound.value}"


def _facts(frame: Frame, share: float, one: str) -> dict[str, str]:
    """The facts beside the picture, by name."""
    facts = {"time": f"{wording.duration(frame.seconds)} a {one}", "share": f"{share:.1%}"}
    if frame.kind in (FrameKind.MODULE, FrameKind.LINE, FrameKind.LAUNCH):
        facts["module"] = frame.module or "the model itself"
    site = next(frame.sites, None)
    if frame.kind in (FrameKind.LINE, FrameKind.LAUNCH) and site is not None and site.site.provenance.source:
        line = site.site.provenance.source[0]
        facts |= {"model line": f"{line.file}:{line.line} in {line.function}", "source": line.text.strip()}
    if frame.site is not None:
        return facts | _launch_facts(frame.site)
    if frame.kind is not FrameKind.GAPS:
        facts["launches"] = str(sum(one.count for one in frame.sites))
    return facts


def _launch_facts(site: SiteProfile) -> dict[str, str]:
    modules = site.site.provenance.modules
    facts = {"launch": site.launch.id, "launches": str(site.count)}
    if len(modules) > 1:
        facts["modules"] = ", ".join(modules)
    if site.work.bytes is not None:
        facts["bytes"] = wording.byte_size(site.work.bytes)
    if site.work.flops is not None:
        facts["FLOP"] = f"{site.work.flops:.3g}"
    if site.placement is not None:
        facts |= {"roofline": f"{site.placement.share:.0%}", "bound by": site.placement.bound.value}
    if site.kernel is not None:
        names = ("registers", "shared memory", "occupancy", "configuration")
        facts |= dict(zip(names, device_cells(site.kernel), strict=True))
    if advice := hint(site):
        facts["hint"] = advice
    return facts

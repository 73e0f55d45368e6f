"""The tree of a call's time as boxes of a picture: below each box the boxes of its parts, as wide as their time."""

from __future__ import annotations

from collections.abc import Iterator

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.views.profile.frames import Frame

MOST_BOXES = 4000  # the widest; a page of more is slow


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


def flame(tree: Frame, most: int = MOST_BOXES) -> Flame:
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

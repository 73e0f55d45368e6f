"""What is known of a value besides the value: whose pointer it is, which loads fed it, whether it wrapped around."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy

Array = numpy.ndarray[Any, Any]

KEY = "aoti_debug.shadow"
ALWAYS = "aoti_debug.always"  # a mask that is true everywhere because the kernel gave none
MOST_FEEDS = 4


@dataclass(frozen=True, eq=False)
class Feed:
    """Integers loaded from memory.

    Attributes:
        region: the argument's position in the table of arguments.
        offsets: int64, of the block's shape: bytes from the argument's data pointer.
        values: what was loaded, of the same shape.
        live: where they are what flows on; None stands for everywhere.
    """

    region: int
    offsets: Array
    values: Array
    live: Array | None

    def mapped(self, change: Callable[[Array], Array]) -> Feed:
        live = None if self.live is None else change(self.live)
        return Feed(self.region, change(self.offsets), change(self.values), live)

    def where(self, chosen: Array) -> Feed:
        live = chosen if self.live is None else self.live & chosen
        return Feed(self.region, self.offsets, self.values, live)


@dataclass(frozen=True, eq=False)
class Shadow:
    """Attributes:
    region: whose pointer it is, for pointers to one argument only.
    wrapped: where an integer of it passed the end of its type; None stands for nowhere.
    """

    region: int | None = None
    feeds: tuple[Feed, ...] = ()
    wrapped: Array | None = None

    def mapped(self, change: Callable[[Array], Array]) -> Shadow:
        """Of the same values in another shape."""
        wrapped = None if self.wrapped is None else change(self.wrapped)
        return Shadow(self.region, tuple(feed.mapped(change) for feed in self.feeds), wrapped)

    def joined(self, other: Shadow) -> Shadow:
        """Of a value computed from both."""
        region = other.region if self.region is None else self.region
        return Shadow(region, merge(self.feeds, other.feeds), either(self.wrapped, other.wrapped))

    def stepped(self, offset: Shadow | None) -> Shadow:
        """Of this pointer moved by an integer."""
        if offset is None:
            return self
        return Shadow(self.region, merge(self.feeds, offset.feeds), either(self.wrapped, offset.wrapped))


def chosen(condition: Array, yes: Shadow | None, no: Shadow | None) -> Shadow | None:
    """Of a selection: what came from one side counts only where that side was taken."""
    if yes is None and no is None:
        return None
    yes, no = yes or Shadow(), no or Shadow()
    both = [feed for feed in yes.feeds if feed in no.feeds]
    only_yes = [feed.where(condition) for feed in yes.feeds if feed not in both]
    only_no = [feed.where(~condition) for feed in no.feeds if feed not in both]
    wrapped = either(
        None if yes.wrapped is None else yes.wrapped & condition,
        None if no.wrapped is None else no.wrapped & ~condition,
    )
    region = yes.region if yes.region == no.region else None
    return Shadow(region, (*both, *only_yes, *only_no)[:MOST_FEEDS], wrapped)


def merge(some: tuple[Feed, ...], others: tuple[Feed, ...]) -> tuple[Feed, ...]:
    if not others or some is others:
        return some
    return (some + tuple(feed for feed in others if feed not in some))[:MOST_FEEDS]


def either(one: Array | None, other: Array | None) -> Array | None:
    if one is None or other is None:
        return one if other is None else other
    return one | other


def shadow_of(handle: Any) -> Shadow | None:
    found: Shadow | None = handle.attr.get(KEY)
    return found


def with_shadow(handle: Any, shadow: Shadow | None) -> Any:
    if shadow is not None:
        handle.attr[KEY] = shadow
    return handle


def joined(handle: Any, one: Any, other: Any) -> Any:
    """`handle`, computed from the two, with what is known of them."""
    first, second = one.attr.get(KEY), other.attr.get(KEY)
    if first is None and second is None:
        return handle
    handle.attr[KEY] = second if first is None else first if second is None else first.joined(second)
    return handle


def at(array: Array, shape: tuple[int, ...], position: int) -> Any:
    """One element, by its row-major position in a block of `shape` that `array` may be broadcast to."""
    if array.shape != shape:
        array = numpy.broadcast_to(array, shape)
    return array[numpy.unravel_index(position, shape)]

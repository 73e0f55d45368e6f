"""Shadow data of a value: the argument that it points to, the loads that it was computed from, integer overflow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy

Array = numpy.ndarray[Any, Any]

KEY = "aoti_debug.shadow"
ALWAYS = "aoti_debug.always"  # a mask that is true everywhere because the kernel gave none
MAX_LOADS = 4


@dataclass(frozen=True, eq=False)
class IndexLoad:
    """Integers that were loaded from memory.

    Attributes:
        region: the argument's position in the table of arguments.
        offsets: int64, of the block's shape: bytes from the argument's data pointer.
        values: what was loaded, of the same shape.
        live: elements whose value is still used; None for all.
    """

    region: int
    offsets: Array
    values: Array
    live: Array | None

    def mapped(self, change: Callable[[Array], Array]) -> IndexLoad:
        """The same values in another shape."""
        live = None if self.live is None else change(self.live)
        return IndexLoad(self.region, change(self.offsets), change(self.values), live)

    def where(self, chosen: Array) -> IndexLoad:
        """The values restricted to some elements."""
        live = chosen if self.live is None else self.live & chosen
        return IndexLoad(self.region, self.offsets, self.values, live)


@dataclass(frozen=True, eq=False)
class Shadow:
    """The shadow data of a block of values.

    Attributes:
        region: the argument that it points to, for pointers to one argument only.
        loads: the integers loaded from memory that it was computed from.
        wrapped: elements at which integer arithmetic overflowed; None for none.
    """

    region: int | None = None
    loads: tuple[IndexLoad, ...] = ()
    wrapped: Array | None = None

    def mapped(self, change: Callable[[Array], Array]) -> Shadow:
        """The shadow of the same values in another shape."""
        wrapped = None if self.wrapped is None else change(self.wrapped)
        return Shadow(self.region, tuple(load.mapped(change) for load in self.loads), wrapped)

    def joined(self, other: Shadow) -> Shadow:
        """The shadow of a value computed from both."""
        region = other.region if self.region is None else self.region
        return Shadow(region, merge_loads(self.loads, other.loads), mask_union(self.wrapped, other.wrapped))

    def stepped(self, offset: Shadow | None) -> Shadow:
        """The shadow of this pointer moved by an integer."""
        if offset is None:
            return self
        return Shadow(self.region, merge_loads(self.loads, offset.loads), mask_union(self.wrapped, offset.wrapped))


def select_shadow(condition: Array, yes: Shadow | None, no: Shadow | None) -> Shadow | None:
    """The shadow of a selection: loads of one side count only where that side was selected."""
    if yes is None and no is None:
        return None
    yes, no = yes or Shadow(), no or Shadow()
    both = [load for load in yes.loads if load in no.loads]
    only_yes = [load.where(condition) for load in yes.loads if load not in both]
    only_no = [load.where(~condition) for load in no.loads if load not in both]
    wrapped = mask_union(
        None if yes.wrapped is None else yes.wrapped & condition,
        None if no.wrapped is None else no.wrapped & ~condition,
    )
    region = yes.region if yes.region == no.region else None
    return Shadow(region, (*both, *only_yes, *only_no)[:MAX_LOADS], wrapped)


def merge_loads(some: tuple[IndexLoad, ...], others: tuple[IndexLoad, ...]) -> tuple[IndexLoad, ...]:
    """The loads of both, at most MAX_LOADS."""
    if not others or some is others:
        return some
    return (some + tuple(load for load in others if load not in some))[:MAX_LOADS]


def mask_union(one: Array | None, other: Array | None) -> Array | None:
    """The union of two masks; None stands for an empty one."""
    if one is None or other is None:
        return one if other is None else other
    return one | other


def shadow_of(handle: Any) -> Shadow | None:
    """The shadow of a handle, if it has one."""
    shadow: Shadow | None = handle.attr.get(KEY)
    return shadow


def with_shadow(handle: Any, shadow: Shadow | None) -> Any:
    """Sets the shadow of a handle and returns the handle."""
    if shadow is not None:
        handle.attr[KEY] = shadow
    return handle


def join_shadows(handle: Any, one: Any, other: Any) -> Any:
    """Sets the shadow of a handle that was computed from two others, and returns the handle."""
    first, second = one.attr.get(KEY), other.attr.get(KEY)
    if first is None and second is None:
        return handle
    handle.attr[KEY] = second if first is None else first if second is None else first.joined(second)
    return handle


def element_at(array: Array, shape: tuple[int, ...], position: int) -> Any:
    """One element, by its row-major position in a block of `shape` that `array` may be broadcast to."""
    if array.shape != shape:
        array = numpy.broadcast_to(array, shape)
    return array[numpy.unravel_index(position, shape)]

"""Searches for the smallest part of something for which a test holds, with few tests: each takes a process."""

from __future__ import annotations

from collections.abc import Callable


def smallest_set(items: list[int], holds: Callable[[list[int]], bool]) -> list[int]:
    """Delta debugging: a subset for which `holds`, and no chunk of which can be left out. It holds for all of them."""
    chunks = 2
    while len(items) > 1:
        size = -(-len(items) // chunks)
        parts = [items[i : i + size] for i in range(0, len(items), size)]
        smaller = next((part for part in parts if holds(part)), None)
        if smaller is not None:
            items, chunks = smaller, 2
            continue
        without = ([x for j, p in enumerate(parts) if j != i for x in p] for i in range(len(parts)))
        smaller = next((rest for rest in without if len(parts) > 2 and holds(rest)), None)
        if smaller is not None:
            items, chunks = smaller, max(chunks - 1, 2)
        elif size == 1:
            break
        else:
            chunks = min(chunks * 2, len(items))
    return items


def smallest_count(most: int, holds: Callable[[int], bool]) -> int:
    """The least number from 1 to `most` for which `holds`, if it holds for all larger ones. It holds for `most`."""
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return high


def smallest_window(begin: int, end: int, holds: Callable[[int, int], bool]) -> tuple[int, int]:
    """A part of [begin, end) for which `holds`, cut from the right as far as it goes, then from the left."""
    end = begin + smallest_count(end - begin, lambda count: holds(begin, begin + count))
    return end - smallest_count(end - begin, lambda count: holds(end - count, end)), end

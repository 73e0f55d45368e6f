"""`aoti-debug list`: what commands have made, and what it takes."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from aoti_debug.app.cli import options
from aoti_debug.app.cli.lines import print_json, print_lines, width
from aoti_debug.app.made_results import MadeResult, made_results
from aoti_debug.base import terminal_cells, wording
from aoti_debug.base.machine import cache
from aoti_debug.base.terminal_cells import Column, Sentence

_COLUMNS = (
    Column("name", min_width=32, share=1),
    Column("age", align_right=True),
    Column("size", align_right=True),
    Column("what", min_width=24, share=1),
)
FORMAT = 1


@click.command("list")
@options.json_output("list")
def command(*, as_json: bool) -> None:
    """List what commands have made: runs, triages, comparisons, repros and others, the oldest of each kind first.

    Every command takes these names. `aoti-debug clean` deletes what is listed.
    """
    results = made_results()
    sizes = [result.bytes for result in results]
    root = cache.directory()
    cached = sum(entry.bytes for entry in cache.cached_entries(root))
    if as_json:
        listed = [_document(result, size) for result, size in zip(results, sizes, strict=True)]
        print_json({"format": FORMAT, "results": listed, "cache": {"path": str(root), "bytes": cached}})
        return
    lines = list_lines(results, sizes, time.time(), width())
    print_lines([*lines, f"cache: {wording.byte_size(cached)} in {root}"])


def list_lines(results: Sequence[MadeResult], sizes: Sequence[int | None], now: float, columns: int) -> list[str]:
    """The table of what was made, with age and size, and the sum.

    Args:
        sizes: bytes of each; None where a part of it cannot be read.
        now: seconds since 1970.
    """
    rows = [_row(result, size, now) for result, size in zip(results, sizes, strict=True)]
    lines = [*terminal_cells.table(_COLUMNS, rows, columns).lines, ""] if rows else []
    return lines + _total(sizes)


def _total(sizes: Sequence[int | None]) -> list[str]:
    if not sizes:
        return ["nothing was made here: aoti-debug triage or another command makes something"]
    count = "1 directory" if len(sizes) == 1 else f"{len(sizes)} directories"
    unread = sizes.count(None)
    without = f", without {unread} that cannot be read completely" if unread else ""
    return [f"{count}, {wording.byte_size(sum(size or 0 for size in sizes))}{without}"]


def _row(result: MadeResult, size: int | None, now: float) -> tuple[str, str, str, Sentence]:
    shown = "?" if size is None else wording.byte_size(size)
    return result.name, wording.age(now - result.made), shown, Sentence(result.description)


def _document(result: MadeResult, size: int | None) -> dict[str, object]:
    return {
        "name": result.name,
        "kind": result.kind.value,
        "path": str(result.path.absolute()),
        "made": result.made,
        "bytes": size,
        "what": result.description,
    }

"""Long work in shards: a result file that has a line for each, so that it can be cut off and continued.

A shard is known by its name. Shards come in an order that is random and always the same: work that is cut off is a
sample of all of it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

NAME, IS_DONE = "shard", "done"

Line = Mapping[str, Any]


def read(file: Path) -> dict[str, Line]:
    """The last line of each shard, by its name; a line that was cut off does not count."""
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith("\n")]
    return {row[NAME]: row for row in rows}


def append(file: Path, name: str, result: Line, *, done: bool) -> None:
    """Writes the line of a shard; one that is not done is begun anew by the next call of the benchmark."""
    with file.open("a") as out:
        out.write(json.dumps({NAME: name, IS_DONE: done, **result}) + "\n")


def mend(file: Path) -> None:
    """Ends a last line that was cut off, so that no other one is joined to it."""
    if file.exists() and not (content := file.read_bytes()).endswith(b"\n") and content:
        file.write_bytes(content[: content.rfind(b"\n") + 1])


def left(names: Iterable[str], file: Path) -> list[str]:
    """The shards that are not done, in the order in which they are to be tried."""
    finished = {name for name, row in read(file).items() if row[IS_DONE]}
    shuffled = sorted(names)
    random.Random(0).shuffle(shuffled)
    return [name for name in shuffled if name not in finished]

"""Long work in shards: a result file that has a line for each, so that it can be cut off and continued.

A shard is known by its name. Shards come in an order that is random and always the same: work that is cut off is a
sample of all of it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.rows_file import RowsFile

NAME, IS_DONE = "shard", "done"

Line = Mapping[str, Any]


class ShardsFile:
    """The last line of each shard, by its name; all of one torch, on the CPU. Any thread may add one.

    Args:
        measures: False to read the lines of a file of any torch.

    Raises:
        SystemExit: the file holds lines of another torch or device.
    """

    def __init__(self, file: Path, *, measures: bool = True) -> None:
        self._file = RowsFile(file, "cpu" if measures else None, NAME)

    @property
    def lines(self) -> Mapping[str, Line]:
        """The last line of each shard."""
        return self._file.rows

    def add(self, name: str, result: Line, *, done: bool) -> None:
        """Keeps the line of a shard; one that is not done is begun anew by the next call of the benchmark."""
        self._file.add(name, {IS_DONE: done, **result})

    def left(self, names: Iterable[str]) -> list[str]:
        """The shards that are not done, in the order in which they are to be tried."""
        finished = {name for name, row in self.lines.items() if row[IS_DONE]}
        shuffled = sorted(names)
        random.Random(0).shuffle(shuffled)
        return [name for name in shuffled if name not in finished]

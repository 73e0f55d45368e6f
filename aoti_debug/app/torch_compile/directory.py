"""The directory of a compilation: one folder for each package, and graphs.json.

aoti_debug_compiled/
  latest -> 20261123-120501-4711
  20261123-120501-4711/
    graphs.json             the graphs, in the order in which they were first called
    graph0/program.pt2      the exported program
           package.pt2      the instrumented package
           latest/          its run in this process
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.base.machine.files import atomic_write, json_data, stamped_directories

GRAPHS, PROGRAM, PACKAGE = "graphs.json", "program.pt2", "package.pt2"


@dataclass(frozen=True)
class GraphEntry:
    """A graph, as graphs.json lists it.

    Attributes:
        name: of its folder; "" where it runs in eager from the start.
        kind: "inference", "forward" or "backward".
        line: the model line of its first operator: "model.py:12 in forward".
        sizes: of its tensors, where it was built for these alone; "" if sizes may change.
        cached: the package was built before, for an equal graph.
        eager: why it runs in eager; "" if it does not.
    """

    name: str
    kind: str
    line: str
    sizes: str = ""
    cached: bool = False
    eager: str = ""


@dataclass(frozen=True)
class _Graphs:
    format: int
    graphs: tuple[GraphEntry, ...]


@dataclasses.dataclass
class CompilationDirectory:
    """The packages of the graphs that one process has compiled.

    Args:
        path: an existing directory.
    """

    path: Path
    _graphs: list[GraphEntry] = dataclasses.field(default_factory=list)
    _folders: int = 0

    @classmethod
    def create(cls, base: Path) -> CompilationDirectory:
        """Makes a new one in `base`, which `latest` leads to from then on.

        Raises:
            UsageError: it cannot be made.
        """
        path = stamped_directories.make(base, "out names another one")
        stamped_directories.link_latest(path)
        return cls(path)

    def new_folder(self) -> Path:
        """Makes the folder of the next package; also where the directory was deleted.

        Raises:
            OSError: it cannot be made.
        """
        while True:
            folder = self.path / f"graph{self._folders}"
            self._folders += 1
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                continue
            return folder

    def add(self, entry: GraphEntry) -> None:
        """Adds a graph to the list."""
        self._graphs.append(entry)
        atomic_write.write(self.path / GRAPHS, json_data.to_text(_Graphs(1, tuple(self._graphs))))


def read_graphs(path: Path) -> tuple[GraphEntry, ...]:
    """The graphs of the directory of a compilation."""
    return json_data.parse(_Graphs, (path / GRAPHS).read_bytes()).graphs

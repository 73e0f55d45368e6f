"""The start of a minimisation: a part of a graph, with every value in it that eager could compute."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from aoti_debug.base.errors import TargetError
from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.base.machine.files import json_data
from aoti_debug.base.machine.fork_server import python_process
from aoti_debug.base.machine.fork_server.python_process import PythonCommand
from aoti_debug.base.machine.processes import child_process
from aoti_debug.compare.protocol.request import Region
from aoti_debug.package.reference import program
from aoti_debug.package.reference.program import Graph, NodeKind, Reference, ValueKey
from aoti_debug.triage.minify.start.request import REFERENCE, REGION, VALUES, EagerValue, EvaluateRequest

WORKER = "aoti_debug.triage.minify.start.eager_worker"
LOG = "evaluation.log"
_REQUEST = "request.json"
Unit = tuple[str, ...]  # a call, and the calls that take the members of its tuple: they stay together


@dataclass(frozen=True)
class Start:
    """A part of a graph.

    Attributes:
        name: "launch 0.3", "the program".
        region: its nodes; its inputs have values.
        lines: of the process that computed the values.
        folder: with their files.
        device: "cpu" or "cuda".
        was_killed: a signal ended the process, or it did not end in time.
    """

    name: str
    reference: Reference
    region: Region
    lines: tuple[EagerValue, ...]
    folder: Path
    device: str
    was_killed: bool = False

    @cached_property
    def graph(self) -> Graph:
        """The graph."""
        graph = self.reference.graph(self.region.graph, self.region.function)
        assert graph is not None
        return graph

    @cached_property
    def values(self) -> Mapping[ValueKey, EagerValue]:
        """The values that were computed."""
        return {line.key: line for line in self.lines if line.file}

    @cached_property
    def random(self) -> frozenset[str]:
        """The nodes that draw random numbers."""
        return frozenset(line.node for line in self.lines if line.is_random)

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """The calls of the part that can be left out, in order."""
        found: dict[str, list[str]] = {}
        for name in self.region.nodes:
            node = self.graph.by_name[name]
            if node.kind is not NodeKind.CALL or node.size:
                continue
            made_by = node.inputs[0] if node.is_member else ""
            if made_by in found:
                found[made_by].append(name)
            else:
                found[name] = [name]
        return tuple(map(tuple, found.values()))

    @cached_property
    def failing(self) -> str:
        """The call that ended the process, or the first that raised an error; "" if there is none."""
        begun = [line.node for line in self.lines if line.node and not line.file and not line.is_random]
        if begun and self.was_killed:
            return begun[-1]
        return next((line.node for line in self.lines if line.failure), "")


def evaluated(request: EvaluateRequest, name: str, reference: Reference | None, seconds: float) -> Start:
    """Has a process compute the values of a part in eager, as far as it comes.

    Args:
        request: of a region of `reference`, or of the whole program, whose graph the process writes.
        seconds: after which the process is killed.

    Raises:
        TargetError: the process did not begin to compute.
    """
    folder = Path(request.folder)
    folder.mkdir(parents=True, exist_ok=True)
    question, log, values = folder / _REQUEST, folder / LOG, folder / VALUES
    question.write_text(json_data.to_text(request))
    values.unlink(missing_ok=True)
    # Of an operator that hangs, what was computed before it counts.
    code = python_process.run_to_end(PythonCommand(WORKER, arguments=(str(question),)), log, seconds=seconds)
    if not values.is_file() or (reference is None and not (folder / REGION).is_file()):
        raise TargetError(
            f"{name} cannot be computed in eager: {child_process.describe_end(code, log)}", hint=f"see {log}"
        )
    lines = values_of(values)
    if request.region is not None and reference is not None:
        return Start(name, reference, request.region, lines, folder, request.device, code < 0)
    whole = program.from_json((folder / REFERENCE).read_bytes())
    region = json_data.parse(Region, (folder / REGION).read_bytes())
    return Start(name, whole, region, lines, folder, request.device, code < 0)


def values_of(path: Path) -> tuple[EagerValue, ...]:
    """The lines of a file of values; its process may have ended within the last one."""
    whole_lines = path.read_bytes().rpartition(b"\n")[0].splitlines()
    return tuple(json_data.parse(EagerValue, line) for line in whole_lines)

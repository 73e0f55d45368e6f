"""Launches and the buffers between them as a graph: the chain of a finding, or the neighbourhood of a launch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aoti_debug.package.manifest import Role
from aoti_debug.runs.diagnosis.dataflow import Dataflow
from aoti_debug.runs.diagnosis.findings import Finding, Place
from aoti_debug.runs.diagnosis.verdict import Verdict
from aoti_debug.runs.rundir.launch import Argument, Launch
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.show import text

EMPTY: dict[str, Any] = {"nodes": [], "edges": [], "about": ""}
_MAX_NEIGHBOURS = 12  # of a launch, on each side
_WRITER_DEPTH = 2  # launches upstream


class _Graph:
    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._nodes: dict[str, dict[str, Any]] = {}
        self._edges: dict[tuple[str, str], None] = {}

    def add_launch_id(self, id_: str, kernel: str, line: str, role: str = "") -> str:
        """Adds a launch and returns the node's key; `role`: "origin", "guilty" or ""."""
        return self._add(f"launch {id_}", {"kind": "launch", "id": id_, "name": kernel, "more": line, "role": role})

    def add_launch(self, launch: Launch, role: str = "") -> str:
        return self.add_launch_id(launch.id, launch.kernel, text.model_line(launch.site.provenance), role)

    def add_buffer(self, owner: str, name: str, more: str, role: str = "") -> str:
        return self._add(f"buffer {owner} {name}", {"kind": "buffer", "name": name, "more": more, "role": role})

    def add_input(self, name: str, more: str, role: str = "") -> str:
        return self._add(f"input {name}", {"kind": "input", "name": name, "more": more, "role": role})

    def add_edge(self, start: str, end: str) -> None:
        self._edges[start, end] = None

    def to_data(self, about: str) -> dict[str, Any]:
        numbers = {key: number for number, key in enumerate(self._nodes)}
        edges = [[numbers[start], numbers[end]] for start, end in self._edges]
        return {"nodes": list(self._nodes.values()), "edges": edges, "about": about}

    def _add(self, key: str, node: dict[str, Any]) -> str:
        existing = self._nodes.setdefault(key, node)
        existing["role"] = existing["role"] or node["role"]
        return key


def graph_of(run: RunDir, finding: Finding, verdict: Verdict | None) -> dict[str, Any]:
    """The chain of the finding; without one, the launches around the guilty one; else an empty graph."""
    if len(finding.chain) > 1:
        return chain_graph(run, finding)
    guilty = finding.where.launch if finding.where is not None else ""
    if not guilty and verdict is not None and verdict.suspects:
        guilty = verdict.suspects[0].id
    launch = run.find_launch(guilty)
    return EMPTY if launch is None else neighbourhood(run, launch)


def chain_graph(run: RunDir, finding: Finding) -> dict[str, Any]:
    """The places of a finding's chain, from the origin to the guilty launch."""
    graph = _Graph(run)
    last = len(finding.chain) - 1
    previous = ""
    for position, place in enumerate(finding.chain):
        role = "origin" if position == 0 else "guilty" if position == last else ""
        launch = run.find_launch(place.launch)
        argument = launch.argument(place.argument) if launch is not None else None
        more = _described(argument, place)
        if not place.launch:
            previous = graph.add_input(place.input, more, role)
            continue
        node = graph.add_launch_id(place.launch, place.kernel, _line(place), role)
        if previous:
            graph.add_edge(previous, node)
        if not place.argument:
            previous = node
            continue
        buffer = graph.add_buffer(place.launch, place.argument, more, "argument" if position == last else "")
        read_only = argument is not None and argument.role is Role.IN
        if position == last and read_only and launch is not None and argument is not None:
            _add_reader(graph, run, launch, argument, buffer, node)
        else:
            graph.add_edge(node, buffer)
        previous = buffer
    return graph.to_data("from the origin of the bad value to the launch that it broke")


def _add_reader(graph: _Graph, run: RunDir, launch: Launch, argument: Argument, buffer: str, node: str) -> None:
    """Adds the edge from a tensor to the launch that reads it, and the launch that wrote the tensor, if one did."""
    graph.add_edge(buffer, node)
    writer = Dataflow(run).writer(launch, argument)
    if writer.launch is not None:
        graph.add_edge(graph.add_launch(writer.launch), buffer)


def neighbourhood(run: RunDir, launch: Launch) -> dict[str, Any]:
    """The launch, its producers and their producers, and its consumers."""
    graph, flow = _Graph(run), Dataflow(run)
    graph.add_launch(launch, "guilty")
    _add_producers(graph, flow, launch, _WRITER_DEPTH)
    for argument in [a for a in launch.args if a.tensor is not None and a.written][:_MAX_NEIGHBOURS]:
        buffer = graph.add_buffer(launch.id, argument.name, _described(argument, None))
        graph.add_edge(graph.add_launch(launch), buffer)
        for reader, _ in flow.readers(launch, argument)[:_MAX_NEIGHBOURS]:
            graph.add_edge(buffer, graph.add_launch(reader))
    return graph.to_data("what the launch reads, the launches that produced it, and the launches that read its outputs")


def _add_producers(graph: _Graph, flow: Dataflow, launch: Launch, depth: int) -> None:
    node = graph.add_launch(launch)
    for argument in _read(launch):
        writer = flow.writer(launch, argument)
        described = _described(argument, None)
        if writer.launch is not None and writer.argument is not None:
            buffer = graph.add_buffer(writer.launch.id, writer.argument.name, described)
            graph.add_edge(graph.add_launch(writer.launch), buffer)
            graph.add_edge(buffer, node)
            if depth > 1:
                _add_producers(graph, flow, writer.launch, depth - 1)
        else:
            graph.add_edge(graph.add_input(writer.input or argument.name, described), node)


def _read(launch: Launch) -> Iterable[Argument]:
    read = (a for a in launch.args if a.tensor is not None and a.has_data_before)
    return list({a.name: a for a in read}.values())[:_MAX_NEIGHBOURS]


def _described(argument: Argument | None, place: Place | None) -> str:
    """ "int64[256], element 100"."""
    layout = argument.layout if argument is not None else None
    words = [text.shape(layout)] if layout is not None else []
    if place is not None and place.element is not None:
        words.append(f"element {place.element}")
    return ", ".join(words)


def _line(place: Place) -> str:
    return "" if place.frame is None else f"{place.frame.file.rpartition('/')[2]}:{place.frame.line}"

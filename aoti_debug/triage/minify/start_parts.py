"""The options of a minimisation, and its starts: parts of a graph with every value that eager could compute."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Any

from aoti_debug.base.errors import AotiDebugError, TargetError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import json_data
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.processes import child_process, python_process
from aoti_debug.base.machine.processes.python_process import PythonCommand
from aoti_debug.compare.fx_repro.fx_repro import recorded_region
from aoti_debug.compare.protocol.request import InputTensor, KnownValue, Recorded, Region
from aoti_debug.package import program_graphs
from aoti_debug.package.program_graphs import Graph, Node, NodeKind, Reference, ValueKey
from aoti_debug.runs.diagnosis.findings import Finding
from aoti_debug.runs.run.options import ModelCalls
from aoti_debug.runs.rundir.run_directory import RunDir

REFERENCE, REGION, VALUES = "reference.json", "region.json", "values.jsonl"  # in the folder of a start
WORKER = "aoti_debug.triage.minify.eager_worker"
LOG = "evaluation.log"
_REQUEST = "request.json"
Unit = tuple[str, ...]  # a call, and the calls that take the members of its tuple: they stay together
_NOWHERE = Recorded("", "", "")
_SECONDS = 600.0  # that eager may take
MAX_SCRIPTS = 200


@dataclass(frozen=True)
class EvaluateRequest:
    """The request to compute every value of a region, or of a whole program, in eager.

    Attributes:
        folder: for the values; of a whole program also its graph, and the region that is all of it.
        package: the instrumented package, which holds the graph of the region; "" for a program.
        region: None for the whole program.
        program: the exported program; "" for a region.
        inputs: the inputs file of the program; "" for its example inputs.
    """

    device: str
    imports: tuple[str, ...]
    libraries: tuple[str, ...]
    folder: str
    package: str = ""
    region: Region | None = None
    program: str = ""
    inputs: str = ""


@dataclass(frozen=True)
class EagerValue:
    """A value that was computed, or a node whose computation began.

    Attributes:
        node, after: its key; the last line of a process that came to its end has none.
        file: the name of its file; "" for a node whose computation began: it may end the process.
        is_random: the node draws random numbers, and was not computed.
        failure: the error of the node's own operator; "" if it raised none.
        tensor: its type, and its elements if these are few.
        literal: an expression of it, if its elements are very few.
        has_nan, has_infinity: True if an element is NaN, or infinite.
    """

    node: str
    after: str = ""
    file: str = ""
    is_random: bool = False
    failure: str = ""
    tensor: InputTensor | None = None
    literal: str = ""
    has_nan: bool = False
    has_infinity: bool = False

    @property
    def key(self) -> ValueKey:
        """The value of the graph."""
        return ValueKey(self.node, self.after)


END = EagerValue("")  # the last line of a process that has computed everything


@dataclass(frozen=True)
class MinifyOptions(ModelCalls):
    """A program with a finding.

    Attributes:
        program: an exported program.
        inductor_configs: the settings that it shows the finding with.
        stall: seconds after which a model hangs.
        guards: have the triage look for out-of-bounds writes and uninitialised reads, too.
        most_scripts: how many scripts may run, those of an interrupted search among them.
        out: the directory for the directory of the minimisation, which is named by program, settings and inputs.
    """

    program: Path
    inductor_configs: Mapping[str, Any] = field(default_factory=dict)
    stall: float = 60.0
    guards: bool = False
    most_scripts: int = MAX_SCRIPTS
    out: Path = field(default_factory=ResultKind.MINIFIED.place)


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
    whole = program_graphs.from_json((folder / REFERENCE).read_bytes())
    region = json_data.parse(Region, (folder / REGION).read_bytes())
    return Start(name, whole, region, lines, folder, request.device, code < 0)


def values_of(path: Path) -> tuple[EagerValue, ...]:
    """The lines of a file of values; its process may have ended within the last one."""
    whole_lines = path.read_bytes().rpartition(b"\n")[0].splitlines()
    return tuple(json_data.parse(EagerValue, line) for line in whole_lines)


def part_of(start: Start, units: Iterable[Unit]) -> Region | None:
    """The region of some calls of a start; None where eager has no value of one of its inputs.

    What no call of the part reads is its outputs.
    """
    graph = start.graph
    calls = graph.sorted(name for unit in units for name in unit)
    made = set(calls)
    inputs: dict[ValueKey, None] = {}
    constants: dict[str, None] = {}
    read: set[ValueKey] = set()
    for name in calls:
        for source in graph.by_name[name].inputs:
            key = graph.value_for(source, name)
            read.add(key)
            if (key.after or key.node) in made:
                continue
            if _is_constant(graph.by_name[source]) and not key.after:
                constants[source] = None
            elif key in start.values:
                inputs[key] = None
            else:
                return None
    nodes = graph.sorted([*calls, *constants])
    outputs = tuple(KnownValue(key, _NOWHERE) for key in _results(graph, calls) if key not in read)
    begin = tuple(KnownValue(key, _NOWHERE) for key in inputs)
    region = start.region
    return Region(
        graph=region.graph,
        function=region.function,
        nodes=nodes,
        inputs=begin,
        outputs=outputs,
        symbols=region.symbols,
    )


def _is_constant(node: Node) -> bool:
    """True for a size, and a weight whose elements the graph holds."""
    return bool(node.size) or (node.kind is NodeKind.WEIGHT and (node.value is not None or node.is_empty))


def _results(graph: Graph, calls: Sequence[str]) -> Iterable[ValueKey]:
    """The tensors that calls return or overwrite."""
    for name in calls:
        node = graph.by_name[name]
        if len(node.types) == 1 and node.types[0] is not None and not node.size:
            yield ValueKey(name)
        yield from (ValueKey(overwritten, name) for overwritten in node.mutates)


def launches_of(finding: Finding) -> tuple[str, ...]:
    """The launches that a finding blames, the likeliest first."""
    places = (finding.where, finding.origin, *finding.chain)
    return tuple(dict.fromkeys(place.launch for place in places if place is not None and place.launch))


def starts_of(
    options: MinifyOptions, finding: Finding, run: RunDir | None, folder: Path, note: Callable[[str], None]
) -> Iterator[Start]:
    """Yields the starts, each when the one before did not show the finding.

    Args:
        run: that shows the finding best; None if there is none.
        folder: for the values.
        note: is told of starts that cannot be used.
    """
    seconds = options.stall if finding.kind.value == "hang" else _SECONDS
    for launch in () if run is None else launches_of(finding):
        assert run is not None
        try:
            yield _of_launch(options, run, launch, folder / f"launch-{launch}", seconds, note)
        except AotiDebugError as error:
            note(f"launch {launch}: {error}")
    try:
        yield _of_program(options, folder / "program", "cpu" if run is None else run.manifest.device, seconds)
    except AotiDebugError as error:
        note(f"the program: {error}")


def _of_launch(
    options: MinifyOptions, run: RunDir, launch: str, folder: Path, seconds: float, note: Callable[[str], None]
) -> Start:
    run, reference, region = recorded_region(run, run.launch(launch), note, trusted=options.user_code.trusted)
    request = EvaluateRequest(
        package=str(run.package),
        region=region,
        device=run.manifest.device,
        imports=options.user_code.imports,
        libraries=tuple(map(str, options.user_code.libraries)),
        folder=str(folder),
    )
    return evaluated(request, f"launch {launch}", reference, seconds)


def _of_program(options: MinifyOptions, folder: Path, device: str, seconds: float) -> Start:
    request = EvaluateRequest(
        program=str(options.program),
        inputs=str(options.inputs or ""),
        device=device,
        imports=options.user_code.imports,
        libraries=tuple(map(str, options.user_code.libraries)),
        folder=str(folder),
    )
    return evaluated(request, "the program", None, seconds)

"""Writes the script of a failed build, and runs it once as proof."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.errors import UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import user_code
from aoti_debug.base.machine.processes import child_process, python_process, tied_process
from aoti_debug.base.version import __version__
from aoti_debug.compare.fx_repro.module_text import module_text
from aoti_debug.compare.fx_repro.script_text import Surroundings, input_text
from aoti_debug.compare.protocol.request import InputTensor, KnownValue, Recorded, Region
from aoti_debug.instrument.builder.compiling.failed_kernel import SOURCE, error_text
from aoti_debug.instrument.builder.options import BuildOptions
from aoti_debug.instrument.frontend.protocol.build_failure import (
    BuildFailure,
    BuildStage,
    Ending,
    Position,
    innermost_exception,
    nodes_text,
    part_text,
)
from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.program_graphs import Graph, Node, NodeKind, Reference, TensorType, ValueKey
from aoti_debug.package.pt2.archive import Artifact
from aoti_debug.triage.build_failures.script_text import SCRIPT, ModuleTensors, compiler_text, loading_text, script_text

SIZE = 8  # of a symbolic size whose value is not known
_NOWHERE = Recorded("", "", "")
_SYMBOL = re.compile(r"\b[suz]\d+\b")
BUILD_REPRO = "build_failure"  # the beginning of the names of the repros of builds that fail
STARTING = 120.0  # seconds that a script may take beyond the limit of the build, to import torch and to export
MAX_SECONDS = 600.0  # seconds that a script may take


def region_of(graph: Graph, names: Iterable[str]) -> Region:
    """The region of some nodes of a graph; its inputs are theirs, and its outputs what none of them reads.

    Nodes that return several tensors, or none, belong to the region of the node that reads them, and so do those that
    compute something of weights only: torch may fold them.
    """
    nodes, inputs = dict.fromkeys(names), dict[str, None]()
    waiting = list(nodes)
    while waiting:
        for source in graph.by_name[waiting.pop()].inputs:
            if source in nodes:
                continue
            if _is_given(graph.by_name[source]) and not _is_folded(graph, source):
                inputs[source] = None
            else:
                nodes[source] = None
                waiting.append(source)
    begin = tuple(KnownValue(ValueKey(source), _NOWHERE) for source in graph.sorted(inputs))
    symbols = dict.fromkeys(symbols_of(graph.by_name[node] for node in (*nodes, *inputs)), SIZE)
    return Region(
        graph=graph.name,
        function=graph.function,
        nodes=graph.sorted(nodes),
        inputs=begin,
        symbols=symbols,
    )


def calls_of(graph: Graph) -> tuple[str, ...]:
    """The nodes of a graph that call something."""
    return tuple(node.name for node in graph.nodes if node.kind is NodeKind.CALL and not node.size)


def input_of(graph: Graph, name: str, symbols: Mapping[str, int]) -> InputTensor:
    """The type of an input of a region; its elements are to be made up.

    Raises:
        LookupError: one of its sizes is not known, or it has no strides, as a sparse tensor.
    """
    type_ = graph.by_name[name].types[0]
    assert type_ is not None
    if len(type_.strides) != len(type_.shape):
        raise LookupError(f"{name} has no strides, as a sparse tensor")
    known = Symbols(known=symbols)
    return InputTensor(dtype=type_.dtype, shape=_sizes(type_.shape, known), strides=_sizes(type_.strides, known))


def device_of(graph: Graph, region: Region) -> str:
    """The device of the first tensor of a region: "cpu", "cuda:0"."""
    names = (*(item.value.node for item in region.inputs), *region.nodes)
    types = (type_ for name in names for type_ in graph.by_name[name].types if type_ is not None)
    return next((type_.device for type_ in types), "cpu")


def symbols_of(nodes: Iterable[Node]) -> tuple[str, ...]:
    """The symbols in the sizes of nodes, each once."""
    found: dict[str, None] = {}
    for node in nodes:
        expressions = [node.size, *(text for t in node.types if t is not None for text in _expressions(t))]
        found |= dict.fromkeys(symbol for text in expressions for symbol in _SYMBOL.findall(text))
    return tuple(found)


def _expressions(type_: TensorType) -> tuple[str, ...]:
    return (*type_.shape, *type_.strides)


def _is_given(node: Node) -> bool:
    """True for a single tensor whose elements are not in the graph."""
    is_constant = node.kind is NodeKind.WEIGHT and (node.value is not None or node.is_empty)
    return len(node.types) == 1 and node.types[0] is not None and not node.size and not is_constant


def _is_folded(graph: Graph, name: str) -> bool:
    """True for a call that reads weights, or what is made of weights, and nothing else."""
    node = graph.by_name[name]
    sources = [graph.by_name[source] for source in node.inputs]
    return (
        node.kind is NodeKind.CALL
        and bool(sources)
        and all(source.kind is NodeKind.WEIGHT or _is_folded(graph, source.name) for source in sources)
    )


def _sizes(expressions: tuple[str, ...], known: Symbols) -> tuple[int, ...]:
    sizes = []
    for expression in expressions:
        size = known.value(expression)
        if size is None:
            raise LookupError(f"the size {expression} is not known")
        sizes.append(size)
    return tuple(sizes)


@dataclass(frozen=True)
class Replay:
    """A script that fails as a build did, and its proof.

    Attributes:
        folder: with the script; None where there is none.
        what: how running it ended, one line; the reason why there is none.
        is_same: it failed in the same way.
        position: the part that the script is of; None where that is not asked for.
        evidence: what scripts of other parts showed, one line each.
    """

    folder: Path | None
    what: str
    is_same: bool = False
    position: Position | None = None
    evidence: tuple[str, ...] = ()


def replay(failure: BuildFailure, options: BuildOptions, folder: Path) -> Replay:
    """Writes the script of a failure into a new folder and runs it.

    Args:
        options: of the build that failed.
    """
    try:
        texts = _texts(failure, options)
    except (UsageError, LookupError) as error:
        return Replay(None, f"no repro: {error}", position=failure.position)
    folder.mkdir(parents=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    script = folder / SCRIPT
    seconds = min(options.timeout + STARTING, MAX_SECONDS)
    command = [sys.executable, str(script)]
    try:
        ended = tied_process.run(
            command, timeout=seconds, stderr=subprocess.STDOUT, environment=_environment(os.environ)
        )
    except subprocess.TimeoutExpired:
        return Replay(folder, f"no end within {seconds:g} s", failure.ending is Ending.TIMEOUT, failure.position)
    what, is_same = outcome(failure, ended.code, ended.stdout)
    return Replay(folder, what if is_same else f"{what}{_made_up(failure)}", is_same, failure.position)


def _made_up(failure: BuildFailure) -> str:
    """ ", with 8 in the place of s6", of a script whose sizes are not all known; "" for any other."""
    position = failure.position
    names = (position.node,) if position.node else position.nodes
    graph = None if failure.reference is None else failure.reference.graph(position.graph, position.function)
    if failure.compilation is not None or graph is None or any(name not in graph.by_name for name in names):
        return ""
    symbols = region_of(graph, names or calls_of(graph)).symbols
    return f", with {SIZE} in the place of {wording.comma_separated(symbols)}" if symbols else ""


def outcome(failure: BuildFailure, code: int, output: str) -> tuple[str, bool]:
    """The end of a script in one line, and if that is how the build failed."""
    if code == 0:
        return "it compiles", False
    if failure.compilation is not None:
        ended = error_text(code, output)
        return ended, ended == failure.what
    if failure.ending is not Ending.EXCEPTION:
        ended = child_process.describe_exit(code)
        return ended, ended == failure.what
    raised = [innermost_exception(line) for line in output.splitlines() if line and not line.startswith(" ")]
    if failure.what in raised:
        return failure.what, True
    return (raised[-1] if raised else child_process.describe_exit(code)), False


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables of the script: its modules are where those of the build were."""
    return {"TORCHINDUCTOR_COMPILE_THREADS": "1", **python_process.environment(variables)}


def _texts(failure: BuildFailure, options: BuildOptions) -> dict[str, str]:
    """The script, and the file that it compiles.

    Raises:
        UsageError, LookupError: it cannot be written.
    """
    position = failure.position
    if failure.compilation is not None:
        header = _header(failure, "The lines below are the compiler's command line.")
        text = compiler_text(header, failure.compilation.command, SOURCE)
        return {SCRIPT: text, SOURCE: failure.compilation.source}
    is_of_graph = bool(position.node) or position.stage in (BuildStage.PASS, BuildStage.CODE)
    if failure.reference is None or not is_of_graph:
        raise UsageError(f"no script is written of the stage {position.stage.value}")
    around = Surroundings(
        configs=options.inductor_configs,
        folders=user_code.folders_of(options.user_code.imports),
        imports=options.user_code.imports,
        libraries=options.user_code.library_paths,
    )
    try:
        return {SCRIPT: _module_script(failure, failure.reference, around)}
    except (UsageError, LookupError):
        if position.node or position.nodes or not isinstance(options.program, Artifact):
            raise
    header = _header(failure, "It compiles the whole program, whose graph has no form in a script.")
    return {SCRIPT: loading_text(header, str(options.program.path.resolve()), around)}


def _module_script(failure: BuildFailure, reference: Reference, around: Surroundings) -> str:
    position = failure.position
    graph = reference.graph(position.graph, position.function)
    names = (position.node,) if position.node else position.nodes
    if graph is None or any(name not in graph.by_name for name in names):
        raise LookupError(f"the graph of {nodes_text(names)} was not recorded")
    region = region_of(graph, names or calls_of(graph))
    module = module_text(reference, graph, region)
    device = device_of(graph, region)
    texts = {name: input_text(input_of(graph, key.node, region.symbols), device) for name, key in module.inputs.items()}
    held = {name for name, key in module.inputs.items() if graph.by_name[key.node].kind is NodeKind.WEIGHT}
    given = ModuleTensors(
        inputs={name: text for name, text in texts.items() if name not in held},
        weights={name: text for name, text in texts.items() if name in held},
        device=device,
    )
    what = f"{nodes_text(names)} of the graph that Inductor lowers" if names else "the graph of the program"
    header = _header(failure, f"It is {what}, with its dtypes, shapes and strides.")
    return script_text(header, module, given, around)


def _header(failure: BuildFailure, what: str) -> list[str]:
    version = "" if failure.reference is None else f", torch {failure.reference.torch_version}"
    return [
        f"The {part_text(failure.position)} alone: {wording.first_line(failure.what)}",
        what,
        f"Written by aoti-debug {__version__}{version}.",
        'It prints "it compiles" and exits with 0 where nothing fails.',
    ]

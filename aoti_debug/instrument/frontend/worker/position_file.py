"""Keeps a file that says which part of Inductor is at work while it lowers a program; names the node that failed.

The process may crash or never end: the file is there at any time. It begins with one line, a Position as JSON, which is
empty where no part that can be named is at work. Methods of torch's classes are wrapped for it.

The node that failed is the one that torch worked on when it raised an exception. torch lowers no branch or loop whose
operators overwrite what it is passed, and names none of them: "body_fn might be modifying the input!".
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import mmap
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import CodeType
from typing import Any, TypeAlias

from aoti_debug.base.errors import AotiDebugError
from aoti_debug.base.machine.exhaustion import chain_of, exhausted
from aoti_debug.base.machine.files import json_data
from aoti_debug.instrument.frontend.protocol.build_failure import LOWERED_GRAPHS, POSITION, BuildStage, Position
from aoti_debug.instrument.frontend.worker.graph_nodes import note_lowered
from aoti_debug.instrument.frontend.worker.reference_graphs import ReferenceGraphs
from aoti_debug.package import origins, program_graphs
from aoti_debug.package.node_text import node_text
from aoti_debug.package.program_graphs import FOLDING, HIGHER_ORDER, MODEL, Graph, Node, NodeKind, Reference, is_view

_NAMES = ("node", "n", "fx_node", "target_node", "user")  # what functions of torch call the node that they work on
_OUTER = ("torch/_inductor/compile_fx.py", "torch/_functorch/aot_autograd.py")  # they work on graphs
_INTERPRETER = "torch/fx/interpreter.py"
REFUSED = "might be modifying the input!"
Method: TypeAlias = Callable[..., Any]
_SIZE = 1 << 18  # bytes of the file


def node_at_work(error: BaseException | None) -> str:
    """Says which call the innermost function worked on that had one; "" if none had."""
    for code, line, node in _nodes(error):
        lines = origins.own_frames([str(node.meta.get("stack_trace") or "")])
        at = f", {lines[0].place}: {lines[0].text.strip()}" if lines else ""
        return f"{code.co_name} ({code.co_filename}:{line}) raised it at node {node.name}, a call of {node.target}{at}"
    return ""


def traced_node(error: BaseException | None) -> Any:
    """The torch.fx.Node of the exported program that torch traced when it raised an exception; None if it did not."""
    traced = (node for code, _, node in _nodes(error) if code.co_filename.endswith(_INTERPRETER))
    return next(traced, None)


def _nodes(error: BaseException | None) -> Iterator[tuple[CodeType, int, Any]]:
    """Yields the calls that functions worked on, innermost first, each with the function and its line."""
    import torch

    frames = [] if error is None else list(traceback.walk_tb(error.__traceback__))
    for frame, line in reversed(frames):
        if frame.f_code.co_filename.endswith(_OUTER):
            return
        node = next((frame.f_locals[name] for name in _NAMES if name in frame.f_locals), None)
        if isinstance(node, torch.fx.Node) and node.op == "call_function":
            yield frame.f_code, line, node


def overwritten_operands(program: Any, error: BaseException | None) -> str:
    """Says which operators overwrite an operand of their branch or loop; "" if torch did not refuse any.

    Args:
        program: a torch.export.ExportedProgram.
        error: that ended its lowering.
    """
    if REFUSED not in str(error):
        return ""
    graphs = ReferenceGraphs()
    try:
        graphs.record_exported(program)
    except Exception:  # noqa: BLE001 - torch's own classes change from one version to the next
        return ""
    reference = graphs.reference().of_exported
    return "" if reference is None else "; ".join(dict.fromkeys(_sentences(reference)))


def _sentences(reference: Reference) -> Iterator[str]:
    for graph in reference.graphs:
        for call in graph.nodes:
            if not call.target.startswith(HIGHER_ORDER):
                continue
            bodies = (graph.by_name[name] for name in call.inputs)
            for body in (node.target for node in bodies if node.kind is NodeKind.SUBGRAPH):
                inner = next((other for other in reference.graphs if other.name == body), None)
                if inner is not None:
                    yield from _of_body(reference, inner, call)


def _of_body(reference: Reference, body: Graph, call: Node) -> Iterator[str]:
    for node in body.nodes:
        for name in node.mutates:
            base = body.by_name[name]
            while is_view(base):
                base = body.by_name[base.inputs[0]]
            if base.kind is NodeKind.INPUT:
                line = reference.line(node)
                place = "" if line is None else f" ({Path(line.file).name}:{line.line} in {line.function})"
                operator = call.target.removeprefix(HIGHER_ORDER)
                yield (
                    f"{node.target} overwrites {base.name}, which {operator} is passed, in {body.name}{place}: "
                    f"{node_text(node)}; torch refuses that, and may accept a copy: {base.name}.clone()"
                )


class Positions:
    """The parts of Inductor that are at work, each inside the one before it.

    The file is mapped: it is written for each step of a loop, and a system call would take longer than the step.
    """

    def __init__(self, path: Path) -> None:
        self._file = _mapped(path)
        self._current: Position | None = None
        self._raised: list[tuple[BaseException, Position]] = []
        self._texts: dict[Position | None, bytes] = {None: b"\n"}
        self._write(None)

    @property
    def current(self) -> Position | None:
        """The part that is at work."""
        return self._current

    def close(self, error: BaseException | None) -> None:
        """Closes the file; of an exception that ends the lowering it says which part raised it."""
        chain = list(chain_of(error))
        is_outside = any(isinstance(link, AotiDebugError | OSError) or exhausted(link) is not None for link in chain)
        raised = [] if is_outside else [place for seen, place in self._raised if any(seen is link for link in chain)]
        traced = None if is_outside or raised else _traced(error)
        self._write(raised[0] if raised else traced)
        if self._file is not None:
            self._file.close()

    @contextlib.contextmanager
    def at(self, position: Position) -> Iterator[None]:
        """Inside the `with`, this part is at work; one without a node of its own works for the node around it."""
        outer, handled = self._current, len(self._raised)
        position = position if outer is None else _within(outer, position)
        self._write(position)
        try:
            yield
        except BaseException as error:
            self._note(error, position)
            raise
        else:
            del self._raised[handled:]
        finally:
            self._write(outer)

    def noting(self, position_of: Callable[[tuple[Any, ...]], Position | None]) -> Callable[[Method], Method]:
        """Returns what wraps a method: in a call of it, the part that `position_of` gives for the arguments is at work.

        Where that is None, the call is made as it is.
        """

        def wrap(original: Method) -> Method:
            @functools.wraps(original)
            def noting(*args: Any, **kwargs: Any) -> Any:
                position = position_of(args)
                with contextlib.nullcontext() if position is None else self.at(position):
                    return original(*args, **kwargs)

            return noting

        return wrap

    def _note(self, error: BaseException, position: Position) -> None:
        """Remembers the innermost part that an exception has left."""
        chain = list(chain_of(error))
        if not any(seen is link for seen, _ in self._raised for link in chain):
            self._raised.append((error, position))

    def _write(self, position: Position | None) -> None:
        self._current = position
        text = self._texts.get(position)
        if text is None:
            assert position is not None
            text = self._texts[position] = _line(position) or _line(replace(position, nodes=()))
        if self._file is not None:
            self._file[: len(text)] = text


def _traced(error: BaseException | None) -> Position | None:
    """The call of the exported program that was traced when an exception was raised; None if none was."""
    node = traced_node(error)
    return None if node is None else Position(BuildStage.TRACING, str(node.target), node.name)


def _mapped(path: Path) -> mmap.mmap | None:
    """A file that holds a position, as memory; None where the disk is full: that stops no lowering."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(file, 0, _SIZE)  # a write into memory without room on the disk would be a SIGBUS
        return mmap.mmap(file, _SIZE)
    except OSError:
        return None
    finally:
        os.close(file)


def _line(position: Position) -> bytes:
    """The line of a position; empty if it is too long for the file."""
    text = f"{json_data.to_text(position, indent=None).strip()}\n".encode()
    return text if len(text) <= _SIZE else b""


@functools.cache
def _within(outer: Position, position: Position) -> Position:
    """A position inside of another one: of its node, or in its kernel."""
    if not position.nodes and not position.node:
        name = position.name or (outer.name if position.stage is outer.stage else "")
        return replace(
            position, name=name, node=outer.node, graph=outer.graph, function=outer.function, nodes=outer.nodes
        )
    is_same_graph = (position.graph, position.function) == (outer.graph, outer.function)
    if is_same_graph and set(position.nodes) < set(outer.nodes):
        others = (name for name in outer.nodes if name not in position.nodes)
        return replace(position, nodes=(*position.nodes, *others))
    return position


class _Graphs:
    """The file of the graphs that are lowered; a graph that cannot be written there is missing in repros only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._graphs = ReferenceGraphs()

    def of_program(self, nodes: Iterable[Any]) -> None:
        with contextlib.suppress(Exception):
            self._graphs.of_program(nodes)
            self._write()

    def lowered(self, graph: Any) -> None:
        with contextlib.suppress(Exception):
            self._graphs.begin(graph)
            self._write()

    def _write(self) -> None:
        self._path.write_text(program_graphs.to_json(self._graphs.reference()))


@contextlib.contextmanager
def watched(folder: Path, nodes: Iterable[Any]) -> Iterator[Positions]:
    """Keeps the file of positions, and that of the graphs that are lowered, in a folder while a program is lowered.

    Args:
        nodes: of the exported program, whose graph it is until the first is lowered.
    """
    positions = Positions(folder / POSITION)
    graphs = _Graphs(folder / LOWERED_GRAPHS)
    graphs.of_program(nodes)
    error: BaseException | None = None
    try:
        with _passes(positions), _lowerings(positions, graphs):
            yield positions
    except BaseException as raised:
        error = raised
        raise
    finally:
        positions.close(error)


_UNNAMED = "pattern_matcher"  # patterns without a name of their own: the pass that applies them has one


@contextlib.contextmanager
def _passes(positions: Positions) -> Iterator[None]:
    """Notes the graph passes."""
    from torch.fx.passes.graph_transform_observer import GraphTransformObserver

    begun: dict[int, contextlib.ExitStack] = {}

    def enter(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def __enter__(self: Any) -> Any:  # noqa: N807
            is_part = str(self.passname) == _UNNAMED and bool(begun)
            stack = begun[id(self)] = contextlib.ExitStack()
            if not is_part:
                stack.enter_context(positions.at(Position(BuildStage.PASS, str(self.passname))))
            try:
                return original(self)
            except BaseException:
                begun.pop(id(self)).__exit__(*sys.exc_info())
                raise

        return __enter__

    def leave(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def __exit__(self: Any, *error: Any) -> Any:  # noqa: N807
            stack = begun.pop(id(self), None)
            try:
                return original(self, *error)
            finally:
                if stack is not None:
                    stack.__exit__(*error)

        return __exit__

    with replaced(GraphTransformObserver, "__enter__", enter), replaced(GraphTransformObserver, "__exit__", leave):
        yield


@contextlib.contextmanager
def _lowerings(positions: Positions, graphs: _Graphs) -> Iterator[None]:
    """Notes the nodes that are lowered, after writing the graph that they are of, and their dtypes then."""
    from torch._inductor.graph import GraphLowering

    def run(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            graphs.lowered(self)
            return original(self, *args, **kwargs)

        return run

    def lowered(arguments: tuple[Any, ...]) -> Position | None:
        graph, n = arguments
        if n.op != "call_function":
            return None
        function = FOLDING if graph.is_const_graph else MODEL
        return Position(BuildStage.LOWERING, str(n.target), n.name, graph.name or "", function)

    def run_node(original: Callable[..., Any]) -> Callable[..., Any]:
        noting = positions.noting(lowered)(original)

        @functools.wraps(original)
        def run_node(self: Any, node: Any) -> Any:
            result = noting(self, node)
            note_lowered(node, result)
            return result

        return run_node

    with replaced(GraphLowering, "run", run), replaced(GraphLowering, "run_node", run_node):
        yield


@contextlib.contextmanager
def replaced(owner: Any, name: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    """Wraps a method inside the `with`; where this torch's class has no such method, nothing is done.

    Args:
        wrap: makes the new method of the one in a `__dict__`: of the class, or of the one that it inherits it from.
    """
    original = inspect.getattr_static(owner, name, None)
    if original is None:
        yield
        return
    is_own = name in vars(owner)
    setattr(owner, name, wrap(original))
    try:
        yield
    finally:
        if is_own:
            setattr(owner, name, original)
        else:
            delattr(owner, name)

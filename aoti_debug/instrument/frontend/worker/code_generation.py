"""Notes the operators whose code Inductor generates while a program is lowered.

The loops of several operators become one kernel. What is noted of the kernel is all of them; of a step inside of its
loops, the operator whose lowering made the step.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from aoti_debug.instrument.frontend.protocol.build_failure import BuildStage, Position
from aoti_debug.instrument.frontend.worker.position_file import Positions, replaced
from aoti_debug.package.program_graphs import FOLDING, MODEL

_META = "aoti_debug_position"  # of a node in the graph of a kernel's loops
# Methods that work on the operations among their arguments. A torch that lacks one has another one of them around it.
_SCHEDULER = (
    "create_scheduler_node",
    "can_fuse",
    "fuse_two_nodes",
    "speedup_by_fusion",
    "codegen_extern_call",
    "benchmark_fused_nodes",
)
_SCHEDULED = (
    "_compute_attrs",
    "recompute_size_and_body",
    "refresh_dependencies",
    "apply_new_loop_order",
    "apply_loop_reindexing",
    "merge_loops",
    "swap_pw_red_dimension",
    "cancel_reduction_split",
    "expand_dimension_for_pointwise_node",
    "decide_inplace_update",
    "mark_run",
    "codegen",
)
_BACKEND = (
    "codegen_node",
    "codegen_template",
    "codegen_combo_kernel",
    "codegen_mix_order_reduction",
    "codegen_nested_reduction",
    "generate_kernel_code_from_nodes",
)
_STORE = ("store_output", "store_reduction")
_LINE = ("plan", "codegen")


@contextlib.contextmanager
def noted(positions: Positions) -> Iterator[None]:
    """Notes whose code is generated: of each operation, each kernel, each line of the wrapper, each step of a loop."""
    generate = positions.noting(lambda _: Position(BuildStage.CODE))
    with (
        replaced(_class("graph", "GraphLowering"), "codegen_with_cpp_wrapper", generate),
        _operations(positions),
        _loops(positions),
        _wrapper_lines(positions),
    ):
        yield


@contextlib.contextmanager
def _operations(positions: Positions) -> Iterator[None]:
    """Notes the operations that are scheduled, fused and turned into kernels."""
    scheduler, scheduled = _class("scheduler", "Scheduler"), _class("scheduler", "SchedulerNode")

    def create_backend(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def create_backend(*args: Any, **kwargs: Any) -> Any:
            return _noting_kernels(original(*args, **kwargs), positions)

        return create_backend

    with contextlib.ExitStack() as stack:
        for owner, names in ((scheduler, _SCHEDULER), (scheduled, _SCHEDULED)):
            for name in names:
                stack.enter_context(replaced(owner, name, positions.noting(_position)))
        stack.enter_context(replaced(scheduler, "create_backend", create_backend))
        yield


def _noting_kernels(backend: Any, positions: Positions) -> Any:
    """Makes a backend note the operations of its kernels, those since the last flush while it flushes them."""
    waiting: list[Any] = []

    def passed(args: tuple[Any, ...]) -> Position | None:
        waiting.extend(args)
        return _position(args)

    def flush(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def flush(*args: Any, **kwargs: Any) -> Any:
            result = positions.noting(lambda _: _position(waiting))(method)(*args, **kwargs)
            waiting.clear()
            return result

        return flush

    for name, wrap in (*dict.fromkeys(_BACKEND, positions.noting(passed)).items(), ("flush", flush)):
        method = getattr(backend, name, None)
        if method is not None:
            setattr(backend, name, wrap(method))
    return backend


@contextlib.contextmanager
def _loops(positions: Positions) -> Iterator[None]:
    """Notes the operator that makes each step of a loop, when loops are traced and when code is made of a step."""
    loops = _class("ir", "Loops")

    def made(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def __post_init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            original(self, *args, **kwargs)
            position = _lowered() if isinstance(self, loops) else None
            if position is None:
                return
            object.__setattr__(self, _META, position)
            object.__setattr__(self, "inner_fn", _noting_steps(self.inner_fn, position, positions))
            if others := getattr(self, "inner_fns", None):
                object.__setattr__(
                    self, "inner_fns", type(others)(_noting_steps(f, position, positions) for f in others)
                )

        return __post_init__

    def trace(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def create_node(self: Any, *args: Any, **kwargs: Any) -> Any:
            node = original(self, *args, **kwargs)
            current = positions.current
            if current is not None and current.stage is BuildStage.CODE and current.node:
                node.meta[_META] = current
            return node

        return create_node

    store = positions.noting(lambda args: getattr(args[0], _META, None))
    interpret = positions.noting(lambda args: args[1].meta.get(_META))
    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(_class("ir", "IRNode"), "__post_init__", made))
        stack.enter_context(replaced(_class("loop_body", "LightTracer"), "create_node", trace))
        stack.enter_context(replaced(_class("loop_body", "InterpreterShim"), "run_node", interpret))
        for owner in _subclasses(loops):
            for name in _STORE:
                if name in vars(owner):
                    stack.enter_context(replaced(owner, name, store))
        yield


def _noting_steps(inner: Callable[..., Any], position: Position, positions: Positions) -> Callable[..., Any]:
    def inner_fn(*args: Any, **kwargs: Any) -> Any:
        with positions.at(position):
            return inner(*args, **kwargs)

    functools.update_wrapper(inner_fn, inner, updated=())
    return inner_fn


@contextlib.contextmanager
def _wrapper_lines(positions: Positions) -> Iterator[None]:
    """Notes the operations of the lines of a wrapper while memory is planned and the lines are written.

    They are those at work when the line was made, else those of the buffers that it names.
    """
    line_class = _class("codegen.wrapper", "WrapperLine")
    made: dict[int, tuple[Any, Position]] = {}  # the line is kept, so that its id stays its own

    def writeline(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def writeline(self: Any, line: Any, *args: Any, **kwargs: Any) -> Any:
            if positions.current is not None and isinstance(line, line_class):
                made[id(line)] = line, positions.current
            return original(self, line, *args, **kwargs)

        return writeline

    def of_line(args: tuple[Any, ...]) -> Position | None:
        _, position = made.get(id(args[0]), (args[0], None))
        return position if position is not None and position.nodes else _position(vars(args[0]).values())

    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(_class("codegen.wrapper", "PythonWrapperCodegen"), "writeline", writeline))
        for owner in _subclasses(line_class):
            for name in _LINE:
                if name in vars(owner):
                    stack.enter_context(replaced(owner, name, positions.noting(of_line)))
        yield


class _Missing:
    """What stands for a class that this torch does not have."""


@functools.cache
def _class(module: str, name: str) -> type[Any]:
    """A class of a module of Inductor."""
    try:
        found = getattr(importlib.import_module(f"torch._inductor.{module}"), name, None)
    except ModuleNotFoundError:
        found = None
    return found if isinstance(found, type) else _Missing


def _subclasses(of: type[Any]) -> Iterator[type[Any]]:
    for found in type.__subclasses__(of):
        yield found
        yield from _subclasses(found)


def _lowered() -> Position | None:
    """The position of code of the node that is being lowered; None outside of lowerings."""
    from torch._inductor.virtualized import V

    node = getattr(V.graph, "current_node", None)
    if node is None or node.op != "call_function":
        return None
    return Position(BuildStage.CODE, str(node.target), node.name, *_graph(V.graph), nodes=(node.name,))


def _position(items: Iterable[Any]) -> Position | None:
    """The position of the operations among some values; None if there is none."""
    from torch._inductor.virtualized import V

    graph = V.graph
    fx = getattr(graph, "graph", None)
    origins = dict.fromkeys(
        node for item in items for node in _origins(item) if node.op == "call_function" and node.graph is fx
    )
    if not origins:
        return None
    first = next(iter(origins))
    is_one = len(origins) == 1
    return Position(
        BuildStage.CODE,
        str(first.target) if is_one else "",
        first.name if is_one else "",
        *_graph(graph),
        nodes=tuple(node.name for node in origins),
    )


def _graph(graph: Any) -> tuple[str, str]:
    """The name and the function of a graph, as in a Position."""
    return getattr(graph, "name", None) or "", FOLDING if getattr(graph, "is_const_graph", False) else MODEL


def _origins(item: Any) -> Iterable[Any]:
    """The FX nodes that a value of Inductor was made of; none for what has none."""
    if isinstance(item, list | tuple):
        return (node for each in item for node in _origins(each))
    if isinstance(item, _class("scheduler", "BaseSchedulerNode")):
        return (node for each in item.get_nodes() for node in _origins(each.node))
    return getattr(item, "origins", ()) if isinstance(item, _class("ir", "IRNode")) else ()

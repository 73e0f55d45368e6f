"""The process that writes an exported program with casts: modules compute in a narrower dtype, the others as before.

In a dtype that torch computes in, each operator of such a module reads its floating tensors cast to it, weights too,
and what it returns is cast back; of two casts one after the other, back and forth, none is left. In float8 operators
compute as before: what comes into a module from outside, its weights too, and what leaves it is cast there and back.
"""

from __future__ import annotations

import copy
import operator
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug.base import wording
from aoti_debug.base.dtypes import FLOAT_FORMATS
from aoti_debug.base.errors import EXIT_CLEAN, AotiDebugError, ToolchainError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import user_code
from aoti_debug.base.machine.files import atomic_write, json_data
from aoti_debug.base.machine.processes import child_process, python_process
from aoti_debug.compare.modules import module_of_path
from aoti_debug.compare.what_if.rounding import Changed, OutputEffect, changes, effects, largest_error
from aoti_debug.compare.what_if.substituted_run import ReplaySession, SubstitutedRun
from aoti_debug.instrument.builder.build import BuildOptions, instrumented
from aoti_debug.instrument.frontend.worker.graph_nodes import module_path, mutated_nodes
from aoti_debug.package.inputs import input_files
from aoti_debug.package.pt2 import archive, load_program
from aoti_debug.runs.diagnosis.diagnosed_run import require_end
from aoti_debug.runs.run import saved_outputs

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

_WORKER = "aoti_debug.compare.what_if.cast_program"
_SECONDS = 600.0  # that writing a program may take
_COMPUTED = ("bfloat16", "float16", "float32")  # dtypes that operators compute in
_KEEPING = frozenset({"aten::to", "aten::_to_copy", "aten::type_as"})  # operators that are told their dtype


@dataclass(frozen=True, kw_only=True)
class CastRequest:
    """A program to write with casts.

    Attributes:
        to: the dtype.
        kept: the modules that compute as before, their paths cut after `depth` names.
        output: the file to write.
        package: of the program as it is, which knows what the model takes; "": the program is not called.
        inputs: their file; "" for those in the package.
        calls: how often it is called.
        returned: the folder for what the last call returns in eager.
    """

    program: str
    to: str
    kept: tuple[str, ...]
    depth: int | None
    output: str
    package: str = ""
    inputs: str = ""
    calls: int = 1
    returned: str = ""
    imports: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CastProgram:
    """A program that was written with casts.

    Attributes:
        modules: those with casts.
        operators: how many operators compute in the narrower dtype, or how many tensors are cast there and back.
        left: operators of these modules that compute as before, and why.
        refusal: the error that it ends with in eager; "" if it returns.
    """

    modules: tuple[str, ...] = ()
    operators: int = 0
    left: tuple[str, ...] = ()
    refusal: str = ""

    def text(self, to: str) -> str:
        """ "66 operators in bfloat16, in 15 modules", "12 tensors cast there and back, in 3 modules".

        Args:
            to: the dtype.
        """
        modules = wording.pluralize(len(self.modules), "module")
        if to in _COMPUTED:
            return f"{wording.pluralize(self.operators, 'operator')} in {to}, in {modules}"
        return f"{wording.pluralize(self.operators, 'tensor')} cast there and back, in {modules}"


@dataclass(frozen=True, kw_only=True)
class BuiltProposal(Changed):
    """The program with casts in the modules of a proposal, built and run.

    Attributes:
        program: the exported program that was written.
        casts: what was cast in it.
        effects: on the outputs, against the package as it is; () if it was not run.
        eager: the same of the program with casts in eager, which rounds after each operator; () if that is not known.
        failure: why it was not built or run; "" if it was.
        exit_code: of the command line for that failure.
    """

    program: Path
    casts: CastProgram = CastProgram()
    effects: tuple[OutputEffect, ...] = ()
    eager: tuple[OutputEffect, ...] = ()
    failure: str = ""
    exit_code: int = EXIT_CLEAN

    @cached_property
    def eager_error(self) -> float:
        """The largest change of an output in eager; 0 if it is not known."""
        return largest_error(self.eager)


class _Casts:
    def __init__(self, program: ExportedProgram, request: CastRequest) -> None:
        import torch

        self._program = program
        self._graph = program.graph_module.graph
        self._request = request
        self._format = FLOAT_FORMATS[request.to]
        self._to: torch.dtype = getattr(torch, request.to)
        self._mode = _mode(self._graph)
        self._narrow: dict[Node, Node] = {}  # of a value that was cast back, the one in the narrower dtype
        self._rounded_there: set[Node] = set()  # values that were cast there and back
        self.modules: dict[str, None] = {}
        self.left: dict[str, None] = {}
        self.count = 0

    def module(self, node: Node) -> str:
        """The module that a node belongs to, as a part of the model is named."""
        return module_of_path(module_path(node.meta.get("nn_module_stack")), self._request.depth)

    def is_chosen(self, node: Node) -> bool:
        """True if a node is an operator of a module that is cast."""
        import torch

        is_operator = node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload)
        return is_operator and self.module(node) not in self._request.kept

    def is_wide(self, value: Any) -> bool:
        """True for a fake tensor whose numbers the dtype rounds."""
        import torch

        is_tensor = isinstance(value, torch.Tensor) and value.is_floating_point()
        return is_tensor and changes(self._format, str(value.dtype).removeprefix("torch."))

    def compute(self) -> None:
        """Has the operators of the modules compute in the dtype."""
        for node in list(self._graph.nodes):
            if self.is_chosen(node) and self._can_compute(node):
                self._compute(node)
            elif any(mutated_nodes(node)):
                self._narrow.clear()  # what was overwritten is another value than the narrow one

    def _can_compute(self, node: Node) -> bool:
        """True if an operator reads numbers that the dtype rounds, is not told a dtype, and overwrites nothing."""
        import torch

        target: Any = node.target
        if not any(self.is_wide(one.meta.get("val")) for one in node.all_input_nodes):
            return False
        given = (*node.args, *node.kwargs.values())
        if target._schema.name in _KEEPING or any(isinstance(value, torch.dtype) for value in given):
            return False
        overwritten = list(mutated_nodes(node))
        if overwritten:
            self.left[f"{target}: it overwrites {wording.join_truncated(overwritten, 2)}"] = None
        return not overwritten

    def _compute(self, node: Node) -> None:
        import torch

        target: Any = node.target
        before = node.meta["val"]
        inputs = [one for one in node.all_input_nodes if self.is_wide(one.meta.get("val"))]
        narrow = {one: self._in_dtype(one, node) for one in inputs}
        given = node.args, node.kwargs
        for one, cast in narrow.items():
            node.replace_input_with(one, cast)
        values = torch.fx.node.map_arg((node.args, node.kwargs), lambda one: one.meta["val"])
        try:
            with self._mode:
                node.meta["val"] = target(*values[0], **values[1])
        except Exception as error:  # noqa: BLE001  # of any operator
            node.args, node.kwargs = given
            self.left[f"{target}: {wording.first_line(str(error)) or type(error).__name__}"] = None
            return
        self.count += 1
        self.modules[self.module(node)] = None
        for result, wide in _results(node, before):
            value = result.meta.get("val")
            if self.is_wide(wide) and isinstance(value, torch.Tensor) and value.dtype == self._to:
                self._back(result, wide)

    def _in_dtype(self, value: Node, user: Node) -> Node:
        """The value in the narrower dtype, before a node that uses it."""
        known = self._narrow.get(value)
        if known is not None:
            return known
        with self._graph.inserting_before(user):
            return self._cast(value, self._to, user)

    def _back(self, result: Node, wide: Any) -> None:
        """Casts a result back, for all that uses it."""
        users = list(result.users)
        with self._graph.inserting_after(result):
            back = self._cast(result, wide.dtype, result)
        for user in users:
            user.replace_input_with(result, back)
        self._narrow[back] = result
        self._renamed(result, back)

    def _renamed(self, old: Node, new: Node) -> None:
        signature = self._program.graph_signature
        if any(output.arg.name == old.name for output in signature.output_specs if hasattr(output.arg, "name")):
            signature.replace_all_uses(old.name, new.name)

    def _cast(self, value: Node, dtype: Any, like: Node) -> Node:
        import torch

        cast = self._graph.call_function(torch.ops.aten._to_copy.default, (value,), {"dtype": dtype})
        cast.meta = {key: like.meta[key] for key in ("nn_module_stack", "stack_trace") if key in like.meta}
        with self._mode:
            cast.meta["val"] = torch.ops.aten._to_copy.default(value.meta["val"], dtype=dtype)
        return cast

    def round_borders(self) -> None:
        """Casts what comes into the modules, and what leaves them, there and back."""
        given: dict[tuple[Node, str], Node] = {}  # rounded, by the value and the module that it comes into
        for node in list(self._graph.nodes):
            overwritten = set(mutated_nodes(node))
            if not self.is_chosen(node):
                given = {} if overwritten else given
                continue
            for value in node.all_input_nodes:
                is_given = value not in self._rounded_there and value.name not in overwritten
                if is_given and self.is_wide(value.meta.get("val")) and not self._is_inside(value, node):
                    key = value, self.module(node)
                    if key not in given:
                        with self._graph.inserting_before(node):
                            given[key] = self._rounded(value, node)
                    node.replace_input_with(value, given[key])
            given = {} if overwritten else given  # what was overwritten is another value than the rounded one
            for result, wide in list(_results(node, node.meta["val"])):
                outside = [user for user in result.users if not self._is_inside(node, user)]
                if self.is_wide(wide) and outside:
                    behind = result if result is not node else node
                    with self._graph.inserting_after(behind):
                        rounded = self._rounded(result, node)
                    for user in outside:
                        user.replace_input_with(result, rounded)
                    self._renamed(result, rounded)

    def _is_inside(self, value: Node, user: Node) -> bool:
        """True if both are of the same module, or the user takes a result of several."""
        if user.target is operator.getitem:
            return True
        is_computed = value.op == "call_function" and value.target is not operator.getitem
        source = value if is_computed or not value.all_input_nodes else value.all_input_nodes[0]
        return source.op == "call_function" and user.op != "output" and self.module(source) == self.module(user)

    def _rounded(self, value: Node, like: Node) -> Node:
        there = self._cast(value, self._to, like)
        with self._graph.inserting_after(there):
            back = self._cast(there, value.meta["val"].dtype, like)
        self._rounded_there.add(back)
        self.count += 1
        self.modules[self.module(like)] = None
        return back


def _mode(graph: Any) -> Any:
    """The mode of the graph's fake tensors."""
    from torch._guards import detect_fake_mode

    return detect_fake_mode([node.meta.get("val") for node in graph.nodes])


def _results(node: Node, value: Any) -> Iterator[tuple[Node, Any]]:
    """Yields the nodes that hold what a node returns, each with the fake value that it had."""
    if not isinstance(value, tuple | list):
        yield node, value
        return
    for user in list(node.users):
        if user.target is operator.getitem and isinstance(user.args[1], int):
            if isinstance(node.meta["val"], tuple | list):
                user.meta["val"] = node.meta["val"][user.args[1]]
            yield user, value[user.args[1]]


def with_casts(request: CastRequest) -> CastProgram:
    """Writes the program; it computes in the dtype where the modules are not kept."""
    import torch

    program = load_program.load(request.program)
    if any(name for node in program.graph.nodes for name in mutated_nodes(node)):
        program = program.run_decompositions({})  # nothing is overwritten through a view
    casts = _Casts(program, request)
    if request.to in _COMPUTED:
        casts.compute()
    else:
        casts.round_borders()
    program.graph_module.graph.eliminate_dead_code()
    program.graph_module.graph.lint()
    program.graph_module.recompile()
    torch.export.save(program, request.output)
    refusal = _call_in_eager(program, request) if request.package else ""
    return CastProgram(modules=tuple(casts.modules), operators=casts.count, left=tuple(casts.left), refusal=refusal)


def _call_in_eager(program: ExportedProgram, request: CastRequest) -> str:
    """Saves what the program returns; the error if it returns nothing."""
    import torch

    inputs = input_files.given_or_embedded(archive.inspect(Path(request.package)), request.inputs or None)
    try:
        module: Any = program.module()
        with torch.no_grad():
            for _ in range(request.calls):
                args, kwargs = copy.deepcopy((inputs.args, dict(inputs.kwargs)))
                result = module(*args, **kwargs)
        saved_outputs.save(result, Path(request.returned))
    except Exception as error:  # noqa: BLE001  # of any operator
        return wording.first_line(str(error)) or type(error).__name__
    return ""


def built_with_casts(
    request: CastRequest, session: ReplaySession, before: SubstitutedRun, configs: Mapping[str, Any]
) -> BuiltProposal:
    """Writes a program with casts in a process of its own, builds and runs it.

    Args:
        session: of the package of the program as it is.
        before: its run.
        configs: settings of the build.

    Raises:
        UsageError: the program is not trusted.
    """
    program, folder, steps = Path(request.output), session.folder, session.steps
    with steps.step("write a program with casts") as note:
        casts, code = python_process.ask(_WORKER, request, CastProgram, folder, "casts", seconds=_SECONDS)
        if casts is None:
            failure = child_process.describe_end(code, folder / "casts.log")
            return BuiltProposal(program=program, failure=failure, exit_code=ToolchainError.exit_code)
        note.text = casts.text(request.to)
    building = BuildOptions(
        program=program,
        output=folder / "casts_package.pt2",
        inductor_configs=configs,
        user_code=replace(session.options.user_code, trusted=True),
    )
    try:
        package = instrumented(program, building, steps, name="build with casts", has_inputs=True)
        again = ReplaySession(replace(session.options, package=package), folder, steps)
        after = again.again("with casts", ())
        require_end(after.run, program)
    except AotiDebugError as error:
        failure = wording.first_line(str(error))
        return BuiltProposal(program=program, casts=casts, failure=failure, exit_code=error.exit_code)
    eager = saved_outputs.saved(Path(request.returned)) if request.returned else {}
    return BuiltProposal(
        program=program,
        casts=casts,
        effects=effects(after.outputs, before.outputs),
        eager=effects(eager, before.outputs),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """`REQUEST.json ANSWER.json`: writes the program, and what was cast; 0."""
    question, answer = map(Path, arguments or sys.argv[1:])
    request = json_data.parse(CastRequest, question.read_bytes())
    user_code.load(request.imports, request.libraries)
    atomic_write.write(answer, json_data.to_text(with_casts(request)))
    return 0

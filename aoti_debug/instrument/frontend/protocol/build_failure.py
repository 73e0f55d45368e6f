"""The part of Inductor, or the compiler, that is at work in a build, and what stopped it there; both in words."""

from __future__ import annotations

import contextlib
import re
import shlex
import sysconfig
from collections.abc import Sequence
from enum import Enum
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.errors import ArtifactError, ToolchainError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import json_data
from aoti_debug.package import program_graphs
from aoti_debug.package.manifest import ModelLine
from aoti_debug.package.program_graphs import MODEL, Reference

POSITION = "position.json"  # these lie in the folder of a lowering
LOWERED_GRAPHS = "lowered_graphs.json"
_MODEL = "MODEL.pt2"
HINT = f"aoti-debug triage {_MODEL} names what is to blame, and goes on without it"
_MAX_FRAMES = 12
_OWN = Path(__file__).parents[3]
_INSTALLED = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_TRACEBACK = "Traceback (most recent call last):"
_STACK = re.compile(r"^(?:Current thread .*|Stack) \(most recent call first\):$")
_MAX_NODES = 4  # nodes in a line
_FRAME = re.compile(r'^(?:  \| )?  File "(?P<file>[^"]*)", line (?P<line>\d+),? in (?P<function>.*)$')
_WRAPPED_BY = re.compile(r"(?:(?:\w+\.)*(?:InductorError|LoweringException|BackendCompilerFailed): )*")


class BuildStage(str, Enum):
    """A stage of a build."""

    TRACING = "tracing"  # of the exported program by torch's AOTAutograd, with Inductor's decompositions
    PASS = "graph pass"
    LOWERING = "lowering"
    CODE = "code generation"
    CPP = "C++ compiler"
    TRITON = "Triton compiler"
    AUTOTUNING = "autotuning"


@dataclass(frozen=True)
class Position:
    """The part of Inductor that is at work.

    Attributes:
        name: of the pass, "remove_noop_ops"; of the operator, "aten.silu.default"; of the kernel, "triton_poi_fused_0".
        node: the FX node that is traced or lowered, "silu_1"; "" for none.
        graph, function: the graph of that node (Reference.graph).
        candidate: the configuration that is compiled or timed, "XBLOCK: 128, num_warps: 4"; "" for none.
        nodes: the FX nodes of the kernel whose code is generated, the likelier ones first; one of them may be `node`.
    """

    stage: BuildStage
    name: str = ""
    node: str = ""
    graph: str = ""
    function: str = MODEL
    candidate: str = ""
    nodes: tuple[str, ...] = ()


class Ending(str, Enum):
    """The way in which a process that built was stopped."""

    EXCEPTION = "exception"
    DEATH = "death"  # a signal, or an exit code
    TIMEOUT = "timeout"


@dataclass(frozen=True)
class Compilation:
    """The compilation of a source file.

    Attributes:
        source: its text.
        command: the compiler and its options, without the names of files.
    """

    source: str
    command: tuple[str, ...]


@dataclass(frozen=True)
class BuildFailure:
    """A part of Inductor, or a compiler, that fails, crashes or never ends.

    Attributes:
        what: one line: "RuntimeError: no such layout", "SIGSEGV", "no end within 30 s".
        stack: the innermost Python frames, the innermost first: "File …, line 12 in apply".
        reference: the graphs that were being lowered; None before the first one.
        operators: those of the kernel that does not compile, or whose code cannot be generated.
        compilation: of that kernel; None where no C++ compiler fails.
        note: what the process that built has found out about it; "" for nothing.
    """

    position: Position
    ending: Ending
    what: str
    stack: tuple[str, ...] = ()
    reference: Reference | None = None
    operators: tuple[str, ...] = ()
    compilation: Compilation | None = None
    note: str = ""

    def line(self, position: Position) -> ModelLine | None:
        """The model line of the node of a position; None if it is not known."""
        reference = self.reference
        graph = None if reference is None else reference.graph(position.graph, position.function)
        if reference is None or graph is None or position.node not in graph.by_name:
            return None
        return reference.line(graph.by_name[position.node])


class BuildFailureError(ToolchainError):
    """A build stopped in a part of Inductor, or in a compiler, that can be named.

    Attributes:
        failure: that part.
    """

    def __init__(self, message: str, failure: BuildFailure, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.failure = failure

    def of_model(self, file: Path) -> BuildFailureError:
        """The error with the file of the model in the command of its hint."""
        return BuildFailureError(str(self), self.failure, hint=self.hint.replace(_MODEL, shlex.quote(str(file))))


def innermost_exception(raised: str) -> str:
    """ "RuntimeError: no such layout" of "InductorError: LoweringException: RuntimeError: no such layout": one line."""
    return wording.first_line(raised[_WRAPPED_BY.match(raised).end() :])  # type: ignore[union-attr]  # it may be empty


def explain(
    error: ToolchainError, folder: Path, ending: Ending, what: str, output: str, note: str = ""
) -> ToolchainError:
    """The error of a lowering, with the part of Inductor that was at work; the error itself if that is not known.

    Args:
        folder: of the lowering.
        what: one line about its end.
        output: text of its process that ends with a Python stack, if it could write one.
        note: what that process has found out.
    """
    position = read_position(folder)
    if position is None:
        return error
    reference = None
    with contextlib.suppress(FileNotFoundError, ArtifactError):  # it may have been stopped while it wrote the file
        reference = program_graphs.from_json((folder / LOWERED_GRAPHS).read_bytes())
    operators = operators_of(position, reference)
    failure = BuildFailure(position, ending, what, innermost_frames(output), reference, operators, note=note)
    return BuildFailureError(str(error), failure, hint=f"{HINT}; {error.hint}" if error.hint else HINT)


def operators_of(position: Position, reference: Reference | None) -> tuple[str, ...]:
    """The operators of the kernel whose code is generated, each once."""
    graph = None if reference is None else reference.graph(position.graph, position.function)
    if graph is None:
        return ()
    return tuple(dict.fromkeys(graph.by_name[name].target for name in position.nodes if name in graph.by_name))


def read_position(folder: Path) -> Position | None:
    """The part of Inductor that was last at work in a lowering; None if none that can be named was."""
    try:
        line = (folder / POSITION).read_bytes().partition(b"\n")[0]
    except FileNotFoundError:
        return None
    with contextlib.suppress(json_data.DamagedJsonError):  # its process ended while it was written
        return json_data.parse(Position, line) if line else None
    return None


def part_text(position: Position) -> str:
    """The part of a build in words: "lowering of aten.silu.default", "graph pass remove_noop_ops".

    Where code of several nodes was generated, it names all: "code generation of nodes relu, erf".
    """
    of = " of" if position.stage in (BuildStage.TRACING, BuildStage.LOWERING, BuildStage.CODE) else ""
    name = f"{of} {position.name}" if position.name else ""
    if position.stage is BuildStage.CODE and not position.name and position.nodes:
        name = f"{of} {nodes_text(position.nodes)}"
    return f"{position.stage.value}{name}{f' with {position.candidate}' if position.candidate else ''}"


def nodes_text(names: Sequence[str]) -> str:
    """ "node erf", "nodes relu, erf, sin, sub and 3 more"."""
    return f"node{'' if len(names) == 1 else 's'} {wording.join_truncated(names, _MAX_NODES)}"


def innermost_frames(text: str) -> tuple[str, ...]:
    """The frames of the last stack in a text, the innermost first: "ops.py:12 in apply", with whole paths.

    It understands the tracebacks of exceptions, and the stacks of the faulthandler module. Frames of aoti-debug are
    left out: they watch the build.
    """
    frames: list[str] = []
    is_innermost_first = False
    for line in text.splitlines():
        if line.strip(" |+") == _TRACEBACK or _STACK.match(line):
            frames, is_innermost_first = [], line.strip(" |+") != _TRACEBACK
        elif (match := _FRAME.match(line)) and not _lies_in(match["file"], _OWN):
            frames.append(f"{match['file']}:{match['line']} in {match['function']}")
    return tuple(frames[:_MAX_FRAMES] if is_innermost_first else frames[: -_MAX_FRAMES - 1 : -1])


def is_of_user(frame: str) -> bool:
    """True for a frame of a file that is neither of Python nor of an installed package."""
    file = frame.rpartition(":")[0]
    is_installed = "/site-packages/" in file or "/dist-packages/" in file or file.startswith("<")
    return not is_installed and not any(_lies_in(file, folder) for folder in (_OWN, *_INSTALLED))


def _lies_in(file: str, folder: Path) -> bool:
    """True for a file in a folder, whether or not links lead there."""
    return Path(file).is_relative_to(folder) or Path(file).resolve().is_relative_to(folder.resolve())

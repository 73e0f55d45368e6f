"""Writes the script of a failed build, and runs it once as proof."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.errors import UsageError
from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.base.machine import user_modules
from aoti_debug.base.machine.fork_server import python_process
from aoti_debug.base.machine.processes import child_process, tied_process
from aoti_debug.base.version import __version__
from aoti_debug.compare.fx_repro.input_text import input_text
from aoti_debug.compare.fx_repro.module_text import module_text
from aoti_debug.instrument.builder.compiling.failed_kernel import SOURCE, error_text
from aoti_debug.instrument.builder.options import BuildOptions
from aoti_debug.instrument.frontend.protocol.build_failure import (
    BuildFailure,
    Ending,
    Position,
    Stage,
    innermost_exception,
)
from aoti_debug.instrument.frontend.protocol.part_text import nodes_text, part_text
from aoti_debug.package.pt2.archive import Artifact
from aoti_debug.package.reference.program import NodeKind, Reference
from aoti_debug.triage.build_failures.failing_part import calls_of, device_of, input_of, region_of
from aoti_debug.triage.build_failures.script_text import (
    SCRIPT,
    Given,
    Surroundings,
    compiler_text,
    loading_text,
    script_text,
)

BUILD_REPRO = "build_failure"  # the beginning of the names of the repros of builds that fail
STARTING = 120.0  # seconds that a script may take beyond the limit of the build, to import torch and to export
MOST = 600.0  # seconds that a script may take


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
    seconds = min(options.timeout + STARTING, MOST)
    command = [sys.executable, str(script)]
    try:
        ended = tied_process.run(
            command, timeout=seconds, stderr=subprocess.STDOUT, environment=_environment(os.environ)
        )
    except subprocess.TimeoutExpired:
        return Replay(folder, f"no end within {seconds:g} s", failure.ending is Ending.TIMEOUT, failure.position)
    return Replay(folder, *outcome(failure, ended.code, ended.stdout), failure.position)


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
    is_of_graph = bool(position.node) or position.stage in (Stage.PASS, Stage.CODE)
    if failure.reference is None or not is_of_graph:
        raise UsageError(f"no script is written of the stage {position.stage.value}")
    around = Surroundings(
        configs=options.inductor_configs,
        folders=user_modules.folders_of(options.imports),
        imports=options.imports,
        libraries=options.library_paths,
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
    given = Given(
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

"""Writes the script of a failed build, and runs it once as proof."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import aoti_debug
from aoti_debug import wording
from aoti_debug.builder.options import BuildOptions
from aoti_debug.errors import UsageError
from aoti_debug.frontend.build_failure import BuildFailure, Ending, Stage, innermost_exception
from aoti_debug.fx_repro.input_text import input_text
from aoti_debug.fx_repro.module_text import module_text
from aoti_debug.machine import process, python_process, user_modules
from aoti_debug.triage.build_failures.part import device_of, input_of, region_of
from aoti_debug.triage.build_failures.script_text import SCRIPT, Surroundings, script_text

SECONDS = 600.0  # that a script may take that does not hang


@dataclass(frozen=True)
class Replay:
    """A script that fails as a build did, and its proof.

    Attributes:
        folder: with the script; None where there is none.
        what: how running it ended, one line; the reason why there is none.
        is_same: it failed in the same way.
    """

    folder: Path | None
    what: str
    is_same: bool = False


def replay(failure: BuildFailure, options: BuildOptions, folder: Path) -> Replay:
    """Writes the script of a failure into a new folder and runs it.

    Args:
        options: of the build that failed.
    """
    try:
        text = _text(failure, options)
    except (UsageError, LookupError) as error:
        return Replay(None, f"no repro: {error}")
    folder.mkdir(parents=True)
    script = folder / SCRIPT
    script.write_text(text, encoding="utf-8")
    seconds = min(options.timeout, SECONDS)
    command = [sys.executable, str(script)]
    try:
        with process.Child(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, environment=_environment(os.environ)
        ) as child:
            ended = process.finished(child, seconds)
    except subprocess.TimeoutExpired:
        return Replay(folder, f"no end within {seconds:g} s", failure.ending is Ending.TIMEOUT)
    return Replay(folder, *outcome(failure, ended.code, ended.stdout))


def outcome(failure: BuildFailure, code: int, output: str) -> tuple[str, bool]:
    """The end of a script in one line, and if that is how the build failed."""
    if code == 0:
        return "it compiles", False
    if failure.ending is not Ending.EXCEPTION:
        ended = process.describe_exit(code)
        return ended, ended == failure.what
    raised = [innermost_exception(line) for line in output.splitlines() if line and not line.startswith(" ")]
    if failure.what in raised:
        return failure.what, True
    return (raised[-1] if raised else process.describe_exit(code)), False


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables of the script: its modules are where those of the build were."""
    return {"TORCHINDUCTOR_COMPILE_THREADS": "1", **python_process.environment(variables)}


def _text(failure: BuildFailure, options: BuildOptions) -> str:
    """The script.

    Raises:
        UsageError, LookupError: it cannot be written.
    """
    position, reference = failure.position, failure.reference
    if position.stage is not Stage.LOWERING or reference is None:
        raise UsageError(f"no script is written of the stage {position.stage.value}")
    graph = reference.graph(position.graph, position.function)
    if graph is None or position.node not in graph.by_name:
        raise UsageError(f"the graph of node {position.node} was not recorded")
    region = region_of(graph, position.node)
    module = module_text(reference, graph, region)
    device = device_of(graph, region)
    inputs = {
        name: input_text(input_of(graph, key.node, region.symbols), device) for name, key in module.inputs.items()
    }
    around = Surroundings(
        configs=options.inductor_configs,
        folders=user_modules.folders_of(options.imports),
        imports=options.imports,
        libraries=options.library_paths,
    )
    return script_text(_header(failure, reference.torch_version), module, inputs, device, around)


def _header(failure: BuildFailure, torch_version: str) -> list[str]:
    position = failure.position
    return [
        f"The {position.stage.value} of {position.name} alone.",
        f"In the build it ended so: {wording.first_line(failure.what)}",
        f"written by  aoti-debug {aoti_debug.__version__}, torch {torch_version}",
        f"node        {position.node} of the graph that Inductor lowers, with its dtypes, shapes and strides",
        'It prints "it compiles" and exits with 0 where nothing fails.',
    ]

"""Command lines that continue the diagnosis of a run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from aoti_debug.base.abi import Variable
from aoti_debug.runs.rundir import recorded_runs
from aoti_debug.runs.rundir.run_directory import PACKAGE, RunDir
from aoti_debug.runs.rundir.run_json import EMBEDDED, RunInfo
from aoti_debug.runs.rundir.timeline import Launch


def run_again(info: RunInfo, *, level: int | None = None, environment: Mapping[str, str] | None = None) -> str:
    """The command that repeats a run, at another level or with other environment variables."""
    words, variables = list(info.command), dict(environment or {})
    if level is not None and info.host == "embedded":
        variables[Variable.LEVEL.value] = str(level)
    elif level is not None:
        words = [*_without_option(words, "--level"), "--level", str(level)]
    return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in variables.items()), shlex.join(words)])


def repro(run: RunDir, launch: Launch) -> str:
    """The command that writes a repro of a launch."""
    return shlex.join(["aoti-debug", "repro", launch.kernel, "--launch", launch.id, *_reference(run)])


def why_nonfinite(run: RunDir) -> tuple[str, ...]:
    """The commands that say why outputs are not finite: a triage of the package with the inputs of the run."""
    info = run.info
    if run.package is None or info.host == EMBEDDED:
        return (show(run),)
    words = ["aoti-debug", "triage", _path(run.package)]
    words += ["--inputs", _path(run.inputs)] if run.inputs is not None else []
    words += [word for module in info.imports for word in ("--import", module)]
    words += [word for path in info.libraries for word in ("--load-library", path)]
    return (shlex.join(words),)


def show(run: RunDir, subject: str = "") -> str:
    """The command that shows a run, or a launch or kernel of it."""
    return shlex.join(["aoti-debug", "show", *([subject] if subject else []), *_reference(run)])


def show_newest(subject: str) -> str:
    """The command that shows a launch or kernel of the newest run."""
    return shlex.join(["aoti-debug", "show", subject])


def summaries(run: RunDir) -> str:
    """The command that shows the summaries of a run."""
    return shlex.join(["aoti-debug", "summaries", *_reference(run)[1:]])


def package(run: RunDir) -> str:
    """The package that was run, as a word of a command: where the run's link leads, else that of its command line."""
    link = run.path / PACKAGE
    if link.is_symlink():
        return shlex.quote(str(link.readlink()).removeprefix(f"{Path.cwd()}/"))
    return shlex.quote(next((word for word in run.info.command if word.endswith(".pt2")), "PACKAGE.pt2"))


def _path(path: Path) -> str:
    """A path, relative if it lies below the current directory."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _reference(run: RunDir) -> list[str]:
    """The words `--run DIR`; none for the newest run, which is the default."""
    newest = recorded_runs.newest()
    return [] if newest is not None and newest.run == run.path.resolve() else ["--run", str(run.path)]


def _without_option(words: list[str], option: str) -> list[str]:
    kept: list[str] = []
    skip = False
    for word in words:
        if not skip and word != option:
            kept.append(word)
        skip = not skip and word == option
    return kept

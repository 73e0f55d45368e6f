"""Command lines to type next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from aoti_debug.abi import Variable
from aoti_debug.machine.stamped_directories import LATEST
from aoti_debug.rundir.run_directory import RunDir, base_directory
from aoti_debug.rundir.run_json import RunInfo
from aoti_debug.rundir.timeline import Launch


def again(info: RunInfo, *, level: int | None = None, environment: Mapping[str, str] | None = None) -> str:
    """The run once more, at another level or with other variables."""
    words, variables = list(info.command), dict(environment or {})
    if level is not None and info.host == "embedded":
        variables[Variable.LEVEL.value] = str(level)
    elif level is not None:
        words = [*_without_option(words, "--level"), "--level", str(level)]
    return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in variables.items()), shlex.join(words)])


def repro(run: RunDir, launch: Launch) -> str:
    return shlex.join(["aoti-debug", "repro", launch.kernel, "--launch", launch.id, *_reference(run)])


def show(run: RunDir, what: str = "") -> str:
    return shlex.join(["aoti-debug", "show", *([what] if what else []), *_reference(run)])


def show_newest(what: str) -> str:
    return shlex.join(["aoti-debug", "show", what])


def _reference(run: RunDir) -> list[str]:
    """`--run DIR`, unless it is the run that is taken without."""
    latest = base_directory() / LATEST
    return [] if latest.exists() and latest.resolve() == run.path else ["--run", str(run.path)]


def _without_option(words: list[str], option: str) -> list[str]:
    kept: list[str] = []
    skip = False
    for word in words:
        if not skip and word != option:
            kept.append(word)
        skip = not skip and word == option
    return kept

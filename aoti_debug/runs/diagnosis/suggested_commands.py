"""Command lines that continue the diagnosis of a run."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.abi import Phase, SaveStatus, Variable
from aoti_debug.package.launch_traits import traits_of
from aoti_debug.package.manifest import Role
from aoti_debug.runs.rundir import recorded_runs
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import GPU_CORE, PACKAGE, RunDir
from aoti_debug.runs.rundir.run_json import EMBEDDED

_FED = ("ipykernel", "multiprocessing.", "execnet", "sys.stdin")  # in the command of what another process tells to do
_LEVEL = "--level"
_EXEC = ["aoti-debug", "exec", _LEVEL]  # a script that was recorded at a level which its command names
_INTERPRETERS = ("python", "ipython", "jupyter")


def run_again(
    run: RunDir, *, level: int | None = None, environment: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """The command that repeats a run, at another level or with other environment variables.

    None for a run of somebody else, and for a process that no command line starts again: a notebook, a worker.
    """
    info = run.info
    if not run.is_made_here or not _can_be_typed(info.command):
        return ()
    words, variables = list(info.command), dict(environment or {})
    if level is not None and info.host == EMBEDDED and words[: len(_EXEC)] != _EXEC:
        variables[Variable.LEVEL.value] = str(level)
    elif level is not None:
        words = _at_level(words, str(level))
    return (" ".join([*(f"{name}={shlex.quote(value)}" for name, value in variables.items()), shlex.join(words)]),)


def _can_be_typed(command: Sequence[str]) -> bool:
    if not command or any(text in word for word in command for text in _FED):
        return False
    is_interpreter = Path(command[0]).name.startswith(_INTERPRETERS)
    return not is_interpreter or any(word in ("-c", "-m") or not word.startswith("-") for word in command[1:])


def repro(run: RunDir, launch: Launch) -> str:
    """The command that writes a repro of a launch."""
    return shlex.join(["aoti-debug", "repro", launch.kernel, "--launch", launch.id, *_reference(run)])


def why_nonfinite(run: RunDir) -> tuple[str, ...]:
    """The commands that say why outputs are not finite: a triage of the package with the inputs of the run."""
    if run.package is None or run.info.host == EMBEDDED or not run.is_made_here:
        return (show(run),)
    return (triage(run, run.package),)


def triage(run: RunDir, model: Path) -> str:
    """The command that triages a model with the inputs, the calls, the modules and the libraries of a run."""
    return shlex.join(["aoti-debug", "triage", word_of(model), *options_of(run)])


def bisect_settings(program: Path, options: Iterable[str]) -> str:
    """The command that looks for the setting, pass or lowering which makes a program wrong.

    Args:
        options: words that say how it is called: of `options_of`, or of a triage.
    """
    return shlex.join(["aoti-debug", "bisect", word_of(program), "--settings", *options])


def options_of(run: RunDir) -> tuple[str, ...]:
    """The options with which a command calls a model as a run has called it."""
    return calling(run.inputs, run.info.calls, run.info.imports, run.info.libraries)


def calling(
    inputs: Path | None, calls: int, imports: Iterable[str], libraries: Iterable[Path | str]
) -> tuple[str, ...]:
    """The options with which a command calls a model with these inputs so often, with the user's own operators."""
    words = [] if inputs is None else ["--inputs", word_of(inputs)]
    words += [word for module in imports for word in ("--import", module)]
    words += [word for path in libraries for word in ("--load-library", word_of(path))]
    return (*words, *(("--calls", str(calls)) if calls > 1 else ()))


def gpu_core(run: RunDir) -> tuple[str, ...]:
    """The command that reads the core dump of the GPU in a run directory; none without one."""
    path = run.path / GPU_CORE
    return (shlex.join(["aoti-debug", "triage", word_of(path)]),) if path.exists() else ()


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
        return shlex.quote(wording.short_path(link.readlink()))
    named = next((word for word in run.info.command if word.endswith(".pt2")), "")
    return shlex.quote(named or ("PACKAGE.pt2" if run.package is None else word_of(run.package)))


def word_of(path: Path | str) -> str:
    """A word of a command: a path is relative if it lies below the current directory."""
    return path if isinstance(path, str) else wording.short_path(path)


def _reference(run: RunDir) -> list[str]:
    """The words `--run DIR`; none for the newest run, which is the default."""
    newest = recorded_runs.newest()
    return [] if newest is not None and newest.run == run.path.resolve() else ["--run", word_of(run.path)]


def _at_level(words: list[str], level: str) -> list[str]:
    """The words of a command at another level. The option stays in place: what follows a script is the script's."""
    if _LEVEL not in words:
        return [*words, _LEVEL, level]
    position = words.index(_LEVEL) + 1
    return [*words[:position], level, *words[position + 1 :]]


def after_failure(run: RunDir, suspects: Sequence[Launch], narrow: str, *, level: int) -> tuple[str, ...]:
    """Commands that can work: of a run of somebody else, or of a process that cannot be started again, they show it.

    Args:
        suspects: the failure came from one of these launches.
        narrow: the environment variable with which another run has fewer of them; "": none does.
        level: of another run, where no launch is known: one whose records may say more.
    """
    shown = tuple(show(run, launch.id) for launch in suspects[:3])
    if run.level == 0:
        return run_again(run, level=3) or (show(run),)
    if narrow:
        return run_again(run, environment={narrow: "1"}) or shown
    if not suspects:
        again = run_again(run, level=level) if run.level != level else ()
        return again or (show(run),)
    first = suspects[0]
    if run.manifest.without_source:
        return shown
    environment: dict[str, str] = {}
    if len(suspects) == 1 and traits_of(first.site.kind).replay:
        if run.is_made_here and (_has_inputs(first) or run.can_be_repeated):
            return (repro(run, first),)
        environment = {Variable.LAUNCH.value: first.id}
    elif run.level == 1:
        return shown
    again = run_again(run, level=1, environment=environment)
    return (*again, show_newest(first.id)) if again else shown


def _has_inputs(launch: Launch) -> bool:
    """True if every tensor that a launch may have read was saved before it."""
    read = (argument for argument in launch.args if argument.tensor is not None and argument.role is not Role.OUT)
    saved = (argument.files.get(Phase.BEFORE) for argument in read)
    return all(file is not None and file.status is not SaveStatus.SKIPPED for file in saved)

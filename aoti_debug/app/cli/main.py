"""`aoti-debug`: runs a command from its own module, and turns errors into text and exit codes."""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import shlex
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aoti_debug.app.cli.lines import print_lines, wants_no_colour
from aoti_debug.base import abi, wording
from aoti_debug.base.errors import AotiDebugError, ArtifactError, InternalError, TargetError
from aoti_debug.base.machine.files import stamped_directories
from aoti_debug.base.terminal_cells import UNLIMITED

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

VERBS = {
    "triage": "Find out why a model crashes, hangs or computes NaN.",
    "compare": "Compare every kernel launch with what the program says.",
    "diff": "Compare two runs: the first launch that reads the same bytes and writes others.",
    "invariance": "Compare a sample alone with the same sample in a batch, bit for bit.",
    "replay": "Run again with results of launches replaced: do the outputs match eager again?",
    "precision": "Round modules to bfloat16, float16 or float8: which ones have to stay as they are?",
    "bisect": "Find the launches, or the settings, that make a model wrong.",
    "equal": "Find what makes a package equal to eager, bit for bit, and what that costs.",
    "minify": "Find the smallest part of a program that still shows its fault, as a script.",
    "build": "Make an instrumented package of an exported or compiled model.",
    "run": "Run an instrumented package and record every kernel launch.",
    "exec": "Run an unmodified script and record the packages that it loads.",
    "attach": "Change what a running process records, without a restart.",
    "top": "Show what the packages of a running process do: rates, newest launch, first NaN.",
    "show": "Show what a run recorded: all launches, or one in full.",
    "memory": "Show the peak of a model's memory, and which buffers make it.",
    "profile": "Show where the time goes, launch by launch, and how close each is to the machine's limits.",
    "summaries": "Show statistics over the calls of a run: tables, curves, drift.",
    "repro": "Write a script that replays one kernel launch alone.",
    "report": "Write an HTML page that shows a run or a triage.",
    "ui": "Serve one local page over all results: search, open one, compare two.",
    "bundle": "Pack a run or a triage into one archive to send.",
    "list": "List what commands have made, and what it takes on the disk.",
    "clean": "Delete what commands have made, and the cache.",
    "doctor": "Check that this machine can build, run and debug models.",
    "guide": "Print one page for coding agents: questions and commands, JSON, exit codes.",
}
# Their processes are forked from one that imports torch while this one imports the command.
_RUN_MODELS = frozenset({"triage", "compare", "diff", "invariance", "precision", "profile"})
_MODEL, _SCRIPT = ".pt2", ".py"
_FOR_FILES = {_MODEL: "build", _SCRIPT: "triage"}
_RUN_SCRIPTS = ("exec", "triage")
_USER_MODULE = "--import"  # their fork server imports it as well
INTERRUPTED = 130
CLOSED_PIPE = 141  # 128 and SIGPIPE: what a shell says of a program that a closed pipe has ended


class Verbs(click.Group):
    """The group of all commands; each is the object `command` of the module of its name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the help."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name; its module is imported now."""
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"aoti_debug.app.cli.commands.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the arguments name; a file in its place gets a hint."""
        ctx.obj = tuple(args)  # for hints that repeat the command line
        _refuse_script(args)
        if _imports_torch(args) and not _only_describes(ctx, args):
            _import_torch(ctx)
        try:
            name, found, rest = super().resolve_command(ctx, args)
        except click.UsageError as error:
            command = _FOR_FILES.get(Path(args[0]).suffix)
            if command is not None:
                raise click.UsageError(f"no command is given; perhaps: aoti-debug {command} {args[0]}", ctx) from error
            similar = _similar_command(args[0])
            if similar:
                line = shlex.join(["aoti-debug", similar, *args[1:]])
                raise click.UsageError(f"there is no command {args[0]}; perhaps: {line}", ctx) from error
            raise click.UsageError(f"there is no command {args[0]}", ctx) from error
        if name is not None and found is not None and not _only_describes(ctx, args) and _has_project():
            from aoti_debug.app.cli.project_defaults import defaults_of  # most projects have no such table

            ctx.default_map = {name: defaults_of(found, name, VERBS)}
        return name, found, rest

    def make_context(self, *args: Any, **keywords: Any) -> click.Context:
        """The context of a command line; `--version` and the help are printed here."""
        with _closed_pipes():
            return super().make_context(*args, **keywords)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command."""
        with _closed_pipes():
            return super().invoke(ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands that begin like that, without importing them; else the options."""
        from click.shell_completion import CompletionItem  # only a completion needs it

        found = [CompletionItem(name, help=text) for name, text in VERBS.items() if name.startswith(incomplete)]
        return found or click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the list of commands into the help, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


class ClosedPipe(Exception):  # noqa: N818 - no error of the command
    """Nobody reads the output any more: `aoti-debug show | head`."""


@contextlib.contextmanager
def _closed_pipes() -> Iterator[None]:
    """Tells a closed output from a bug: click would exit with the code of a finding.

    Raises:
        ClosedPipe: nobody reads the output any more.
        InternalError: the pipe leads to another process.
    """
    try:
        yield
    except BrokenPipeError as error:
        raise (ClosedPipe() if _has_closed_output() else InternalError(f"a process has gone: {error}")) from error


def _has_closed_output() -> bool:
    """True if stdout or stderr is a pipe whose other end is closed."""
    poll = select.poll()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # it is no file
            poll.register(stream.fileno(), 0)
    return any(events & select.POLLERR for _, events in poll.poll(0))


def _similar_command(name: str) -> str:
    """The command that is most similar to a name, or begins with it; "" if none is."""
    import difflib  # only an error needs it

    beginning = [verb for verb in VERBS if name and verb.startswith(name)]
    return next(iter([*difflib.get_close_matches(name, VERBS, n=1), *beginning]), "")


def _refuse_script(arguments: Sequence[str]) -> None:
    """Raises ArtifactError if a script is an argument of a command that takes none."""
    name, *words = arguments
    if name not in VERBS or name in _RUN_SCRIPTS:
        return
    for before, word in zip([name, *words], words, strict=False):
        if word.endswith(_SCRIPT) and not before.startswith("-") and Path(word).is_file():
            raise ArtifactError(
                f"{word} is a Python script: {name} takes none", hint=f"aoti-debug triage {shlex.quote(word)}"
            )


def _has_project() -> bool:
    """True if the working directory, or one above it, has a pyproject.toml."""
    return any((folder / "pyproject.toml").is_file() for folder in (Path.cwd(), *Path.cwd().parents))


def _imports_torch(arguments: Sequence[str]) -> bool:
    """True if the command starts processes from a fork server that imports torch and nothing of the user's."""
    if arguments[0] == "run":
        return True
    runs_model = arguments[0] in _RUN_MODELS and any(word.endswith(_MODEL) for word in arguments)
    return runs_model and not any(word.startswith(_USER_MODULE) for word in arguments)


def _only_describes(context: click.Context, arguments: Sequence[str]) -> bool:
    """True if the command prints its help, or a shell asks how an argument may go on."""
    return context.resilient_parsing or not set(arguments).isdisjoint(context.help_option_names)


def _import_torch(context: click.Context) -> None:
    """Starts the fork server of a command's processes; it ends with the context."""
    from aoti_debug.base.machine.processes import python_process
    from aoti_debug.runs.run.protocol import PRELOADED

    context.with_resource(python_process.forking_from(PRELOADED)).preload()


def _print_version(context: click.Context, parameter: click.Parameter, asked: object) -> None:
    if asked:
        from aoti_debug.base.version import __version__  # a file is read for it

        click.echo(f"aoti-debug, version {__version__}")
        context.exit()


@click.group(
    cls=Verbs,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 clean, 1 a finding, 2 wrong usage, 3 unusable .pt2 or inputs file, 4 toolchain, "
    "5 the model never started, 6 unreadable run directory, 7 nothing confirmed, 8 clean as far as compared, "
    "70 a bug of aoti-debug, 130 interrupted, 141 nobody reads the output any more.",
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Show the version and exit.",
)
@click.pass_context
def group(context: click.Context) -> None:
    """Debugger for PyTorch AOTInductor models.

    \b
    aoti-debug triage model.pt2            # why it crashes, hangs or computes NaN
    aoti-debug triage serve.py             # the same of the model of a script
    aoti-debug exec serve.py               # runs a script, records its packages
    aoti-debug build model.pt2             # writes model.instrumented.pt2
    aoti-debug run model.instrumented.pt2  # runs it; a crash names its launch
    aoti-debug show                        # every launch, with its tensors
    aoti-debug repro KERNEL                # a script that replays one launch
    """
    if wants_no_colour():
        context.color = False
    print_lines(abi.unknown_variables(os.environ), err=True)
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code; errors are printed on stderr."""
    with stamped_directories.noting() as made:
        try:
            return _run(arguments)
        except (click.Abort, KeyboardInterrupt):
            print_lines(interrupted_lines(made), err=True)
            return INTERRUPTED


def interrupted_lines(made: Sequence[Path]) -> list[str]:
    """The lines after Ctrl-C: that the command was interrupted, and which of its directories are kept.

    Args:
        made: the directories that the command has made; some may be gone.
    """
    kept = [path for path in made if path.is_dir()]
    outermost = [path for path in kept if not any(other in path.parents for other in kept)]
    if not outermost:
        return ["interrupted: nothing is kept"]
    return ["interrupted", *(line for path in outermost for line in _kept(path))]


def _kept(path: Path) -> list[str]:
    from aoti_debug.runs.diagnosis import suggested_commands  # only an interrupt reads runs
    from aoti_debug.runs.rundir import run_directory
    from aoti_debug.runs.show.calls_and_replays import calls_text

    try:
        run = run_directory.open_run(path)
    except AotiDebugError:  # it is no run
        return [f"kept: {wording.short_path(path)}"]
    recorded = f"{wording.pluralize(len(run.launches), 'launch')} in {calls_text(run)}"
    return [f"kept: {wording.short_path(path)}, {recorded}", f"next: {suggested_commands.show(run)}"]


def _run(arguments: Sequence[str] | None) -> int:
    """Runs the command line and returns its exit code; an interrupt passes through.

    Raises:
        click.Abort, KeyboardInterrupt: it was interrupted.
    """
    try:
        code: Any = group.main(args=arguments, prog_name="aoti-debug", standalone_mode=False)
    except click.ClickException as error:
        from aoti_debug.app.cli import project_defaults  # only an error needs it

        place = f"{project_defaults.nearest()}: " if project_defaults.is_source(error) else ""
        _print_error(f"{place}{error.format_message()}", _usage_hint(error))
        return error.exit_code
    except click.Abort:
        raise
    except ClosedPipe:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left is flushed at exit
        return CLOSED_PIPE
    except AotiDebugError as error:
        from aoti_debug.base.machine.exhaustion import advice, exhausted  # only an error needs it

        _print_error(str(error), error.hint or advice(error))
        return error.exit_code if exhausted(error) is None else TargetError.exit_code
    except Exception as error:  # noqa: BLE001 - the one place where a bug becomes text
        from zipfile import BadZipFile  # it hides an error of reading an archive

        from aoti_debug.base.machine.exhaustion import advice, exhausted, refusal, system_text

        lack = exhausted(error)
        if lack is not None:
            _print_error(lack.text, lack.hint)
            return TargetError.exit_code
        if isinstance(error, OSError | BadZipFile) and (refused := refusal(error)):  # the system's refusal, no bug
            _print_error(system_text(refused), advice(refused))
            return TargetError.exit_code
        _print_error(
            f"a bug in aoti-debug: {type(error).__name__}: {error} ({_place(error)})",
            "please report this with the lines below",
        )
        traceback.print_exception(error, file=sys.stderr)
        return InternalError.exit_code
    return code if isinstance(code, int) else 0


def main() -> None:
    """The console script. On SIGTERM, child processes are ended and temporary files deleted before it exits."""
    signal.signal(signal.SIGTERM, _terminate)
    sys.exit(run())


def _terminate(number: int, _: object) -> None:
    sys.exit(128 + number)


def _print_error(message: str, hint: str) -> None:
    """Prints both on stderr; in a pipe, where a program may read them, in a line each."""
    columns = None if sys.stderr.isatty() else UNLIMITED
    for label, text in (("error", message), ("hint", hint)):
        if text:
            print_lines(wording.printable_lines(f"{label}: {text}").split("\n"), err=True, columns=columns)


def _place(error: BaseException) -> str:
    """File and line of the innermost frame in aoti_debug outside of this module; without one, of any."""
    frames = traceback.extract_tb(error.__traceback__)
    package = Path(__file__).parents[2]
    own = [frame for frame in frames if package in Path(frame.filename).parents and frame.filename != __file__]
    frame = (own or frames)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"


def _usage_hint(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"{context.command_path} --help" if context else ""


if __name__ == "__main__":
    main()

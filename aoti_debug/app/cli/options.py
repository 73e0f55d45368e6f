"""Options that several commands share, with the types of their values; those of `show` as data."""

from __future__ import annotations

import ast
import functools
import importlib
import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from aoti_debug.app.cli.lines import width
from aoti_debug.base import abi
from aoti_debug.base.errors import UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.base.terminal_cells import UNLIMITED
from aoti_debug.compare.modules import PartedBy
from aoti_debug.package import recording_settings

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem  # only a completion needs it


def filters(text: str) -> Callable[[_Command], _Command]:
    """--filter of launches by their kernels; the text is its help."""
    return click.option("--filter", "filters", metavar="PATTERN", multiple=True, help=f"{text} Repeatable.")


def modules_and_lines(what: str) -> Callable[[_Command], _Command]:
    """The options --module and --line.

    Args:
        what: what is done to the launches that match: "Print and save only launches".
    """

    def add(command: _Command) -> _Command:
        line = click.option(
            "--line",
            "lines",
            metavar="FILE:LINE",
            multiple=True,
            help=f"{what} that come from this line of the model: 'model.py:23', '!layers.py:*'. Repeatable.",
        )
        module = click.option(
            "--module",
            "modules",
            metavar="PATTERN",
            multiple=True,
            help=f"{what} of modules whose path matches: 'encoder.layers.0', '!*.norm?'. Repeatable.",
        )
        return module(line(command))

    return add


_Command = TypeVar("_Command", bound=Callable[..., Any])

_LONGEST_NAME = 255  # bytes
_WORDS = {"true": True, "false": False, "none": None}


class FilePath(click.Path):
    """The path of a file or a directory, as a `Path`; it need not exist."""

    def __init__(self, *, file_okay: bool = True, dir_okay: bool = True) -> None:
        super().__init__(file_okay=file_okay, dir_okay=dir_okay, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path; a name that no file can have is wrong usage."""
        parts = os.fsencode(value).split(b"/")
        if any(len(part) > _LONGEST_NAME for part in parts):
            self.fail(f"{str(value)[:40]}… is too long for the name of a file", param, ctx)
        if b"\0" in os.fsencode(value):
            self.fail("the name of a file has no null character", param, ctx)
        return super().convert(value, param, ctx)


class LevelType(click.ParamType):  # type: ignore[type-arg]
    """A recording level, as its number."""

    name = "level"

    def __init__(self, allowed: Sequence[abi.Level] = recording_settings.LEVELS) -> None:
        self._allowed = allowed

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number of the level."""
        try:
            return recording_settings.level_number(value, self._allowed)
        except UsageError as error:
            self.fail(str(error), param, ctx)


class Seconds(click.FloatRange):
    """A number of seconds greater than 0."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; NaN, which would be no limit, is wrong usage."""
        number = super().convert(value, param, ctx)
        if number != number:
            self.fail(f"{value} is not a number of seconds", param, ctx)
        return number


def count(name: str, text: str, *, default: int, least: int = 1) -> Callable[[_Command], _Command]:
    """An option that is a number from `least` on; the text is its help."""
    return click.option(
        name, metavar="N", type=click.IntRange(min=least), default=default, show_default=True, help=text
    )


def seconds(name: str, text: str, *, default: float) -> Callable[[_Command], _Command]:
    """An option that is a time; the text is its help."""
    return click.option(name, metavar="SECONDS", type=Seconds(), default=default, show_default=True, help=text)


_imports = click.option(
    "--import",
    "imports",
    metavar="MODULE",
    multiple=True,
    help="Import this module first: it registers custom operators. Repeatable.",
)
_libraries = click.option(
    "--load-library",
    "libraries",
    metavar="PATH",
    type=FilePath(),
    multiple=True,
    help="Load this library of custom operators first. Repeatable.",
)
inductor_configs = click.option(
    "--inductor-config",
    "configs",
    metavar="KEY=VALUE",
    multiple=True,
    help="A setting of torch._inductor.config, such as max_autotune=True. Repeatable.",
)
calls = count("--calls", "How many times to call the model.", default=1)
depth = click.option(
    "--depth",
    metavar="N",
    type=click.IntRange(min=1),
    help="Names in the paths of modules: 2 for encoder.layers.  [default: as many as there are]",
)
trust = click.option(
    "--trust",
    "trusted",
    is_flag=True,
    help="Run code from a package or run that was not built on this account.",
)
timings = click.option("--timings", is_flag=True, help="Also say where the time went.")
exported = click.option(
    "--exported",
    metavar="PROGRAM.pt2",
    type=FilePath(),
    help="Of a compiled package: the exported program that it came from; supplies model lines.",
)
model_name = click.option(
    "--model", "name", metavar="NAME", default="", help="Which model of a compiled package that holds several."
)
guards = click.option("--guards", is_flag=True, help="Also look for out-of-bounds writes and uninitialised reads.")


def by(text: str, default: PartedBy) -> Callable[[_Command], _Command]:
    """--by: modules or launches; the text is its help."""
    choices = click.Choice([choice.value for choice in PartedBy])
    return click.option("--by", type=choices, default=default.value, show_default=True, help=text)


def completing(what: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """A function that finds what a shell offers for a parameter while it is typed.

    Args:
        what: the function of `completion` that finds it.
    """

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        completion = importlib.import_module("aoti_debug.app.cli.completion")  # a command line that is run does without
        found: list[CompletionItem] = getattr(completion, what)(context, parameter, incomplete)
        return found

    return complete


run = click.option(
    "--run",
    "run",
    metavar="DIR",
    help="A run directory, or its name.  [default: the newest run]",
    shell_complete=completing("runs"),
)
wide = click.option(
    "--wide",
    "columns",
    is_flag=True,
    callback=lambda context, parameter, asked: UNLIMITED if asked else width(),
    help="Show names in full, on lines as long as they need.",
)


def user_code(command: Callable[..., Any]) -> Callable[..., Any]:
    """--import, --load-library and --trust; the command takes them as one `user_code`."""

    @functools.wraps(command)
    def with_user_code(
        *args: Any, imports: tuple[str, ...], libraries: tuple[Path, ...], trusted: bool, **others: Any
    ) -> Any:
        return command(*args, user_code=UserCode(imports, libraries, trusted), **others)

    for option in (trust, _libraries, _imports):
        option(with_user_code)
    return with_user_code


def inputs(default: str, *, whose: str = "") -> Callable[[_Command], _Command]:
    """--inputs of a command that runs models.

    Args:
        default: which inputs are taken without it, in words.
        whose: " for both models"; empty where there is one model.
    """
    return click.option(
        "--inputs",
        metavar="FILE",
        type=FilePath(),
        help=f"Inputs{whose} (.pt or .safetensors).  [default: {default}]",
    )


def random_inputs(note: str = "") -> Callable[[_Command], _Command]:
    """--random-inputs; the note is a further sentence of its help."""
    return click.option(
        "--random-inputs",
        metavar="SEED",
        type=int,
        help=f"Generate inputs that fit the model, for a first look.{note}",
    )


def hang_timeout(text: str) -> Callable[[_Command], _Command]:
    """--timeout or --stall: seconds without progress after which a model hangs; the text is its help."""
    return click.option(
        "--timeout", "--stall", "stall", metavar="SECONDS", type=Seconds(), default=60.0, show_default=True, help=text
    )


def limits(start: str, calls: str) -> Callable[[_Command], _Command]:
    """--timeout and --stall of a command that runs a process once.

    Args:
        start: from when the time limit counts, in words.
        calls: what makes no progress, in words, as the beginning of a clause.
    """
    timeout = click.option(
        "--timeout", metavar="SECONDS", type=float, help=f"Kill the process this long after {start}."
    )
    stall = click.option(
        "--stall",
        metavar="SECONDS",
        type=float,
        help=f"Kill the process when {calls} for this long, and show where it hangs.",
    )
    return lambda command: timeout(stall(command))


def json_output(schema: str, note: str = "") -> Callable[[_Command], _Command]:
    """--json of a command that prints one object.

    Args:
        schema: the name that `aoti-debug guide --json-schema` knows the schema of the object by.
        note: a further sentence of its help.
    """
    described = f"Print one JSON object; its schema: aoti-debug guide --json-schema {schema}."
    return click.option("--json", "as_json", is_flag=True, help=f"{described}{note}")


def page_output(text: str) -> Callable[[_Command], _Command]:
    """-o of a command that writes an HTML page; the text is its help."""
    return click.option("-o", "--output", metavar="FILE", type=FilePath(dir_okay=False), help=text)


def given(context: click.Context) -> dict[str, str]:
    """The options and arguments that the command line has: how each is written, by the name of its parameter."""
    return {
        parameter.name: parameter.opts[0]
        for parameter in context.command.params
        if parameter.name and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
    }


def again_with(*words: str) -> str:
    """The command line that the user has typed, with further words: a hint that can be pasted."""
    context = click.get_current_context()
    typed = context.find_root().obj or ()
    return shlex.join([*(("aoti-debug", *typed) if typed else context.command_path.split()), *words])


def parse_configs(configs: Sequence[str]) -> dict[str, Any]:
    """Parses settings `KEY=VALUE`; a value is a Python literal, true, false, none, or else a string.

    Raises:
        UsageError: one has no "=".
    """
    parsed: dict[str, Any] = {}
    for config in configs:
        key, equals, value = config.partition("=")
        if not equals or not key:
            raise UsageError(f"--inductor-config {config} is not KEY=VALUE", hint="--inductor-config max_autotune=True")
        try:
            parsed[key.strip()] = _WORDS[value.lower()] if value.lower() in _WORDS else ast.literal_eval(value)
        except (ValueError, SyntaxError):
            parsed[key.strip()] = value
    return parsed


def out(kind: ResultKind, what: str) -> Callable[[_Command], _Command]:
    """--out of a command that makes a directory.

    Args:
        kind: of the directory; in its folder it is made by default.
        what: "the comparison".
    """
    return click.option(
        "--out",
        metavar="DIR",
        type=FilePath(file_okay=False),
        default=kind.place,
        show_default=kind.default,
        help=f"Where the directory of {what} is made.",
    )


def opens(text: str = "Open the page in the browser.") -> Callable[[_Command], _Command]:
    """--open, as `opens`; the text is its help."""
    return click.option("--open", "opens", is_flag=True, help=text)


def report_page(command: _Command) -> _Command:
    """--report and --open of a command whose answer has a page."""
    command = opens("Write the page, as --report does, and open it in the browser.")(command)
    return click.option("--report", "with_report", is_flag=True, help="Also write an HTML page of the answer.")(command)


@dataclass(frozen=True)
class CodeOptions:
    """The forms of a kernel's code that are shown: its source, the PTX and the machine code of a Triton kernel.

    Attributes:
        trusted: a disassembler may read the machine code of a run that was not made on this account.
    """

    source: bool
    ptx: bool
    sass: bool
    trusted: bool = False

    def __bool__(self) -> bool:
        return self.source or self.ptx or self.sass


@dataclass(frozen=True)
class CallOptions:
    """The options of `--calls`.

    Attributes:
        operators: patterns of operators and kernels; a kernel is taken for any operator that it holds.
        where: a condition that one tensor of a call must meet; "" for none.
        hashes: print the hash of every tensor.
        eager: the exported program to call in eager in place of the launches; None for the launches.
        trusted: call it even if it was not made on this account.
    """

    operators: tuple[str, ...] = ()
    where: str = ""
    hashes: bool = False
    eager: Path | None = None
    trusted: bool = False

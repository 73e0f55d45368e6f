"""Scripts on the command line: where the words for aoti-debug end and those of the script begin."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from aoti_debug.base import wording
from aoti_debug.base.errors import UsageError
from aoti_debug.runs.run.script_process import UserScript
from aoti_debug.runs.run.supervise import Observer

_SUFFIX = ".py"
_WORDS = "script_words"

module = click.option("-m", "is_module", is_flag=True, help="Run a module, as Python's -m does: -m MODULE [ARGS]...")
torch_compile = click.option(
    "--torch-compile",
    is_flag=True,
    help="Record the graphs that SCRIPT.py gives to torch.compile, too, as packages: the backend is replaced.",
)


class MayRunScript(click.Command):
    """A command whose argument may be a script, or a module after -m; all words that follow are the script's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses the words up to the script's name."""
        position = self._position(args)
        if position is not None:
            ctx.meta[_WORDS] = tuple(args[position + 1 :])
            args = args[: position + 1]
        return super().parse_args(ctx, args)

    def _position(self, args: list[str]) -> int | None:
        """The position of the name of a script or module; None if another argument comes first, or none."""
        with_value = {
            name
            for parameter in self.params
            if isinstance(parameter, click.Option) and not parameter.is_flag and not parameter.count
            for name in parameter.opts
        }
        is_value = is_module = False
        for position, word in enumerate(args):
            if is_value:
                is_value = False
            elif word == "-m":
                is_module = True
            elif word.startswith("-") and word != "-":
                is_value = word in with_value
            else:
                return position if is_module or word.endswith(_SUFFIX) else None
        return None


def of(context: click.Context, target: str, *, is_module: bool) -> UserScript | None:
    """The script of a `MayRunScript`; None if its argument is none.

    Raises:
        UsageError: an option is for scripts only.
    """
    words = context.meta.get(_WORDS)
    torch_compile = bool(context.params["torch_compile"])
    if words is not None:
        return UserScript(target, words, is_module, torch_compile=torch_compile)
    if torch_compile:
        raise UsageError("--torch-compile is for a SCRIPT.py", hint="leave out --torch-compile")
    return None


def misplaced(context: click.Context, script: UserScript) -> str:
    """A sentence about the options of this command behind a script whose text has none of these names; "" without any.

    The script gets them all the same. Of a module nothing is said: its text is not looked for.
    """
    options = {name for one in context.command.params for name in one.opts if name.startswith("--")}
    given = [name for word in script.arguments if (name := word.partition("=")[0]) in options]
    if script.is_module or not given:
        return ""
    try:
        text = Path(script.target).read_text(encoding="utf-8", errors="replace").replace("-", "_")
    except OSError:  # whoever starts it says so
        return ""
    unknown = [name for name in dict.fromkeys(given) if name.removeprefix("--").replace("-", "_") not in text]
    if not unknown:
        return ""
    names = wording.join_truncated(unknown, 3)
    file = Path(script.target).name
    return f"note: {names} behind {file}: the script gets what stands there; options of aoti-debug come before {file}"


class PassedThrough(Observer):
    """Writes the script's stderr to that of this process."""

    def output(self, stream: str, data: bytes) -> None:
        """Writes a piece of what the script wrote to stderr."""
        sys.stderr.buffer.write(data)
        sys.stderr.buffer.flush()

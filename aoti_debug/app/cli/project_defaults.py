"""Defaults of options from the table `[tool.aoti-debug.COMMAND]` of the nearest pyproject.toml.

What executes code is taken from the command line alone: a folder from somebody else may hold a pyproject.toml.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from aoti_debug.base.errors import UsageError

FILE = "pyproject.toml"
TABLE = "aoti-debug"
REFUSED = frozenset({"--trust", "--import", "--load-library", "--inspect", "--metric"})


def defaults_of(command: click.Command, name: str, commands: Collection[str]) -> dict[str, Any]:
    """The defaults of a command's options, by the names of its parameters; {} if the nearest file has none.

    Args:
        name: of the command.
        commands: the names that a table may have.

    Raises:
        UsageError: the file cannot be read, or names a command or an option that there is not, or that it may not set.
    """
    path = nearest()
    table = {} if path is None else _table(path)
    for key, value in table.items():
        if key not in commands or not isinstance(value, Mapping):
            raise UsageError(
                f"{path}: [tool.{TABLE}] has {key}, which is no table of a command",
                hint=_similar(key, commands) or f"as [tool.{TABLE}.triage]",
            )
    where = f"{path}: [tool.{TABLE}.{name}]"
    return dict(_default(command, key, value, where) for key, value in table.get(name, {}).items())


def nearest() -> Path | None:
    """The nearest pyproject.toml, in the working directory or above it; None if it is that of another user."""
    for folder in (Path.cwd(), *Path.cwd().parents):
        path = folder / FILE
        if path.is_file():
            return path if path.stat().st_uid in (os.geteuid(), 0) else None
    return None


def is_source(error: click.ClickException) -> bool:
    """True if the value that is wrong comes from such a table."""
    parameter, context = getattr(error, "param", None), getattr(error, "ctx", None)
    if parameter is None or context is None:
        return False
    return context.get_parameter_source(parameter.name) is ParameterSource.DEFAULT_MAP


def _table(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_bytes()
        if f"tool.{TABLE}".encode() not in text:
            return {}
        if sys.version_info >= (3, 11):
            import tomllib  # few projects have such a table
        else:
            import tomli as tomllib
        table = tomllib.loads(text.decode()).get("tool", {}).get(TABLE, {})
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # TOML, or its encoding
        raise UsageError(f"{path}: {error}") from error
    if not isinstance(table, Mapping):
        raise UsageError(f"{path}: [tool.{TABLE}] is no table", hint=f"as [tool.{TABLE}.triage]")
    return table


def _default(command: click.Command, key: str, value: object, where: str) -> tuple[str, Any]:
    """The parameter of an option, and its default."""
    option = f"--{key.replace('_', '-')}"
    options = {text: found for found in command.params if isinstance(found, click.Option) for text in found.opts}
    if option in REFUSED:
        raise UsageError(f"{where} sets {key}: what executes code is taken from the command line alone")
    parameter = options.get(option)
    if parameter is None or not parameter.expose_value:
        raise UsageError(f"{where} has {key}: there is no option {option}", hint=_similar(option, options))
    if parameter.is_flag and not (parameter.is_bool_flag and isinstance(value, bool)):
        kind = "true or false" if parameter.is_bool_flag else "given on the command line alone"
        raise UsageError(f"{where}: {key} is {kind}")
    if isinstance(value, list) != bool(parameter.multiple) or isinstance(value, Mapping):
        raise UsageError(f"{where}: {key} is {'a list' if parameter.multiple else 'one value'}")
    return parameter.name, value


def _similar(name: str, known: Collection[str]) -> str:
    import difflib  # only an error needs it

    found = difflib.get_close_matches(name, list(known), n=1)
    return f"perhaps {found[0]}" if found else ""

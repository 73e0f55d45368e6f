"""Options that several commands share."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from aoti_debug.errors import UsageError

_WORDS = {"true": True, "false": False, "none": None}

imports = click.option(
    "--import",
    "imports",
    metavar="MODULE",
    multiple=True,
    help="Import this module first: it registers custom operators. Repeatable.",
)
libraries = click.option(
    "--load-library",
    "libraries",
    metavar="PATH",
    type=click.Path(path_type=Path),
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
calls = click.option(
    "--calls",
    metavar="N",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="How many times to call the model.",
)
timings = click.option("--timings", is_flag=True, help="Also say where the time went.")


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

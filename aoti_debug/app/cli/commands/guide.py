"""`aoti-debug guide`: one page for coding agents, and the schemas of what `--json` prints."""

from __future__ import annotations

from pathlib import Path

import click

from aoti_debug.app.cli.lines import print_lines

_HERE = Path(__file__).parents[1]
_SCHEMAS = {path.name.partition(".")[0]: path for path in sorted((_HERE / "schemas").glob("*.schema.json"))}


@click.command("guide")
@click.option(
    "--json-schema",
    "schema",
    metavar="NAME",
    type=click.Choice(list(_SCHEMAS)),
    help="Print the JSON schema of what this command prints with --json; ranks: show, of a run of several ranks; "
    "bisect-settings: bisect --settings; invariance-fixed: invariance --fixed. "
    f"Names: {', '.join(_SCHEMAS)}.",
)
def command(*, schema: str | None) -> None:
    """Print one page for coding agents and scripts.

    It says which command answers which question, how to read JSON and exit codes, and what not to conclude.
    """
    if schema is None:
        print_lines(guide_lines())
    else:
        click.echo(schema_text(schema), nl=False)


def guide_lines() -> list[str]:
    """The page, of at most 80 lines and 80 columns."""
    return (_HERE / "guide.txt").read_text().splitlines()


def schema_text(name: str) -> str:
    """The JSON schema of a command, as it lies in docs.

    Args:
        name: the command, or "ranks".
    """
    return _SCHEMAS[name].read_text()

"""`aoti-debug doctor`: checks what this machine has for building and running models, and says what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click

from aoti_debug.app.cli import options
from aoti_debug.app.cli.lines import print_json, print_lines, width
from aoti_debug.app.doctor import doctor
from aoti_debug.app.doctor.host import MachineCheck, Status
from aoti_debug.base import terminal_cells, wording
from aoti_debug.base.errors import EXIT_CLEAN, ToolchainError

FORMAT = 1
_COLOURS = {Status.OK: "green", Status.WARNING: "yellow", Status.MISSING: "red"}
_LABELS = 9, 19  # columns


@click.command("doctor")
@options.json_output("doctor")
@click.pass_context
def command(context: click.Context, *, as_json: bool) -> None:
    """List what this machine has for building, running and debugging models, and what to do about the rest.

    Exit code 4: something is missing that every build or run needs.
    """
    checks = doctor.run_checks()
    well = doctor.is_ready(checks)
    if as_json:
        as_data = {"format": FORMAT, "well": well, "checks": [asdict(check) for check in checks]}
        print_json(as_data)
    else:
        for check in checks:
            first, *others = check_lines(check, width())
            click.secho(first[: _LABELS[0]], fg=_COLOURS[check.status], nl=False)
            print_lines([first[_LABELS[0] :], *others])
        print_lines([conclusion(checks)])
    context.exit(EXIT_CLEAN if well else ToolchainError.exit_code)


def check_lines(check: MachineCheck, columns: int) -> list[str]:
    """A check, with what to do in the lines below."""
    first, second = _LABELS
    indent = " " * (first + second)
    found, *others = terminal_cells.wrapped(check.found, columns, indent)
    todo = terminal_cells.wrapped(f"→ {check.todo}", columns, indent) if check.todo else []
    return [f"{check.status.value:<{first}}{check.name:<{second}}{found[len(indent) :]}", *others, *todo]


def conclusion(checks: Sequence[MachineCheck]) -> str:
    """The last line: whether models can be built and run here."""
    if not doctor.is_ready(checks):
        names = [check.name for check in checks if check.needed and check.status is Status.MISSING]
        return f"models cannot be built and run here; missing: {', '.join(names)}"
    warnings = sum(check.status is not Status.OK for check in checks)
    rest = f", with {wording.pluralize(warnings, 'limitation')}" if warnings else ""
    return f"models can be built and run here{rest}"

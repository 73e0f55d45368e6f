"""What is printed names files, runs and kernels; capitals stand for a name only where it cannot be known."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click

from aoti_debug.app.cli.main import group

PACKAGE = Path(__file__).parents[1] / "aoti_debug"
PLACEHOLDER = re.compile(r"\b(?:PROGRAM\.pt2|PACKAGE\.pt2|MODEL\.pt2|RUN|KERNEL)(?![\w|\]])")
OF_REPROS = {"--debugger"}  # options of the scripts that `repro` writes
OF_HELP = {"metavar", "help", "cls", "epilog"}  # keywords of click
UNKNOWN = {  # file, placeholder: why no name is known there
    ("app/cli/commands/triage.py", "MODEL.pt2"): "a kind of argument, which the command line lacks",
    ("compare/compare.py", "PROGRAM.pt2"): "the program of a compiled package was not given",
    ("compare/comparison.py", "PROGRAM.pt2"): "the program of a package was not given",
    ("compare/text.py", "PROGRAM.pt2"): "the program of a compiled package was not given",
    ("instrument/builder/join_program.py", "PROGRAM.pt2"): "the program of a compiled package was not given",
    ("instrument/frontend/protocol/build_failure.py", "MODEL.pt2"): "replaced by the name before it is printed",
    ("package/recording_settings.py", "PROGRAM.pt2"): "the program of a compiled package was not given",
    ("runs/diagnosis/suggested_commands.py", "PACKAGE.pt2"): "neither the run nor its command line names the package",
    ("runs/rundir/run_directory.py", "PACKAGE.pt2"): "the package was not found, or nothing was run",
    ("runs/rundir/run_json.py", "PACKAGE.pt2"): "nothing was run",
    ("triage/investigation/core_launch.py", "MODEL.pt2"): "the process had the package, and its core does not name it",
    ("triage/results/triage_directory.py", "MODEL.pt2"): "nothing was triaged",
    ("views/profile/device_calls.py", "PROGRAM.pt2"): "the package holds its weights and does not name its program",
    ("views/report/subject.py", "MODEL.pt2"): "nothing was triaged",
    ("views/report/subject.py", "PACKAGE.pt2"): "nothing was run",
}


def sentences(source: str) -> Iterator[str]:
    """The texts in a module that may be printed: not docstrings, not what click's help says."""
    tree = ast.parse(source)
    skipped = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body
        if isinstance(node.body[0], ast.Expr)
    }
    for call in ast.walk(tree):
        if isinstance(call, ast.Call):
            of_click = isinstance(call.func, ast.Attribute) and call.func.attr in {"option", "argument", "command"}
            values = [word.value for word in call.keywords if word.arg in OF_HELP]
            skipped |= {id(inner) for value in values if of_click for inner in ast.walk(value)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.value


def test_what_counts_as_a_sentence() -> None:
    source = '''"""RUN of a module."""
@click.argument("x", metavar="RUN")
def f():
    """RUN of a function."""
    raise UsageError(f"show RUN {x}", hint="aoti-debug repro KERNEL")
'''
    found = [match.group() for text in sentences(source) for match in PLACEHOLDER.finditer(text)]
    assert found == ["RUN", "KERNEL"]


def test_a_name_that_is_known_is_printed() -> None:
    found = {
        (str(path.relative_to(PACKAGE)), match.group())
        for path in sorted(PACKAGE.rglob("*.py"))
        for text in sentences(path.read_text(encoding="utf-8"))
        for match in PLACEHOLDER.finditer(text)
    }
    assert found == set(UNKNOWN)


def hints(source: str) -> Iterator[str]:
    """The texts in a module that are hints of errors."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.keyword) and node.arg == "hint":
            for inner in ast.walk(node.value):
                if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                    yield inner.value


def test_hints_name_options_that_exist() -> None:
    context = click.Context(group)
    commands = [command for name in group.list_commands(context) if (command := group.get_command(context, name))]
    parameters = [parameter for command in commands for parameter in command.params]
    known = {option for parameter in parameters for option in (*parameter.opts, *parameter.secondary_opts)}
    named = {
        (str(file.relative_to(PACKAGE)), option)
        for file in PACKAGE.rglob("*.py")
        for text in hints(file.read_text())
        for option in re.findall(r"--[a-z][a-z-]*", text)
    }
    assert len(named) > 50
    assert {(file, option) for file, option in named if option not in known | OF_REPROS} == set()

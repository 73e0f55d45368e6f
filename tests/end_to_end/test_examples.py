"""The examples print what the beginning of each says."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forked_script
from tests.corpus import score
from tests.paths import ROOT

EXAMPLES = ROOT / "examples"
NAMES = ("faulty", "nan", "custom_operator", "wrong_lowering", "model", "hang", "slow", "batch")
TUTORIALS = {
    "illegal-access": "faulty",
    "nan": "nan",
    "wrong-numbers": "wrong_lowering",
    "slow": "slow",
    "hang": "hang",
    "batch": "batch",
    "script": "bad_token",
}
PROMPT, ANYTHING = "$ ", "…"


def stated(name: str) -> tuple[list[str], list[str]]:
    """The commands at the beginning of an example, and the lines that the last one is said to print."""
    text = ast.get_docstring(ast.parse((EXAMPLES / f"{name}.py").read_text())) or ""
    lines = text.partition("\n\n")[2].splitlines()
    commands = [line.removeprefix(PROMPT) for line in lines if line.startswith(PROMPT)]
    return commands, lines[len(commands) :]


def printed(command: str, folder: Path) -> str:
    """What a command prints: a script of Python that makes a program nothing, a repro and aoti-debug their results."""
    program, *words = shlex.split(command)
    if words[0].endswith("repro.py"):
        done = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False)
        assert (program, done.returncode) == ("python", 11), done.stderr
        return done.stdout
    if program == "python":
        forked_script.run(folder / words[0], *map(Path, words[1:]))
        return ""
    code, output, errors = score.here(words, folder)
    assert (program, code in (0, 1)) == ("aoti-debug", True), errors
    return output


def missing(lines: list[str], output: str) -> list[str]:
    """The first line that does not follow those before it in an output, with all after it."""
    rest = iter(output.splitlines())
    for number, line in enumerate(lines):
        pattern = re.compile(".*".join(map(re.escape, line.split(ANYTHING))))
        if not any(pattern.fullmatch(other) for other in rest):
            return lines[number:]
    return []


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_tool_prints_what_an_example_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("out", "__pycache__"))
    commands, lines = stated(name)
    assert len(commands) == 2
    assert lines
    output = ""
    for command in commands:
        output = printed(command, tmp_path)
    assert missing(lines, output) == [], output
    for page in (page for page, example in TUTORIALS.items() if example == name):
        for block in blocks(ROOT / f"docs/tutorials/{page}.md")[1:]:
            for command in (line.removeprefix(PROMPT) for line in block if line.startswith(PROMPT)):
                output = printed(command, tmp_path)
            assert missing([line for line in block if not line.startswith(PROMPT)], output) == [], output


@pytest.mark.slow
def test_the_tool_prints_what_the_readme_says(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("out", "__pycache__"))
    block = (ROOT / "README.md").read_text().split("```")[1].strip().splitlines()
    lines = block[block.index("FAULT ids[2, 5] is 100, embed.weight has 100 rows") :]
    kept = [line for line in lines if not line.startswith(("  next", "  report"))]
    assert len(kept) == 5
    program, *words = shlex.split(block[0].removeprefix(PROMPT))
    done = subprocess.run(
        [sys.executable, "-m", program.replace("-", "_"), *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert missing([*block[1:3], *kept], done.stdout) == [], done.stdout


def blocks(page: Path) -> list[list[str]]:
    """The fenced blocks of a page, in lines."""
    return [block.strip("\n").splitlines() for block in page.read_text().split("```")[1::2]]


def test_every_example_that_fails_has_its_tutorial() -> None:
    assert {page.stem for page in (ROOT / "docs/tutorials").glob("*.md")} == set(TUTORIALS)


@pytest.mark.parametrize("tutorial", [name for name, example in TUTORIALS.items() if example in NAMES])
def test_a_tutorial_begins_with_what_its_example_says(tutorial: str) -> None:
    """These lines are compared with what is printed above."""
    commands, lines = stated(TUTORIALS[tutorial])
    first = blocks(ROOT / f"docs/tutorials/{tutorial}.md")[0]
    assert first == [*(f"{PROMPT}{command}" for command in commands), *lines]


def test_the_tutorial_about_scripts_prints_what_the_readme_says() -> None:
    readme = blocks(ROOT / "README.md")[0]
    tutorial = blocks(ROOT / "docs/tutorials/script.md")[0]
    assert missing(tutorial, "\n".join(readme)) == []


def test_a_line_that_is_not_printed_is_missing() -> None:
    assert missing(["a …", "c"], "a 1\nb\nc\n") == []
    assert missing(["c", "a …", "b"], "a 1\nb\nc\n") == ["a …", "b"]

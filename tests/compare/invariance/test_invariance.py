"""`aoti-debug invariance` as it is called, on models that are compiled once a session."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import aoti_debug
from aoti_debug.app.cli.main import group
from aoti_debug.base.errors import AotiDebugError, ArtifactError, UsageError
from tests.built_model import Built
from tests.schema import DOCS, problems


def invariance(*words: str | Path) -> Result:
    return CliRunner().invoke(group, ["invariance", *map(str, words)])


@pytest.fixture
def sizes(built: Callable[[str], Built], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with rows that vary, a softmax over them, and random numbers."""
    monkeypatch.chdir(tmp_path)
    return built("sizes").package


def test_a_model_that_mixes_samples_and_draws_random_numbers(sizes: Path) -> None:
    result = invariance(sizes, "--sizes", "2,5", "--json")
    assert result.exit_code == 1, result.output
    found = json.loads(result.stdout)
    assert problems(found, json.loads((DOCS / "invariance.schema.json").read_text())) == []
    assert (found["dim"]["input"], found["width"], found["is_invariant"]) == ("axis 0 of x", 1, False)
    assert [(run["size"], run["place"]) for run in found["runs"]] == [(5, 0), (5, 4), (5, 0), (5, 4)]
    mixing = [launch["kernel"] for launch in found["mixes"]]
    assert any("softmax" in kernel for kernel in mixing), found
    assert not any("addmm" in kernel for kernel in mixing), found
    assert {output["output"]: output["relation"] for output in found["outputs"]}[0] == "mixed"


def test_what_people_read(sizes: Path) -> None:
    result = invariance(sizes, "--sizes", "2,5", "--sample", "1", "--others", "drawn")
    assert result.exit_code == 1, result.output
    first, second, *_, last = result.stdout.strip().splitlines()
    assert first == "sample   1 row along axis 0 of x (s77): size 2, place 0 among drawn elements"
    assert second.startswith("against  size 5, place 0 among drawn elements; size 5, place 4 among drawn elements; ")
    assert last.split(" in ")[0] in ("MIXES SAMPLES", "NOT REPEATABLE") or last.startswith("VARIES from ")
    assert "what it writes for the sample changes with the values of the other rows" in result.stdout
    assert Path("aoti-debug/diffs/latest").is_dir()


@pytest.mark.parametrize(
    ("words", "error", "problem"),
    [
        (("missing.pt2",), ArtifactError, "missing.pt2 does not exist"),
        (("{package}", "--sizes", "1,5"), UsageError, "axis 0 of x is 2 to 64: 1 is not possible"),
        (("{package}", "--sizes", "5"), UsageError, "one size is nothing to compare"),
        (("{package}", "--sizes", "2,many"), UsageError, "--sizes 2,many is no list of sizes"),
        (("{package}", "--sample", "1:1"), UsageError, "--sample 1:1 is neither a row nor FIRST:END"),
        (("{package}", "--sizes", "2,5", "--sample", "0:3"), UsageError, "the sample has 3 rows"),
        (("{package}", "--sizes", "2,5", "--sample", "9"), UsageError, "the inputs have 5 rows along axis 0 of x"),
        (("{package}", "--sizes", "2,5", "--dim", "length"), UsageError, "no size of the model is 'length'"),
        (("{package}", "--inputs", "x.pt", "--random-inputs", "1"), UsageError, "exclude each other"),
    ],
)
def test_bad_input(words: tuple[str, ...], error: type[AotiDebugError], problem: str, sizes: Path) -> None:
    result = invariance(*(word.format(package=sizes) for word in words))
    assert isinstance(result.exception, error), result.output
    assert problem in str(result.exception)
    assert not Path("aoti-debug/diffs").exists()


def test_a_model_whose_sizes_are_fixed(
    built: Callable[[str], Built], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = invariance(built("views").package)
    assert isinstance(result.exception, UsageError)
    assert "every size of the inputs is fixed" in str(result.exception)
    assert not Path("aoti-debug").exists()


def test_from_python(sizes: Path) -> None:
    sample = aoti_debug.SampleOptions(rows=1, others="zeros")
    found = aoti_debug.invariance(sizes, sizes=(2, 5), sample=sample, imports=["tests.models"], out="found")
    assert found.invariance.directory.parent == Path("found").absolute()
    assert not found.is_invariant
    assert str(found).startswith("sample   1 row along axis 0 of x (s77): size 2, place 0 among zeros")
    with pytest.raises(UsageError, match="others='more' is not known"):
        aoti_debug.invariance(sizes, sample=aoti_debug.SampleOptions(others="more"))

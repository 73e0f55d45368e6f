"""Commands on a run of several ranks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aoti_debug.app.cli.main import run as aoti_debug
from tests import schema
from tests.runs.ranks.ranked import Rank, killed, opened, terminated


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of three ranks, the newest of the directory for runs, of which rank 1 failed first."""
    monkeypatch.chdir(tmp_path)
    path = opened(Path("aoti-debug/runs"), terminated(2), killed(0), Rank(hashes=(1, 9))).path
    Path("aoti-debug/runs/latest").symlink_to(path.name)
    return path


@pytest.mark.parametrize("words", [[], ["latest"], ["aoti-debug/runs/20261120-231501-1"], ["--run", "latest"]])
def test_all_ranks_are_shown(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert aoti_debug(["show", *words]) == 0
    text = capsys.readouterr().out
    assert "FAULT rank 1 failed first" in text
    assert "result of a collective" in text


def test_json_and_named_tensors(capsys: pytest.CaptureFixture[str]) -> None:
    assert aoti_debug(["show", "--json", "--agree", "mm:*", "--sharded", "layer.*"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["first_failure"]["rank"] == 1
    assert found["agreement"]["compared"] == 3  # the argument in two calls, the sum in one


def test_tensors_that_should_agree_are_of_a_run_of_ranks(
    directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert aoti_debug(["show", "--agree", "mm:*", "--run", f"{directory}/rank1"]) == 2
    assert f"hint: aoti-debug show {directory.name}\n" in capsys.readouterr().err
    monkeypatch.chdir(directory / "rank1")
    assert aoti_debug(["show", "--agree", "mm:*", "--run", "."]) == 2
    assert "hint: there is none here\n" in capsys.readouterr().err


def test_a_launch_is_of_the_rank_that_failed_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert aoti_debug(["show", "1.0"]) == 0
    assert "never returned" in capsys.readouterr().out
    assert aoti_debug(["show", "1.2"]) == 6  # it did not come so far
    assert "rank1 has no launch 1.2" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["latest", "aoti-debug/runs/latest", "20261120-231501-1"])
def test_a_triage_names_the_rank_that_failed_first(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert aoti_debug(["triage", name]) == 1
    text = capsys.readouterr().out
    assert text.startswith("FAULT rank 1 failed first: ")
    assert "report/index.html, with a page of each rank" in text
    assert Path("aoti-debug/runs/latest/report/index.html").is_file()
    assert Path("aoti-debug/runs/latest/rank1/report/index.html").is_file()
    assert not Path("aoti-debug/triages").exists()


def test_a_triage_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert aoti_debug(["triage", "latest", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["launch"]) == ("fault", "1.0")
    assert schema.problems(found, json.loads((schema.DOCS / "triage.schema.json").read_text())) == []


def test_options_of_a_model_are_refused_for_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    assert aoti_debug(["triage", "latest", "--guards"]) == 2
    assert "--guards needs a model; " in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        *(["--calls"], ["--all"], ["--source"], ["--hashes"], ["--phase", "before"], ["--module", "x"]),
        *(["--line", "model.py:3"], ["--operator", "aten::mm"], ["--where", "nan"]),
    ],
)
def test_options_of_one_rank(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert aoti_debug(["show", *words]) == 2
    errors = capsys.readouterr().err
    assert f"{words[0]} needs one rank" in errors
    assert "hint: aoti-debug show " in errors
    assert "/rank0" in errors


def test_patterns_that_match_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        aoti_debug(["show", "--agree", "mm:x", "--agree", "buf77", "--sharded", "*.typo", "--sharded", "layer.*"]) == 0
    )
    assert capsys.readouterr().err.splitlines() == [
        "warning: no argument of a launch matches --agree buf77",
        "warning: no weight matches --sharded *.typo",
    ]


def test_one_rank(capsys: pytest.CaptureFixture[str]) -> None:
    assert aoti_debug(["show", "aoti-debug/runs/latest/rank2"]) == 0
    assert capsys.readouterr().out.startswith("run rank2: no fault; no outputs")
    assert aoti_debug(["show", "rank2", "--agree", "x"]) == 2


def test_the_report_has_a_page_of_all_and_one_of_each(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert aoti_debug(["report"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert Path(first).resolve() == (directory / "report/index.html").resolve()
    assert second == f"  run of 3 ranks {directory.name}, a page for each"
    assert all((directory / f"rank{number}/report/index.html").is_file() for number in range(3))


@pytest.mark.parametrize(
    "command", [["summaries"], ["bundle", "aoti-debug/runs/latest"], ["compare", "aoti-debug/runs/latest"]]
)
def test_commands_that_take_one_rank_say_so(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert aoti_debug(command) == 6
    errors = capsys.readouterr().err
    assert "is a run of several ranks" in errors
    assert "hint: name one of them: " in errors

"""`aoti-debug list` and `aoti-debug clean` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aoti_debug.app.cli import main
from aoti_debug.base.wording import age
from tests import factories
from tests.factories import JournalWriter, arg, make_manifest, site
from tests.schema import DOCS, problems

PACKAGE = make_manifest(site("cpp_fused_0", arg("buf0")))
OLD, NEW = "20261120-000000-4194304", "20261121-000000-4194304"


@pytest.fixture(autouse=True)
def _runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("AOTI_DEBUG_HOME", "AOTI_DEBUG_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name in (OLD, NEW):
        factories.run_directory(Path("aoti-debug/runs"), PACKAGE, JournalWriter(), name=name)


def test_the_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["list"]) == 0
    title, _, first, second, _, total, cached = capsys.readouterr().out.splitlines()
    assert title.split() == ["name", "age", "size", "what"]
    assert [line.split()[0] for line in (first, second)] == [f"runs/{OLD}", f"runs/{NEW}"]
    assert total.startswith("2 directories, ")
    assert cached == f"cache: 0 B in {tmp_path}/cache/aoti_debug"
    assert main.run(["list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert problems(listed, json.loads((DOCS / "list.schema.json").read_text())) == []
    assert [(result["name"], result["kind"]) for result in listed["results"]] == [
        (f"runs/{OLD}", "runs"),
        (f"runs/{NEW}", "runs"),
    ]


def test_nothing_is_deleted_unless_it_is_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["clean"]) == 2
    assert capsys.readouterr().err.startswith("error: nothing is chosen\nhint: --all, --older-than DAYS, --keep N,")
    assert main.run(["clean", "--all", "--dry-run"]) == 0
    *lines, total = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [f"runs/{OLD}", f"runs/{NEW}"]
    assert total.endswith("would be deleted")
    assert len(list(Path("aoti-debug/runs").glob("2*"))) == 2


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    schema = json.loads((DOCS / "clean.schema.json").read_text())
    for words, is_there in ((["--dry-run"], True), ([], False)):
        assert main.run(["clean", OLD, "--json", *words]) == 0
        found = json.loads(capsys.readouterr().out)
        assert problems(found, schema) == []
        assert [result["name"] for result in found["deleted"]] == [f"runs/{OLD}"]
        assert (found["bytes"], found["cache"], found["in_use"]) == (found["deleted"][0]["bytes"], None, [])
        assert Path("aoti-debug/runs", OLD).exists() is is_there
    assert main.run(["clean", "--cache", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cache"] == 0


@pytest.mark.parametrize("words", [["--keep", "1"], [OLD], [f"runs/{OLD}"], [f"aoti-debug/runs/{OLD}"]])
def test_what_is_chosen_is_deleted(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main.run(["clean", *words]) == 0
    assert capsys.readouterr().out.splitlines()[0].startswith(f"runs/{OLD}  ")
    assert [path.name for path in Path("aoti-debug/runs").glob("2*")] == [NEW]


@pytest.mark.parametrize("words", [["--all", "--keep", "1"], ["--all", OLD], ["--keep", "0"], ["--older-than", "-1"]])
def test_options_that_exclude_each_other(words: list[str]) -> None:
    assert main.run(["clean", *words]) == 2
    assert len(list(Path("aoti-debug/runs").glob("2*"))) == 2


def test_the_cache_is_emptied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "cache/aoti_debug/headers/a"
    folder.mkdir(parents=True, mode=0o700)
    (tmp_path / "cache/aoti_debug").chmod(0o700)
    (folder / "file").write_bytes(b"x" * 10000)
    assert main.run(["clean", "--cache"]) == 0
    assert capsys.readouterr().out.startswith("cache  ")
    assert not folder.exists()
    assert len(list(Path("aoti-debug/runs").glob("2*"))) == 2


@pytest.mark.parametrize(("seconds", "said"), [(-2.0, "0 s"), (59.0, "59 s"), (3599.0, "59 min"), (90000.0, "1 d")])
def test_ages(seconds: float, said: str) -> None:
    assert age(seconds) == said

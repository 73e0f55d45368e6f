"""Cases of a benchmark in processes of their own: what is kept, what is run again, what is cut off."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import checkout

BENCHMARK = """
import argparse, os, sys, time
from benchmarks import cases

def one(name):
    if name == "dies":
        sys.exit("it is broken")
    if name == "raises":
        raise ValueError("it is wrong\\n\\nHere is how to go on.")
    if name == "hangs":
        time.sleep(600)
    return {"letters": len(name), "jobs": given.jobs, "threads": os.environ.get("OMP_NUM_THREADS")}

parser = argparse.ArgumentParser()
parser.add_argument("names", nargs="*")
cases.add_options(parser, limit=60)
given = parser.parse_args()
for row in cases.run(given.names, given, one):
    print(row["case"], row.get("letters"), row.get("threads"), row.get("failure"))
"""


@pytest.fixture
def called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "few.py").write_text(BENCHMARK)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    def call(*words: str) -> list[str]:
        command = [sys.executable, "-m", "few", *words, "--results", str(tmp_path / "rows.jsonl")]
        done = subprocess.run(
            command, env=checkout.environment(), capture_output=True, text=True, check=True, cwd=tmp_path
        )
        return done.stdout.splitlines()

    return call


def test_a_case_that_dies_or_hangs_has_its_reason(called: Any, tmp_path: Path) -> None:
    lines = called("one", "dies", "--jobs", "3")
    assert lines[0].split()[:2] == ["one", "3"]
    assert int(lines[0].split()[2]) >= 2
    assert lines[1] == "dies None None exit code 1: it is broken"
    assert called("raises") == ["raises None None exit code 1: ValueError: it is wrong"]
    assert called("hangs", "--limit", "1") == ["hangs None None no end within 1 s"]
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").open()]
    assert {row["case"] for row in rows} == {"one", "dies", "raises", "hangs"}


def test_what_is_done_is_not_run_again(called: Any, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"case": "dies", "letters": 99}\n{"case": "one", "let')
    assert called("dies", "one", "--table") == ["dies 99 None None"]
    file.write_text('{"case": "dies", "letters": 99}\n')
    assert called("dies", "one") == ["dies 99 None None", "one 3 None None"]
    assert called("dies", "one", "other", "--table") == ["dies 99 None None", "one 3 None None"]


def test_without_time_nothing_is_begun(called: Any, tmp_path: Path) -> None:
    assert called("one", "--minutes", "0.000001") == []
    assert not (tmp_path / "rows.jsonl").exists()


def test_rows_of_another_device_are_refused(called: Any, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"case": "dies", "letters": 99, "torch": "2.0", "device": "cuda"}) + "\n")
    assert called("dies", "--table") == ["dies 99 None None"]
    with pytest.raises(subprocess.CalledProcessError) as refused:
        called("dies", "one")
    assert (refused.value.returncode, refused.value.stdout) == (2, "")
    assert "torch 2.0, cuda" in refused.value.stderr
    assert len(file.read_text().splitlines()) == 1

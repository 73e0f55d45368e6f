"""`aoti-debug profile` on a real model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from aoti_debug.app.cli import main
from tests.built_model import Built
from tests.schema import DOCS, problems

SCHEMA = json.loads((DOCS / "profile.schema.json").read_text())


def test_json_and_trace(built: Callable[[str], Built], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.json"
    package = built("blocks").package
    command = ["profile", str(package), "--calls", "8", "--out", str(tmp_path), "--json", "--trace", str(trace)]
    assert main.run(command) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert problems(found, SCHEMA) == []
    assert f"trace: {trace}, " in said.err
    assert len(found["calls"]) == 8
    for call in range(8):
        launches = sum(launch["samples"][call] for launch in found["launches"])
        assert launches + found["calls"][call]["gaps"] == pytest.approx(found["calls"][call]["wall"])
    products = [launch for launch in found["launches"] if launch["kernel"] == "aoti_torch_cpu_addmm_out"]
    assert products
    for launch in products:
        assert launch["flops"] > 0
        assert launch["roofline"]["share"] > 0
        assert launch["modules"][0].startswith("linear")
    assert all(launch["seconds"] > 0 and launch["read"] + launch["written"] > 0 for launch in found["launches"])
    assert min(rate["flops_per_second"] for rate in found["machine"]["contractions"]) > 1e8
    events = json.loads(trace.read_text())["traceEvents"]
    assert sum(event.get("cat") == "call" for event in events) == 8 + found["warm_up"]
    (run,) = {path.resolve() for path in tmp_path.rglob("run.json")}
    info = json.loads(run.read_text())
    assert info["calls"] == 8
    assert info["tool_calls"] == [{"purpose": "to warm up", "first": 0, "calls": 3}]
    assert " in 11 calls, of which aoti-debug made 3 to warm up" in said.err
    assert main.run(["show", str(run.parent)]) == 0
    assert " in 11 calls, of which aoti-debug made 3 to warm up" in capsys.readouterr().out
    assert any("float32[" in text for event in events for text in event["args"].values())


def test_against_itself(built: Callable[[str], Built], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = str(built("blocks").package)
    assert main.run(["profile", package, "--calls", "2", "--against", package, "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert f"against {Path(package).name}, in 10 rounds: no launch that both have is certain to have changed\n" in out
    assert "the whole call" in out
    assert "only in the" not in out


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["none.pt2"], 3, "none.pt2"),
        (["none.pt2", "--calls", "0"], 2, "--calls"),
    ],
)
def test_mistakes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, error: str
) -> None:
    assert main.run(["profile", *arguments, "--out", str(tmp_path / "profiles")]) == code
    err = capsys.readouterr().err.splitlines()
    assert err[0].startswith("error: ")
    assert error in err[0]
    assert err[1].startswith("hint: ")
    assert not (tmp_path / "profiles").exists()


def test_a_model_on_a_cpu_has_no_cuda_graph(
    built: Callable[[str], Built], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = built("blocks").package
    assert main.run(["profile", str(package), "--cuda-graph", "--out", str(tmp_path)]) == 2
    error, hint = capsys.readouterr().err.splitlines()[-2:]
    assert error == f"error: {package.name} runs on a CPU: no CUDA graph can capture it"
    assert hint == "hint: without --cuda-graph its calls are measured"


def test_a_trace_that_cannot_be_written(
    built: Callable[[str], Built], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["profile", str(built("blocks").package), "--calls", "1", "--out", str(tmp_path)]
    assert main.run([*command, "--trace", str(tmp_path / "none" / "trace.json")]) == 2
    assert "hint: --trace FILE names another file" in capsys.readouterr().err

"""`aoti-debug memory` of a recorded run, and of a model that it runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from aoti_debug.app.cli import main
from aoti_debug.base.errors import RunDirError
from aoti_debug.runs.run import memory_meter
from aoti_debug.runs.run.memory_meter import CallCounters, MeasuredMemory
from tests.built_model import Built
from tests.schema import DOCS, problems
from tests.views.memory.small_call import KIB, recorded

SCHEMA = json.loads((DOCS / "memory.schema.json").read_text())


def test_the_table_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = recorded(tmp_path, calls=3)
    calls = tuple(CallCounters(10 * KIB + n * KIB, 14 * KIB) for n in range(3))
    memory_meter.write_memory(MeasuredMemory(calls), run.path)
    assert main.run(["memory", str(run.path)]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert lines == [
        f"run {run.path.name}: peak 2.0 KiB in 0.1 cpp_fused_1, model.py:12",
        "  weights  1.0 KiB that launches read, not in the peak",
        "  inputs   1.0 KiB, not in the peak",
        "  outputs  1.0 KiB of the peak's call",
        "  measured 4.0 KiB more resident at the peak than before the call, 14.0 KiB in all",
        "  calls    3: peaks from 2.0 KiB to 2.0 KiB",
        "  growth   +1.0 KiB resident from before call 1 to before call 2",
        "  note     when buffers are dropped is not known: the package that was run was not found; they are taken to "
        "live until their last use",
        "",
        "at the peak, 0.1",
        "  bytes  buffer  from   to  first in     model line",
        "-------  ------  ----  ---  -----------  -----------",
        "1.0 KiB  buf0     0.0  0.1  cpp_fused_0  model.py:12",
        "1.0 KiB  buf1     0.1  0.2  cpp_fused_1  model.py:12",
        "",
        "at other times",
        "  bytes  buffer  from   to  first in     model line   remarks",
        "-------  ------  ----  ---  -----------  -----------  ---------",
        "1.0 KiB  buf3     0.2  0.2  cpp_fused_2  model.py:23  an output",
        f"run: {run.path}",
    ]


def test_a_table_that_is_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aoti_debug.app.cli.commands.memory.MAX_STORAGES", 1)
    run = recorded(tmp_path)
    assert main.run(["memory", str(run.path)]) == 0
    assert "and 1 more (--all)" in capsys.readouterr().out.splitlines()


def test_json_and_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = recorded(tmp_path)
    page = tmp_path / "page.html"
    assert main.run(["memory", str(run.path), "--json", "--plot", "-o", str(page)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert problems(found, SCHEMA) == []
    assert found["peak"]["bytes"] == 2 * KIB
    assert found["peak"]["buffers"] == ["buf0", "buf1"]
    text = page.read_text()
    assert text.count("<rect ") == 4
    assert "<title>buf0: 1024 bytes, 0.0 to 0.1</title>" in text


def test_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = recorded(tmp_path)
    assert main.run(["memory", str(run.path), "-o", "x.html"]) == 2
    assert main.run(["memory", str(tmp_path / "nothing.pt2")]) == 3
    assert main.run(["memory", str(tmp_path / "nothing")]) == 6
    (run.path / memory_meter.MEMORY_FILE).write_text("{")
    with pytest.raises(RunDirError, match="damaged"):
        memory_meter.read_memory(run.path)
    capsys.readouterr()
    assert main.run(["memory", str(run.path)]) == 6
    assert "hint: run the package again" in capsys.readouterr().err


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("nothing"), lambda path: path.mkdir()])
def test_counters_that_cannot_be_read(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / memory_meter.MEMORY_FILE)
    with pytest.raises(RunDirError, match=r"cannot read .*memory\.json: it is a ") as raised:
        memory_meter.read_memory(tmp_path)
    assert raised.value.hint


@pytest.mark.slow
def test_a_model_is_run_and_counted(
    built: Callable[[str], Built], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The peak is that of torch's own allocator, of the same call."""
    package = built("blocks").package
    assert main.run(["memory", str(package), "--calls", "2", "--out", str(tmp_path / "out"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert problems(found, SCHEMA) == []
    assert len(found["calls"]) == len(found["measured"]) == 2
    counted = max(count for _, count in memory_meter.read_memory(Path(found["path"])).steps)
    assert found["peak"]["bytes"] == pytest.approx(counted, rel=0.01)
    assert found["peak"]["workspace"] == 0
    assert all(call["peak_resident"] >= call["resident"] > 0 for call in found["measured"])

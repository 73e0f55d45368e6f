from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from aoti_debug.app.cli import main
from aoti_debug.base.abi import Phase
from aoti_debug.package.manifest import Role
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from tests.paths import TESTS
from tests.schema import DOCS, problems
from tests.terminal import on_terminal, piped


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AOTI_DEBUG_DIR", raising=False)
    return tmp_path


def recorded_hashes(run: RunDir) -> dict[tuple[str, str, Phase], int | None]:
    """Of all tensors but outputs before their launch, by launch, name and phase."""
    return {
        (launch.id, argument.name, phase): stats.hash
        for launch in run.launches
        for argument in launch.args
        for phase, stats in argument.stats.items()
        if argument.role is Role.IN or phase is Phase.AFTER
    }


def test_level_1(faulty_package: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main.run(["run", str(faulty_package), "--level", "1", "--filter", "faulty*", "--filter", "nosuch*"]) == 0
    out, err = (text.decode() for text in capfdbinary.readouterr())
    name = open_run().path.name
    first, *rest = out.splitlines()
    saved = "3 tensors saved, 1 of them unchanged, 256 B on disk"
    assert re.fullmatch(rf"\d launches in 1 call, {saved}, .* in the model, .* in all", first)
    assert rest[:3] == [f"run: aoti-debug/runs/{name}", "next: aoti-debug show", ""]
    (outcome,) = rest[3:]
    assert re.fullmatch(r"NO FAULT \d launches; values of outputs not recorded", outcome)
    assert err.splitlines()[0] == "warning: no kernel matches nosuch*; the package has:"
    assert "  faulty::act.default" in err.splitlines()
    folders = [path.name for path in Path("aoti-debug/runs/latest/tensors/0").iterdir()]
    assert folders == ["0002_faulty::act.default"]


def test_level_2_prints_while_the_model_runs(
    faulty_package: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULTY_OPS", "write")
    torch.save((torch.ones(2, 4),), "ones.pt")
    arguments = ["--level", "2", "--inputs", "ones.pt", "--calls", "2", "--filter", "faulty*"]
    assert main.run(["run", str(faulty_package), *arguments]) == 0
    out, err = (text.decode() for text in capfdbinary.readouterr())
    assert out.startswith("to stdout\nto stdout\n")
    assert [line.split()[0] for line in err.splitlines() if "before faulty::act.default" in line] == ["0.2", "1.2"]
    assert max(map(len, (out + err).splitlines())) <= 100


@pytest.mark.parametrize(("level", "code"), [("1", 1), ("2", 1), ("3", 0), ("hash", 0)])
def test_outputs_that_are_not_finite_are_a_finding_where_values_are_recorded(
    faulty_package: Path, capfd: pytest.CaptureFixture[str], level: str, code: int
) -> None:
    torch.save((torch.full((2, 4), float("nan")),), "nan.pt")
    assert main.run(["run", str(faulty_package), "--level", level, "--inputs", "nan.pt", "-q"]) == code
    lines = capfd.readouterr().out.splitlines()
    headlines = [line for line in lines if line.startswith("NOT FINITE ")]
    assert len(headlines) == code
    assert not any(line.startswith("NO FAULT") for line in lines)
    assert main.run(["show"]) == 0
    assert f"no fault; {'outputs not finite' if code else 'values not recorded'}" in capfd.readouterr().out


def test_hashes_are_those_of_level_2_and_nothing_is_printed(
    faulty_package: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main.run(["run", str(faulty_package), "--level", "2"]) == 0
    expected = recorded_hashes(open_run())
    capfd.readouterr()
    assert main.run(["run", str(faulty_package), "--level", "hash"]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    run = open_run()
    assert run.info.command[-2:] == ("--level", "hash")
    assert recorded_hashes(run) == expected
    assert expected
    assert {s.statistics for launch in run.launches for a in launch.args for s in a.stats.values()} == {None}
    assert "next: aoti-debug show" in out
    monkeypatch.setenv("AOTI_DEBUG_LEVEL", "hash")
    assert main.run(["run", str(faulty_package)]) == 0
    assert (open_run().level, open_run().info.level) == (4, 4)


def test_a_fault_of_inputs_that_were_made(
    faulty_package: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main.run(["run", str(faulty_package), "--random-inputs", "0"]) == 0
    assert "are random" not in capfd.readouterr().err
    monkeypatch.setenv("FAULTY_OPS", "raise")
    assert main.run(["run", str(faulty_package), "--random-inputs", "0"]) == 1
    assert "are random (--random-inputs)" in capfd.readouterr().err


def test_guards(faulty_package: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main.run(["run", str(faulty_package), "--guards", "--poison", "3b"]) == 0
    run = open_run()
    assert (run.info.guards, run.info.poison) == (True, 0x3B)
    assert {"--guards", "--poison", "3b"} <= set(run.info.command)
    assert main.run(["run", str(faulty_package), "--guards", "--poison", "zz"]) == 2
    assert "'zz' is not two hexadecimal digits" in capfdbinary.readouterr().err.decode()


def test_watchpoints(faulty_package: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run(["run", str(faulty_package), "--watch", "faulty*: numel > 0", "--on-hit", "save,stack,stop"]) == 1
    lines = capfd.readouterr().out.splitlines()
    assert "WATCH faulty*: numel > 0: 1 hit, looked at 1 time" in lines
    assert any(line.startswith("  0.2  faulty::act.default  ") for line in lines)
    assert "  stopped the run at 0.2" in lines
    assert any(line.startswith("  stack    ") for line in lines)
    run = open_run()
    assert (run.state.value, run.info.exit.detail) == ("stopped", "watchpoint faulty*: numel > 0")
    assert {"--watch", "faulty*: numel > 0", "--on-hit", "save,stack,stop"} <= set(run.info.command)
    assert {phase for argument in run.launch("0.2").args for phase in argument.files} == {Phase.BEFORE, Phase.AFTER}
    assert main.run(["show", "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert not problems(document)
    assert document["watchpoints"][0]["recorded"][0]["argument"] == run.timeline.watchpoints[0].recorded[0].argument


def test_watchpoints_that_only_count(faulty_package: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run(["run", str(faulty_package), "--watch", "nosuch: nan", "--watch", "*: max > -9"]) == 1
    assert "warning: no argument and no kernel is named nosuch; the package has:" in capfd.readouterr().err
    assert main.run(["run", str(faulty_package), "--watch", "*: max > -9", "--on-hit", "count"]) == 0
    assert "hits, looked at" in capfd.readouterr().out
    assert main.run(["run", str(faulty_package), "--watch", "*: nan"]) == 0
    assert "WATCH *: nan: no hit, looked at " in capfd.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--watch", "buf7: absmax >"], "error: --watch does not parse: a statistic or a number is missing"),
        (["--watch", "*: nan", "--level", "0"], "error: --watch needs a level above 0, which looks at launches"),
        (["--on-hit", "save"], "error: --on-hit needs --watch"),
        (["--watch", "*: nan", "--on-hit", "explode"], "error: --on-hit explode: there is no 'explode'"),
    ],
)
def test_watchpoints_that_are_wrong(
    faulty_package: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main.run(["run", str(faulty_package), *arguments]) == 2
    assert capfd.readouterr().err.splitlines()[0] == message


def test_a_fault(
    faulty_package: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULTY_OPS", "segv")
    assert main.run(["run", str(faulty_package), "--out", "elsewhere"]) == 1
    out = capfdbinary.readouterr().out.decode()
    run = open_run("elsewhere")
    lines = out.splitlines()
    where = next(number for number, line in enumerate(lines) if line.startswith("  stack    "))
    assert [*lines[1:where], lines[-1]] == [
        f"run: elsewhere/{run.path.name}",
        "",
        "FAULT invalid memory access in faulty::act.default",
        "  in launch 0.2  faulty::act.default",
        f"  model    {TESTS / 'faulty_ops.py'}:{act_line()} in forward",
        "             return torch.softmax(torch.ops.faulty.act(torch.relu(self.linear(x))), -1)",
        f"  args     in      {run.launch('0.2').args[0].name}  float32[2,16] cpu",
        "  error    SIGSEGV (Segmentation fault)",
        "  because  launch 0.2 began and never returned",
        f"  next     aoti-debug repro faulty::act.default --launch 0.2 --run elsewhere/{run.path.name}",
    ]
    stack = lines[where:-1]
    assert stack[0].endswith(" (address 0x0)")
    assert [line.rpartition("/")[2].partition(":")[0] for line in stack[1:3]] == ["faulty_ops.py"] * 2
    assert stack[-1].startswith("           run_impl at wrapper.cpp:")


def act_line() -> int:
    """Where the model calls the operator."""
    lines = (TESTS / "faulty_ops.py").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if "torch.softmax" in line)


def test_the_printers_own_stderr_is_kept_in_order(
    faulty_package: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main.run(["run", str(faulty_package), "--level", "3"]) == 0
    err = capfdbinary.readouterr().err
    assert err == Path("aoti-debug/runs/latest/stderr.log").read_bytes()
    numbers = [line.split()[0] for line in err.decode().splitlines()]
    assert numbers
    assert numbers == [f"0.{n}" for n in range(len(numbers) // 2) for _ in range(2)]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nothing.pt2"], 3, "error: nothing.pt2 does not exist"),
        (
            ["nothing.pt2", "--level", "5"],
            2,
            "error: Invalid value for '--level': level 5 is not one of 0, 1, 2, 3, hash",
        ),
        (["nothing.pt2", "--timeout", "-1"], 2, "error: --timeout -1 is not greater than 0"),
        (["nothing.pt2", "--inputs", "no.pt"], 3, "error: no.pt does not exist"),
        (["nothing.pt2", "--filter", "a,b"], 2, "error: --filter 'a,b' contains a comma"),
        ([], 2, "error: Missing argument 'PACKAGE.pt2'."),
    ],
)
def test_mistakes(capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, message: str) -> None:
    assert main.run(["run", *arguments]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0] == message
    assert err.splitlines()[1].startswith("hint: ")
    assert list(Path().iterdir()) == []


def test_names_of_launches_are_printed_if_they_are_asked_for(faulty_package: Path, tmp_path: Path) -> None:
    given = ("run", str(faulty_package), "--import", "tests.faulty_ops", "--out", str(tmp_path))
    on_screen = on_terminal(*given, columns=80)
    assert not any(" before " in line for line in on_screen)
    assert on_screen[-3:-1] == ["next: aoti-debug show", ""]
    assert "NO FAULT 4 launches; values not recorded" in on_screen[-1]
    assert any("0.0 before " in line for line in on_terminal(*given, "-v", columns=80))
    (line,) = piped(*given, "--quiet")
    assert line.startswith("run: ")


def test_timings(faulty_package: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run(["run", str(faulty_package), "--timings"]) == 0
    lines = capfd.readouterr().out.splitlines()
    table = lines[lines.index("time") :]
    assert [line.strip().split("  ")[0] for line in table[1:4]] == ["start aoti-debug", "prepare", "import torch"]
    assert table[-1].split()[:2] == ["in", "all"]
    assert table[-1].endswith("100%")


def run_document(*words: str, capfd: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any], str]:
    """The exit code, the JSON object on stdout, and stderr."""
    code = main.run(["run", *words, "--json"])
    out, err = capfd.readouterr()
    found: dict[str, Any] = json.loads(out)
    assert problems(found, json.loads((DOCS / "run.schema.json").read_text())) == []
    assert found["exit_code"] == code
    return code, found, err


def test_one_json_object_stands_on_stdout(
    faulty_package: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULTY_OPS", "write")
    code, found, err = run_document(str(faulty_package), "--level", "1", "--timings", capfd=capfd)
    run = open_run()
    assert (code, found["path"], found["state"], found["launches"]) == (0, str(run.path), "clean", len(run.launches))
    assert found["finding"]["kind"] == "no_fault"
    assert sum(found["tensors"].values()) > 3
    assert found["timings"]["call"] > 0
    assert "to stdout\n" in err
    monkeypatch.setenv("FAULTY_OPS", "raise")
    code, found, _ = run_document(str(faulty_package), "-q", capfd=capfd)
    assert (code, found["state"], found["verdict"]["suspects"]) == (1, "fault", ["0.2"])


def test_repeated_calls_as_json(faulty_package: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, found, _ = run_document(str(faulty_package), "--repeat", "2", capfd=capfd)
    assert (code, found["repeated"]["calls"], found["repeated"]["launches"]) == (0, 2, [])
    assert found["threads"] is None


def test_the_schemas_of_run_and_exec_describe_a_run_as_that_of_show_does() -> None:
    show, run, executed = (json.loads((DOCS / f"{name}.schema.json").read_text()) for name in ("show", "run", "exec"))
    shared = set(show["properties"]) & set(run["properties"]) - {"calls", "launches"}
    assert len(shared) > 10
    assert all(run["properties"][name] == show["properties"][name] for name in shared)
    assert all(show["$defs"][name] == part for name, part in run["$defs"].items())
    assert executed["$defs"]["run"]["properties"].items() <= run["properties"].items()

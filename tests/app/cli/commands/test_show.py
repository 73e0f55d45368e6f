from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from aoti_debug.app.cli import main, show_run
from aoti_debug.package.manifest import Kind, Role
from aoti_debug.runs.diagnosis.findings import CLEAN, Finding
from aoti_debug.runs.rundir.formats import shared_files
from aoti_debug.runs.rundir.run_json import Exit, ExitKind
from aoti_debug.triage.results import triage_directory
from tests import factories, started_modules
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, tensor
from tests.paths import ROOT
from tests.views.report import subjects

PACKAGE = make_manifest(
    site("cpp_fused_relu_0", arg("x"), arg("buf0", Role.OUT), kind=Kind.CPP),
    site("aoti_torch_cpu_addmm_out", arg("buf1", Role.OUT), arg("buf0")),
    site("cpp_fused_never_1", arg("x"), kind=Kind.CPP),
)
OLD, NEW = "20261120-000000-1", "20261120-000000-2"


def show(*arguments: str) -> int:
    return main.run(["show", *arguments])


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An old run that crashed in its second launch, and a new one of five launches."""
    crashed = JournalWriter()
    crashed.call_begin()
    crashed.launch(0, 0, tensor(2), tensor(2))
    crashed.launch_begin(1, 1, tensor(2), tensor(2))
    clean = JournalWriter()
    clean.call_begin()
    for launch in range(5):
        clean.launch(launch, int(launch == 4), tensor(2), tensor(2))
    base = tmp_path / "aoti-debug/runs"
    exit_ = Exit(ExitKind.FAULT, "killed by SIGSEGV", signal="SIGSEGV")
    run_directory(base, PACKAGE, crashed, name=OLD, exit=exit_)
    run_directory(base, PACKAGE, clean, name=NEW)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AOTI_DEBUG_DIR", raising=False)
    return base


def first_lines(text: str) -> list[str]:
    """Of the blocks that empty lines separate."""
    return [block.splitlines()[0] for block in text.strip().split("\n\n")]


@pytest.mark.parametrize("named", [True, False], ids=["named", "newest"])
def test_a_triage_is_shown_with_its_whole_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, named: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    made = subjects.triage(Path("aoti-debug/triages"))
    assert show(*([f"triages/{made.path.name}"] if named else [])) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "FAULT IndexError: index 314159 is out of bounds"
    assert "           buf0[2] is 314159" in lines
    assert any(line.startswith("run 2026") for line in lines)
    assert show(*([f"triages/{made.path.name}"] if named else []), "--json") == 0
    assert json.loads(capsys.readouterr().out)["finding"]["kind"] == "fault"


def test_a_triage_whose_record_is_damaged_shows_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    made = subjects.triage(Path("aoti-debug/triages"))
    (made.path / triage_directory.NAME).write_text("{")
    assert show(f"triages/{made.path.name}") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("the finding of this triage cannot be shown: ")
    assert any(line.startswith("run 2026") for line in lines)
    shutil.rmtree(made.path / "runs")
    assert show(str(made.path)) == 6
    assert "triage.json is damaged" in capsys.readouterr().err


def test_a_triage_without_a_run_is_its_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = triage_directory.create(Path("aoti-debug/triages"))
    triage_directory.write(path, triage_directory.Record(Finding(CLEAN, "no race")))
    assert show(str(path)) == 0
    assert capsys.readouterr().out == "CLEAN no race\n\n"


def test_the_latest_run(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show() == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0] == f"run {NEW}: no fault; values not recorded"
    assert [line.split()[0] for line in out.splitlines() if line.lstrip().startswith("0.")] == [
        f"0.{n}" for n in range(5)
    ]
    assert max(map(len, out.splitlines())) <= 100


@pytest.mark.parametrize(
    "way", [(OLD,), ("--run", OLD), (f"aoti-debug/runs/{OLD}",), ("--run", f"aoti-debug/runs/{OLD}")]
)
def test_a_run_by_name_or_path(base: Path, capsys: pytest.CaptureFixture[str], way: tuple[str, ...]) -> None:
    assert show(*way) == 0
    assert first_lines(capsys.readouterr().out) == [
        f"run {OLD}: fault: killed by SIGSEGV",
        "FAULT invalid memory access in aoti_torch_cpu_addmm_out",
        "launch  kernel                    kind      arguments    model line   largest magnitude",
    ]


@pytest.mark.parametrize("word", ["cpp_fused_relu", "cpp…_0", "cpp_fused_relu_0"])
def test_a_kernel_by_what_a_table_shows_of_it(base: Path, capsys: pytest.CaptureFixture[str], word: str) -> None:
    assert show(word, "--run", OLD) == 0
    assert capsys.readouterr().out.startswith("launch 0.0  cpp_fused_relu_0\n")


@pytest.mark.parametrize(("word", "kernels"), [("model.py:12", 2), ("*", 2), ("*relu*", 1)])
def test_words_for_rows_of_the_table(base: Path, capsys: pytest.CaptureFixture[str], word: str, kernels: int) -> None:
    assert show(word, "--run", OLD) == 0
    assert sum(line.startswith("   0.") for line in capsys.readouterr().out.splitlines()) == kernels


def test_launches_of_a_line(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show("--line", "model.py:12", "--run", OLD) == 0
    assert "0.1" in capsys.readouterr().out
    assert show("cpp_fused_*", "--line", "!model.py:12") == 2
    assert capsys.readouterr().err == (
        f"error: no launch of run {NEW} passes --line !model.py:12\nhint: there is /home/u/model.py:12\n"
    )
    assert show("--module", "encoder") == 2
    assert capsys.readouterr().err.startswith(f"error: run {NEW} holds no module paths\n")


def test_a_directory_of_runs_shows_its_latest(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show("aoti-debug/runs") == 0
    assert capsys.readouterr().out.startswith(f"run {NEW}: no fault; values not recorded")


@pytest.mark.parametrize("number", ["4", "0.4"])
def test_a_launch_by_number(base: Path, capsys: pytest.CaptureFixture[str], number: str) -> None:
    assert show(number) == 0
    assert first_lines(capsys.readouterr().out) == ["launch 0.4  aoti_torch_cpu_addmm_out"]


def test_a_kernel_that_was_launched_a_few_times_is_shown_in_full(
    base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show("aoti_torch_cpu_addmm_out", "--run", OLD) == 0
    assert first_lines(capsys.readouterr().out) == ["launch 0.1  aoti_torch_cpu_addmm_out"]


def test_a_kernel_that_was_launched_often_is_a_table_and_its_first_launch(
    base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show("cpp_fused_relu_0") == 0
    assert [line.split()[0] for line in first_lines(capsys.readouterr().out)] == ["run", "launch", "launch"]


def test_a_pattern_is_a_table(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show("*_out") == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines() if line.lstrip().startswith("0.")] == ["0.4"]
    assert first_lines(out)[-1].startswith("launch  kernel")


def test_a_long_table_is_cut_unless_all_is_asked_for(
    base: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(show_run, "LIMIT", 2)
    assert show() == 0
    assert capsys.readouterr().out.splitlines()[-1] == "launches 1 to 2 of 5; --all shows them all"
    assert show("--all") == 0
    assert "--all" not in capsys.readouterr().out


def test_json(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show("--json") == 0
    whole = json.loads(capsys.readouterr().out)
    assert (whole["run"], len(whole["launches"]), whole["verdict"]) == (NEW, 5, None)
    assert set(whole["launches"][0]) >= {"id", "kernel", "kind", "args", "source", "provenance"}
    assert show("0.4", "--json") == 0
    assert [launch["id"] for launch in json.loads(capsys.readouterr().out)["launches"]] == ["0.4"]
    assert show("--json", "--run", OLD) == 0
    assert json.loads(capsys.readouterr().out)["verdict"]["suspects"] == ["0.1"]


def test_a_running_process_reads_up_to_its_last_record(
    base: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = base / OLD / "journal.bin"
    data = path.read_bytes()
    path.write_bytes(data[: len(data.rstrip(b"\0")) - 20])
    assert show(OLD) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line.lstrip().startswith("0.")][-1].split()[
        0
    ] == "0.0"


def complaint(capsys: pytest.CaptureFixture[str]) -> list[str]:
    out, err = capsys.readouterr()
    assert out == ""
    return err.splitlines()


def test_what_is_neither_a_run_nor_a_kernel_nor_a_launch(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show("cpp_fused_rleu_0") == 2
    assert complaint(capsys) == [
        f"error: 'cpp_fused_rleu_0' is neither a run, nor a kernel, nor a launch of run {NEW}",
        "hint: there is cpp_fused_relu_0, cpp_fused_never_1",
    ]


@pytest.mark.parametrize(
    ("name", "extract"), [("b.zip", "python -m zipfile -e b.zip ."), ("b.tar.gz", "python -m tarfile -e b.tar.gz .")]
)
def test_a_bundle_has_to_be_extracted_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, extract: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).touch()
    for words in ((name,), ("--run", name)):
        assert show(*words) == 2
        assert complaint(capsys) == [
            f"error: {name} is an archive",
            f"hint: {extract}; then README.txt in its folder says what to type",
        ]


def test_a_kernel_that_was_not_launched(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show("cpp_fused_never_1") == 2
    assert complaint(capsys)[0] == f"error: cpp_fused_never_1 was not launched in run {NEW}"


def test_a_launch_that_is_not_there(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show("0.9") == 6
    assert complaint(capsys) == [
        f"error: {NEW} has no launch 0.9",
        "hint: it has 5, 0.0 to 0.4: aoti-debug show",
    ]


@pytest.mark.parametrize(
    "words", [("0.1",), ("--calls",), ("0.1", "--source"), ("--line", "model.py:12"), ("--json", "0.1")]
)
def test_races_of_a_part_of_a_run(base: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    assert show("--races", *words) == 2
    assert complaint(capsys) == [
        "error: --races is of a whole run: it chooses no launches",
        "hint: aoti-debug show --races",
    ]


def test_no_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AOTI_DEBUG_DIR", raising=False)
    for arguments in ((), ("0.3",), ("some_kernel",)):
        assert show(*arguments) == 6
        assert complaint(capsys)[0] == "error: no runs in aoti-debug/runs"


def test_a_damaged_run(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (base / NEW / "journal.bin").write_bytes(b"AOTI")
    assert show() == 6
    assert complaint(capsys)[0].endswith("journal.bin is truncated: it ends within its header")


def test_a_directory_that_is_no_run(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "elsewhere").mkdir()
    assert show("elsewhere") == 6
    assert complaint(capsys)[0].startswith("error: no run 'elsewhere'")


def test_crumbs_of_a_host_that_died_are_brought_home(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_files, "DIRECTORY", tmp_path)
    shared = tmp_path / "aoti_debug-1-1-crumbs.bin"
    content = factories.crumbs(1).ljust(4096, b"\0") + str(base / OLD).encode().ljust(4096, b"\0")
    shared.write_bytes(content)
    (base / OLD / "crumbs.bin").symlink_to(shared)
    assert show(OLD) == 0
    assert not shared.exists()
    assert (base / OLD / "crumbs.bin").read_bytes() == content


@pytest.mark.parametrize("what", [(), ("0.1",), ("--run", OLD, "aoti_torch_cpu_addmm_out")])
def test_a_start_imports_what_it_needs(base: Path, what: Sequence[str]) -> None:
    """Where no bytecode is kept, every module that is imported is compiled at every start."""
    unused = (
        "torch",
        "jinja2",
        "pygments",
        "rich",
        "subprocess",
        "difflib",
        "aoti_debug.views.report",
        "aoti_debug.runs.ranks",
    )
    statements = f"from aoti_debug.app.cli import main\nmain.run({['show', *what]!r})"
    assert started_modules.imported(statements, unused) == []


def test_the_table_of_a_run_that_ended_well_needs_little(base: Path) -> None:
    """Of the tool, and of what takes longest to import."""
    unused = (
        *("numpy", "safetensors", "ctypes", "zipfile", "shutil", "bz2", "tempfile", "hashlib"),
        *(
            "aoti_debug.base.native",
            "aoti_debug.instrument.wrapper",
            "aoti_debug.runs.diagnosis.diagnose",
            "aoti_debug.runs.diagnosis.rescue",
        ),
        *("aoti_debug.runs.rundir.flight_recorder", "aoti_debug.runs.rundir.summaries"),
        *("aoti_debug.runs.show.detail", "aoti_debug.runs.show.document"),
    )
    statements = f"from aoti_debug.app.cli import main\nmain.run(['show', {NEW!r}])"
    assert started_modules.imported(statements, unused) == []
    code = f"""import sys
{statements}
own = [module for name, module in sys.modules.items() if name.startswith("aoti_debug.")]
print(len([module for module in own if not hasattr(module, "__path__")]), file=sys.stderr)"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
    assert int(done.stderr) <= 58


def test_the_code_of_kernels(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show("0.1", "--source", "--run", OLD) == 0
    assert capsys.readouterr().out.splitlines()[-2] == (
        "aoti_torch_cpu_addmm_out has no source of its own: it is an operator of torch"
    )
    assert show("0.1", "--sass", "--run", OLD) == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: aoti_torch_cpu_addmm_out is no generated kernel: it is an operator of torch",
        "hint: --ptx and --sass need a Triton kernel",
    ]
    for words in (["--source"], ["--sass", "--json"], ["aoti_torch_*", "--ptx", "--json"], ["aoti_torch_*", "--ptx"]):
        assert show(*words) == 2
        assert "--source, --ptx and --sass need a launch" in capsys.readouterr().err
    assert show("0.1", "--source", "--json") == 0
    assert [launch["code"] for launch in json.loads(capsys.readouterr().out)["launches"]] == [[]]

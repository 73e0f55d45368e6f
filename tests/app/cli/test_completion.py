"""What a shell offers while a command line is typed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from aoti_debug.app.cli import main
from tests import factories
from tests.factories import JournalWriter, arg, make_manifest, site, tensor
from tests.paths import ROOT

PACKAGE = make_manifest(site("cpp_fused_relu_0", arg("x")), site("aoti_torch_cpu_mm_out", arg("x")))
RUN = "20261120-000000-1"


@pytest.fixture(autouse=True)
def _runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("AOTI_DEBUG_HOME", "AOTI_DEBUG_DIR"):
        monkeypatch.delenv(name, raising=False)
    writer = JournalWriter()
    writer.launch(0, 0, tensor(2))
    writer.launch(1, 1, tensor(2))
    factories.run_directory(Path("aoti-debug/runs"), PACKAGE, writer, name=RUN)


def offered(*words: str) -> list[str]:
    """The completions of the last word."""
    shell = ShellComplete(main.group, {}, "aoti-debug", "_AOTI_DEBUG_COMPLETE")
    return [
        item.value if item.type == "plain" else item.type for item in shell.get_completions([*words[:-1]], words[-1])
    ]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("tri",), ["triage"]),
        (("--ver",), ["--version"]),
        (("show", ""), ["cpp_fused_relu_0", "aoti_torch_cpu_mm_out", "latest", RUN]),
        (("show", "0"), ["0.0", "0.1"]),
        (("show", "--run", "20"), [RUN]),
        (("show", "--run", RUN, "cpp"), ["cpp_fused_relu_0"]),
        (("show", "--run", "gone", "cpp"), ["file"]),
        (("show", "--pha"), ["--phase"]),
        (("repro", "aoti"), ["aoti_torch_cpu_mm_out"]),
        (("repro", "--launch", "0.1"), ["0.1"]),
        (("report", "2026"), [RUN]),
        (("memory", ""), ["latest", RUN, "file"]),
        (("clean", "runs/"), [f"runs/{RUN}"]),
        (("run", "m"), ["file"]),
    ],
)
def test_what_is_offered(words: tuple[str, ...], expected: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert offered(*words) == expected
    assert capsys.readouterr() == ("", "")


def test_a_damaged_run_offers_nothing() -> None:
    (Path("aoti-debug/runs") / RUN / "run.json").write_text("{")
    assert offered("repro", "cpp") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_documented_line_prints_a_script(shell: str) -> None:
    line = f"_AOTI_DEBUG_COMPLETE={shell}_source aoti-debug"
    assert line in (ROOT / "docs/commands.md").read_text()
    environment = {**os.environ, "_AOTI_DEBUG_COMPLETE": f"{shell}_source", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "aoti_debug"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "_AOTI_DEBUG_COMPLETE" in done.stdout


def test_commands_are_offered_without_importing_them() -> None:
    code = """import sys
from click.shell_completion import ShellComplete
from aoti_debug.app.cli import main
ShellComplete(main.group, {}, "aoti-debug", "X").get_completions([], "t")
print(*(name for name in sys.modules if name.startswith("aoti_debug.app.cli.commands.")))"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "\n"

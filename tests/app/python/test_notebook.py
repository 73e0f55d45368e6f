"""%%aoti_debug, in the smallest shell that has what the extension needs of IPython's."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import aoti_debug
from aoti_debug.app.python.record import RecordedBlock
from aoti_debug.runs.diagnosis.findings import NO_FAULT
from tests import faulty_ops  # registers the operator

assert faulty_ops.ACTIONS


class Shell:
    """As `%load_ext` and a cell use IPython.core.interactiveshell.InteractiveShell."""

    def __init__(self) -> None:
        self.user_ns: dict[str, Any] = {}
        self.magics: dict[tuple[str, str], Callable[[str, str], Any]] = {}

    def register_magic_function(self, func: Callable[..., Any], magic_kind: str, magic_name: str) -> None:
        self.magics[magic_kind, magic_name] = func

    def run_cell(self, raw_cell: str) -> None:
        """A cell that raises an exception shows it; the cell that called it goes on."""
        try:
            exec(raw_cell, self.user_ns)
        except ZeroDivisionError as error:
            print(f"{type(error).__name__}: {error}")


@pytest.fixture
def cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Any]:
    monkeypatch.chdir(tmp_path)
    shell = Shell()
    aoti_debug.load_ipython_extension(shell)
    return shell.magics["cell", "aoti_debug"]


def test_a_cell(cell: Callable[[str, str], Any], faulty_package: Path) -> None:
    block = cell(
        "--level 2 --filter 'cpp_*' --out runs",
        f"import torch\nmodel = torch._inductor.aoti_load_package({str(faulty_package)!r})\n"
        "y = model(torch.ones(2, 4))\n",
    )
    assert isinstance(block, RecordedBlock)
    assert block.finding is not None
    assert block.finding.kind == NO_FAULT
    assert [(run.level, run.info.filters, run.path.parent.name) for run in block.runs] == [(2, ("cpp_*",), "runs")]
    assert repr(block) == str(block)
    assert "<iframe" in block._repr_html_()
    again = cell("", "model(torch.ones(2, 4))")
    assert [len(run.launches) for run in again.runs] == [4]


def test_a_cell_that_fails(cell: Callable[[str, str], Any], capsys: pytest.CaptureFixture[str]) -> None:
    block = cell("", "1 / 0")
    assert str(block).startswith("nothing was recorded: ")
    assert capsys.readouterr().out == "ZeroDivisionError: division by zero\n"


@pytest.mark.parametrize(
    ("line", "message"), [("--level 9", "level 9 is not one of"), ("--nothing", "unrecognized arguments: --nothing")]
)
def test_wrong_options(
    cell: Callable[[str, str], Any], line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cell(line, "raise SystemExit") is None
    error, hint = capsys.readouterr().out.splitlines()
    assert error.startswith(f"error: {message}")
    assert hint.startswith("hint: ")
    assert "IPython" not in sys.modules

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from aoti_debug.app.cli.lines import PIPED, colour_of, print_lines, width, with_links
from aoti_debug.base import terminal_cells
from aoti_debug.triage.results import finding_kinds
from tests.runs.show.recorded import KERNELS, LAYER, crashed, device_fault, long_names
from tests.terminal import LINK, on_terminal, piped, with_links_on_terminal
from tests.views.report.subjects import run

ESCAPE = "\x1b"


def rows(lines: list[str]) -> list[str]:
    return [line for line in lines if line.lstrip().startswith("0.")]


@pytest.mark.parametrize("columns", [80, 100, 120, 200])
def test_one_launch_is_one_line_of_the_terminal(tmp_path: Path, columns: int) -> None:
    found = on_terminal("show", "--run", str(long_names(tmp_path).path), columns=columns)
    assert [line.split()[0] for line in rows(found)] == [f"0.{n}" for n in range(30)]
    assert max(map(terminal_cells.count, found)) <= columns
    assert max(map(terminal_cells.count, rows(found))) > columns - 12
    assert found[-1].endswith("--wide shows everything")


def test_a_pipe_has_200_columns_and_with_wide_nothing_is_shortened(tmp_path: Path) -> None:
    run = str(long_names(tmp_path).path)
    in_pipe = piped("show", "--run", run)
    assert max(map(terminal_cells.count, in_pipe)) <= 200
    assert in_pipe == on_terminal("show", "--run", run, columns=200)
    assert piped("show", "--run", run, COLUMNS="80") == in_pipe
    wide = piped("show", "--wide", "--run", run)
    assert "…" not in "".join(wide)
    assert len(rows(wide)) == 30
    assert all(kernel in row and f"{LAYER}_out" in row for row, kernel in zip(rows(wide), KERNELS, strict=False))
    assert on_terminal("show", "--wide", "--run", run, columns=80) == wide


def test_a_launch_in_full(tmp_path: Path) -> None:
    run = str(long_names(tmp_path, 3).path)
    narrow = on_terminal("show", "0.1", "--run", run, columns=80)
    assert max(map(len, narrow)) <= 100  # the kernel's name, to be copied, is never shortened
    wide = piped("show", "0.1", "--wide", "--run", run)
    assert "…" not in "".join(wide)
    assert on_terminal("show", "0.1", "--wide", "--run", run, columns=80) == wide


@pytest.mark.parametrize("columns", [80, 120, 200])
def test_a_fault_in_the_width_of_the_terminal(tmp_path: Path, columns: int) -> None:
    found = on_terminal("show", "--run", str(device_fault(tmp_path, every=4).path), columns=columns)
    assert max(len(line) for line in found if ESCAPE not in line) <= columns


def test_a_verdict_is_red_on_a_terminal_only(tmp_path: Path) -> None:
    run = str(crashed(tmp_path).path)
    head, row = (line for line in on_terminal("show", "--run", run, columns=100) if ESCAPE in line)
    assert row.endswith(f"GUILTY{ESCAPE}[0m")
    assert head == f"{ESCAPE}[31m{ESCAPE}[1mFAULT invalid memory access in mylib::op.default{ESCAPE}[0m"
    assert ESCAPE not in "".join(piped("show", "--run", run))


def test_each_kind_of_finding_has_a_colour_of_its_own() -> None:
    colours = [colour_of(f"{kind.heading} something") for kind in finding_kinds.KINDS]
    assert None not in colours
    assert len(set(colours)) == len(colours)
    assert colour_of("0.3  cpp_fused_add_0  x -> y  GUILTY") == "red"
    assert colour_of("a line of a table  CLEAN") is None


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["NO_COLOR", "dumb"])
def test_without_colour(tmp_path: Path, environment: dict[str, str]) -> None:
    run = str(crashed(tmp_path).path)
    assert ESCAPE not in "".join(on_terminal("show", "--run", run, columns=100, **environment))


def test_an_empty_no_color_asks_for_nothing(tmp_path: Path) -> None:
    found = on_terminal("show", "--run", str(crashed(tmp_path).path), columns=100, NO_COLOR="")
    assert ESCAPE in "".join(found)


def test_what_is_no_terminal_has_a_width_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert width() == width(err=True) == PIPED


def test_lines_are_fitted_when_they_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    print_lines(["note: " + "word " * 50, "y" * 300])
    first, second, whole = capsys.readouterr().out.splitlines()
    assert (len(first), second[:11], whole) == (200, "      word ", "y" * 300)
    print_lines(["word " * 50], columns=terminal_cells.UNLIMITED)
    assert capsys.readouterr().out == "word " * 50 + "\n"


def link(address: str, text: str) -> str:
    return f"\x1b]8;;{address}\x1b\\{text}\x1b]8;;\x1b\\"


def test_a_model_line_leads_to_the_editor() -> None:
    line = "  where    /home/u/m #1/a.py:28 in forward; also /home/u/b.py:7, c.py:9"
    linked = with_links(line)
    assert linked == line.replace("/home/u/b.py:7", link("vscode://file/home/u/b.py:7", "/home/u/b.py:7"))
    assert LINK.sub("", linked) == line


def test_a_page_leads_to_the_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    address = f"file://{socket.gethostname()}{tmp_path}/runs/1/index.html"
    assert with_links("report   runs/1/index.html; 8 more") == f"report   {link(address, 'runs/1/index.html')}; 8 more"


@pytest.mark.parametrize("text", ["0.3 cpp_fused_0", "…/a.py:28", "http://127.0.0.1:8000/", "10:30", "/home/u/…l.py:3"])
def test_other_words_are_no_links(text: str) -> None:
    assert with_links(text) == text


def test_only_on_a_terminal_with_colours(tmp_path: Path) -> None:
    path = str(run(tmp_path).path)
    words = ("show", "0.1", "--run", path)
    there = "\n".join(with_links_on_terminal(*words, columns=120))
    assert link("vscode://file/home/u/model.py:28", "/home/u/model.py:28") in there
    assert "\x1b]8" not in "\n".join(with_links_on_terminal(*words, columns=120, NO_COLOR="1"))
    assert "\x1b]8" not in "\n".join(with_links_on_terminal(*words, columns=120, TERM="dumb"))
    assert "\x1b" not in "\n".join(piped(*words))

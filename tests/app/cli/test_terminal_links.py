"""Links in the output of a terminal."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from aoti_debug.app.cli.terminal_links import with_links
from tests.terminal import LINK, piped, with_links_on_terminal
from tests.views.report.subjects import run


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

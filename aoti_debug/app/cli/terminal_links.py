"""Links in the output of a terminal (OSC 8): model lines to the editor, pages to the browser.

A terminal that knows no links shows the text alone.
"""

from __future__ import annotations

import re
import socket
from pathlib import Path
from urllib.parse import quote

_BEGIN, _END = "\x1b]8;;", "\x1b\\"
_MODEL_LINE = re.compile(r"(?<![^\s(])(/[^\s:…]+):(\d+)\b")  # an absolute path and a line
_PAGE = re.compile(r"(?<![^\s(])[^\s:…]+\.html\b")


def with_links(line: str) -> str:
    """The line, whose model lines and pages are links; text without control characters.

    What a model line names is not looked up: the run may be of somebody else.
    """
    return _PAGE.sub(_page, _MODEL_LINE.sub(_model_line, line))


def _model_line(match: re.Match[str]) -> str:
    path, number = match.groups()
    return _link(f"vscode://file{quote(path)}:{number}", match[0])


def _page(match: re.Match[str]) -> str:
    path = Path(match[0]).absolute()
    return _link(f"file://{quote(socket.gethostname())}{quote(str(path))}", match[0])


def _link(address: str, text: str) -> str:
    return f"{_BEGIN}{address}{_END}{text}{_BEGIN}{_END}"

"""The pages that are served: the list of results, the page of each, and that of two runs.

Pages are made when they are asked for, and not written. A result is only found by a name in the list: no address leads
to another file.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qs, unquote

from aoti_debug.base.errors import AotiDebugError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import results_home
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.runs.rundir import recorded_runs, run_directory
from aoti_debug.views.results.made_results import MadeResult, made_results
from aoti_debug.views.results.results_page import message_page, results_page

_WRITTEN = {ResultKind.DIFFS: "report/index.html", ResultKind.PROFILES: "report/profile.html"}
_LARGEST = 256 << 20  # bytes of a page that was written


@dataclass(frozen=True)
class UiPage:
    """An answer.

    Attributes:
        is_stored: it was read from a file, which may not be of this tool: it must not reach the other pages.
    """

    text: str
    status: HTTPStatus = HTTPStatus.OK
    is_stored: bool = False


class UiPages:
    """Makes the pages, one at a time: a large one takes much memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def page(self, path: str, query: str) -> UiPage:
        """The page of an address.

        Args:
            path: as it was sent, escapes included: "/page/runs%2F20261120-231501-4711".
            query: what stands behind "?".
        """
        asked = parse_qs(query)
        try:
            with self._lock:
                if path == "/":
                    return UiPage(results_page(made_results(), results_home.home()))
                if path == "/diff":
                    return _diff([_result(asked.get(name, [""])[0]) for name in ("a", "b")])
                kind, _, name = path.removeprefix("/").partition("/")
                if kind == "page":
                    return _page_of(_result(unquote(name)))
        except _NoResultError as error:
            return _message(HTTPStatus.NOT_FOUND, "No such result", [str(error)])
        except AotiDebugError as error:
            hint = [f"hint: {error.hint}"] if error.hint else []
            return _message(HTTPStatus.OK, "There is no page of it", [str(error), *hint])
        return _message(HTTPStatus.NOT_FOUND, "No such page", [])


class _NoResultError(Exception):
    """A name is not in the list."""


def _message(status: HTTPStatus, title: str, lines: Sequence[str]) -> UiPage:
    return UiPage(message_page(title, lines), status)


def _result(name: str) -> MadeResult:
    """The result of a name in the list.

    Raises:
        _NoResultError: there is none.
    """
    result = next((result for result in made_results() if result.name == name), None)
    if result is None:
        raise _NoResultError(f"{name or 'a run'} is not in the list: it may have been deleted")
    return result


def _page_of(result: MadeResult) -> UiPage:
    """The page of a result: of what it recorded; of a diff and a profile, the one that was written."""
    from aoti_debug.views.report import report  # the list starts without it

    found = recorded_runs.find(result.path)
    run = None if found is None else found.run
    if result.kind in _WRITTEN:
        written = _written(run or result.path, result)
        if written is not None:
            return written
    if found is None:
        text = f"{result.name} holds no run and no page; its files are in {result.path.absolute()}"
        return _message(HTTPStatus.OK, "There is no page of it", [text])
    if run is not None and found.is_of_ranks:
        from aoti_debug.runs.ranks.ranks_analysis import analyse
        from aoti_debug.runs.ranks.ranks_run import open_ranks

        return UiPage(report.ranks_page(analyse(open_ranks(run)), run / report.REPORT))
    if run is not None and result.kind is ResultKind.MEMORY:
        from aoti_debug.views.memory import page
        from aoti_debug.views.memory.memory import MemoryOptions, memory

        return UiPage(page.page(memory(MemoryOptions(run))))
    return UiPage(report.html(report.find(result.path)))


def _written(run: Path, result: MadeResult) -> UiPage | None:
    """The page that a command has written; None if there is none."""
    for path in (folder / _WRITTEN[result.kind] for folder in (result.path, run)):
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= _LARGEST:
            return UiPage(path.read_text(encoding="utf-8", errors="replace"), is_stored=True)
    return None


def _diff(results: Sequence[MadeResult]) -> UiPage:
    """The page of two runs, without what only their programs could say: whether rounding explains a difference."""
    from aoti_debug.compare.diff.diff_runs import diff_runs  # it needs torch
    from aoti_debug.views.report import diff_page

    a, b = (run_directory.open_run(result.path) for result in results)
    return UiPage(diff_page.diff_page(diff_runs(a, b)))

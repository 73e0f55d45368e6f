"""Serves pages to the browser of this user: on the loopback interface, to whoever has the token, read-only.

What it is protected from:

* other users of this machine: every address needs the token, or the cookie that the first visit with it sets;
* other web sites in the same browser: they cannot read an answer, show one in a frame, or have the cookie sent; a name
  of theirs that leads to 127.0.0.1 (DNS rebinding) is refused by the Host header;
* pages that were stored by others: they are shown with an origin of their own, from which nothing here can be read.
"""

from __future__ import annotations

import hmac
import secrets
import sys
import threading
import time
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from aoti_debug.app.made_results import MadeResult, ResultSummary, made_results
from aoti_debug.base import wording
from aoti_debug.base.errors import AotiDebugError, UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import results_home
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.runs.rundir import recorded_runs, run_directory
from aoti_debug.views.report.page import PageParts, render

_WRITTEN = {ResultKind.DIFFS: "report/index.html", ResultKind.PROFILES: "report/profile.html"}
_LARGEST = 256 << 20  # bytes of a page that was written
_LIST = PageParts("results.html", ("results.js",), ("report.css",), ())
_NOTHING = PageParts("message.html", (), ("report.css",), ())


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
                    return UiPage(list_page(made_results(), results_home.home()))
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
    """A page that says why there is no other."""
    return UiPage(render(_NOTHING, {}, {"title": title, "lines": lines}), status)


@dataclass(frozen=True)
class _Row:
    """A line of the list.

    Attributes:
        link: the address of its page.
        age: "12 min".
        made: seconds since 1970.
    """

    name: str
    link: str
    kind: str
    shown: ResultSummary
    age: str
    made: int


def list_page(results: Sequence[MadeResult], home: Path) -> str:
    """The text of the page that lists results, the newest first.

    Args:
        home: the directory whose results are listed, to be named.
    """
    now = time.time()
    rows = [
        _Row(
            result.name,
            f"/page/{quote(result.name, safe='')}",
            result.kind.value,
            result.summary,
            wording.age(now - result.made),
            int(result.made),
        )
        for result in sorted(results, key=lambda result: -result.made)
    ]
    values = {
        "title": f"{wording.pluralize(len(rows), 'result')} in {home}",
        "home": str(home),
        "rows": rows,
        "kinds": list(dict.fromkeys(row.kind for row in rows)),
    }
    return render(_LIST, {}, values)


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
    from aoti_debug.views.report import answer_page, report  # the list starts without it

    if (result.path / answer_page.NAME).is_file():
        return UiPage(answer_page.answer_page(answer_page.read(result.path), result.path))
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


ADDRESS = "127.0.0.1"
_TOKEN_BYTES = 32
_IDLE_SECONDS = 30.0  # after which a connection that says nothing is closed
_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_OWN_POLICY = "frame-ancestors 'none'"
_STORED_POLICY = "frame-ancestors 'none'; sandbox allow-scripts"  # an origin of its own


class UiServer(ThreadingHTTPServer):
    """A server that listens; `serve_forever` answers.

    Attributes:
        token: of the address that the user is told.
        pages: what it serves.
    """

    daemon_threads = True
    allow_reuse_address = False  # another process must not take the port over

    def __init__(self, port: int = 0) -> None:
        """Listens on a port of the loopback interface.

        Args:
            port: 0 for any that is free.

        Raises:
            UsageError: the port is not free.
        """
        self.token = secrets.token_urlsafe(_TOKEN_BYTES)
        self.pages = UiPages()
        self._session = secrets.token_urlsafe(_TOKEN_BYTES)
        try:
            super().__init__((ADDRESS, port), _Handler)
        except OSError as error:
            raise UsageError(
                f"port {port} cannot be used: {error.strerror or error}", hint="without --port, a free one is taken"
            ) from error

    @property
    def hosts(self) -> frozenset[str]:
        """The Host headers that are answered."""
        return frozenset(f"{name}:{self.server_port}" for name in (ADDRESS, "localhost"))

    @property
    def address(self) -> str:
        """The address of the list, with the token."""
        return f"http://{ADDRESS}:{self.server_port}/?token={self.token}"

    @property
    def cookie(self) -> str:
        """The cookie of a browser that had the token; its name has the port, as cookies of all ports are sent."""
        return f"{self._cookie_name}={self._session}; HttpOnly; SameSite=Strict; Path=/"

    @property
    def _cookie_name(self) -> str:
        return f"aoti_debug_{self.server_port}"

    def has_token(self, token: str) -> bool:
        """True for the token; it takes as long whatever is wrong with another."""
        return hmac.compare_digest(token.encode(), self.token.encode())

    def has_cookie(self, header: str) -> bool:
        """True for a Cookie header with the cookie of this server; those of other servers may have any form."""
        pairs = (pair.strip().partition("=") for pair in header.split(";"))
        values = [value for name, _, value in pairs if name == self._cookie_name]
        return any(hmac.compare_digest(value.encode(), self._session.encode()) for value in values)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Does nothing if the browser has gone away; anything else is printed as a bug.

        Args:
            request: the socket.
            client_address: of the browser.
        """
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: UiServer
    protocol_version = "HTTP/1.1"
    server_version = "aoti-debug"
    sys_version = ""
    timeout = _IDLE_SECONDS

    def do_GET(self) -> None:
        """Answers with a page."""
        self._answer(self._page())

    def do_HEAD(self) -> None:
        """Answers with the head of a page."""
        self._answer(self._page())

    def _page(self) -> UiPage:
        address = urlsplit(self.path)
        if self.headers.get("Host", "") not in self.server.hosts:
            return _refused(HTTPStatus.MISDIRECTED_REQUEST, "This server has another name.")
        token = parse_qs(address.query).get("token", [""])[0]
        if token and self.server.has_token(token):
            return UiPage(_WELCOME)
        if not self.server.has_cookie(self.headers.get("Cookie", "")):
            return _refused(HTTPStatus.FORBIDDEN, "Open the address that aoti-debug ui has printed, with its token.")
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            return _refused(HTTPStatus.FORBIDDEN, "Another web site has asked for this page.")
        if address.path == "/favicon.ico":
            return UiPage("", HTTPStatus.NO_CONTENT)
        return self.server.pages.page(address.path, address.query)

    def _answer(self, page: UiPage) -> None:
        body = page.text.encode(errors="replace")
        self.send_response(page.status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Security-Policy", _STORED_POLICY if page.is_stored else _OWN_POLICY)
        if page.text is _WELCOME:
            self.send_header("Set-Cookie", self.server.cookie)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing: an address may hold the token."""


# The list is asked for by a page of this server: a browser sends the cookie then, wherever the first visit came from.
_WELCOME = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>aoti-debug</title>'
    '<meta http-equiv="refresh" content="0;url=/"></head><body><a href="/">results</a></body></html>'
)


def _refused(status: HTTPStatus, sentence: str) -> UiPage:
    return _message(status, "Refused", [sentence])

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
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from aoti_debug.app.ui.ui_pages import UiPage, UiPages
from aoti_debug.base.errors import UsageError
from aoti_debug.views.results.results_page import message_page

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
    return UiPage(message_page("Refused", [sentence]), status)

"""Opens pages in Debian's chromium, headless: one browser for all tests of a process, spoken to over a pipe.

The messages are those of the Chrome DevTools Protocol.
"""

from __future__ import annotations

import atexit
import base64
import functools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (apt-get install chromium)")

_TIMEOUT = 120.0  # seconds, for the answer to a command, and for an event
_LEFT = "Inspected target navigated or closed"
_FAST_CLOCK = 4000  # milliseconds of the page's clock, whose timers run at once
# What a browser of a user does as it starts, and a page does not need.
_NOTHING_ELSE = (
    *("--disable-extensions", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-default-apps", "--no-first-run"),
)
# What a page writes to the console, exceptions that nothing catches, what the browser says of it, and its dialogs.
_SAID = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded", "Page.javascriptDialogOpening")
_END = b"\0"

Message = dict[str, Any]

WIDTHS = (700, 1200, 1920)  # pixels of windows that pages are looked at in
# What reaches beyond the right edge of the window, outside of boxes that scroll; [] if the page fits.
BEYOND = """[...document.querySelectorAll("body *")]
  .filter((one) => !one.closest(".wide, .graph, .code, .tabulator, .skip, #flame, .tip"))
  .filter((one) => one.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .map((one) => `${one.tagName} ${one.className}`)"""


class Browser:
    """Shows pages, each in a tab of its own that shares nothing with others.

    Attributes:
        said: what the last page wrote to the console, script errors and dialogs included; JSON, one message per line.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.said = ""

    def dom(self, page: Path, fragment: str = "") -> str:
        """The page's elements as HTML, once its scripts have run."""
        with self._tab() as tab:
            tab.open(page, fragment)
            tab.run_timers()
            return tab.html()

    def live_dom(self, page: Path) -> str:
        """The same, with the clock on the wall: for measurements."""
        with self._tab() as tab:
            tab.open(page)
            return tab.html()

    def screenshot(self, page: Path, scheme: Literal["light", "dark"] = "light") -> Path:
        image = self._folder / "page.png"
        with self._tab() as tab:
            size = {"width": 1400, "height": 2000, "deviceScaleFactor": 1, "mobile": False}
            tab.ask("Emulation.setDeviceMetricsOverride", **size)
            preference = {"name": "prefers-color-scheme", "value": scheme}
            tab.ask("Emulation.setEmulatedMedia", features=[preference])
            tab.open(page)
            tab.run_timers()
            image.write_bytes(base64.b64decode(tab.ask("Page.captureScreenshot")["data"]))
        return image

    def measure(self, page: Path, width: int, expression: str) -> Any:
        """The value of an expression on a page, once its scripts have run in a window of this width."""
        with self._tab() as tab:
            tab.ask("Emulation.setDeviceMetricsOverride", width=width, height=1000, deviceScaleFactor=1, mobile=False)
            tab.open(page)
            tab.run_timers()
            return tab.ask("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    @contextmanager
    def visit(self, address: str, width: int = 1200) -> Iterator[Visit]:
        """An address that is served, in a window of this width."""
        with self._tab() as tab:
            tab.ask("Emulation.setDeviceMetricsOverride", width=width, height=1000, deviceScaleFactor=1, mobile=False)
            tab.ask("Page.navigate", url=address)
            yield Visit(tab)

    def pdf(self, page: Path) -> bytes:
        with self._tab() as tab:
            tab.open(page)
            tab.run_timers()
            return base64.b64decode(tab.ask("Page.printToPDF")["data"])

    @contextmanager
    def _tab(self) -> Iterator[_Tab]:
        with _chromium().tab() as tab:
            yield tab
            self.said = "\n".join(json.dumps(message) for message in tab.said)


class Visit:
    """What a user does on pages that are served."""

    def __init__(self, tab: _Tab) -> None:
        self._tab = tab

    @property
    def said(self) -> str:
        """What the pages wrote to the console, script errors included; JSON, one message per line."""
        return "\n".join(json.dumps(message) for message in self._tab.said)

    def value(self, expression: str) -> Any:
        """The value of an expression on the page that is shown."""
        return self._tab.ask("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Waits until an expression is true.

        Raises:
            TimeoutError: it is not.
        """
        deadline = time.monotonic() + _TIMEOUT
        while not self._is_true(condition):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{condition}: {self.value('document.body.innerText')}")
            time.sleep(0.05)

    def _is_true(self, condition: str) -> bool:
        """False also while the page is left for another one."""
        try:
            return self.value(condition) is True
        except RuntimeError as error:
            if _LEFT not in str(error):
                raise
            return False


class _Chromium:
    """A running browser; it ends when its pipe is closed."""

    def __init__(self) -> None:
        assert CHROMIUM is not None
        self._home = Path(tempfile.mkdtemp(prefix="aoti-debug-chromium-"))
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()
        command = [
            # It reads from descriptor 3 and writes to 4.
            *("bash", "-c", f'exec "$@" 3<&{commands} 4>&{answers}', "bash"),
            *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", *_NOTHING_ELSE),
            *("--remote-debugging-pipe", f"--user-data-dir={self._home / 'profile'}", "about:blank"),
        ]
        self._log = self._home / "log"
        with self._log.open("wb") as log:
            environment = os.environ | {"HOME": str(self._home)}
            streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            self._process = subprocess.Popen(command, pass_fds=(commands, answers), env=environment, **streams)
        os.close(commands)
        os.close(answers)
        self._unread = b""
        self._number = 0

    def end(self) -> None:
        os.close(self._commands)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._answers)
        shutil.rmtree(self._home, ignore_errors=True)

    @contextmanager
    def tab(self) -> Iterator[_Tab]:
        """A tab with cookies and storage of its own."""
        context = self.ask("Target.createBrowserContext", "", _ignore)["browserContextId"]
        target = {"url": "about:blank", "browserContextId": context}
        target_id = self.ask("Target.createTarget", "", _ignore, **target)["targetId"]
        session = self.ask("Target.attachToTarget", "", _ignore, targetId=target_id, flatten=True)["sessionId"]
        try:
            yield _Tab(self, session)
        finally:
            self.ask("Target.disposeBrowserContext", "", _ignore, browserContextId=context)

    def ask(self, method: str, session: str, handle: Callable[[Message], None], **parameters: object) -> Message:
        """The answer to a command.

        Args:
            session: that of a tab, or "" for the browser itself.
            handle: called with each event that arrives before.

        Raises:
            RuntimeError: the browser refuses it, has ended, or does not answer.
        """
        number = self.send(method, session, **parameters)
        while (message := self.receive()).get("id") != number:
            if "method" in message:
                handle(message)
        if "error" in message:
            raise RuntimeError(f"chromium: {method}: {message['error']}")
        result: Message = message["result"]
        return result

    def send(self, method: str, session: str, **parameters: object) -> int:
        """Returns the number of the command, which its answer has too."""
        self._number += 1
        command: Message = {"id": self._number, "method": method, "params": parameters}
        if session:
            command["sessionId"] = session
        rest = json.dumps(command).encode() + _END
        while rest:
            rest = rest[os.write(self._commands, rest) :]
        return self._number

    def receive(self) -> Message:
        """The next answer or event."""
        parts = [self._unread]
        deadline = time.monotonic() + _TIMEOUT
        while _END not in parts[-1]:
            ready, _, _ = select.select([self._answers], [], [], max(0, deadline - time.monotonic()))
            part = os.read(self._answers, 1 << 20) if ready else b""
            if not part:
                state = "has ended" if ready else "does not answer"
                raise RuntimeError(f"chromium {state}: {self._log.read_text(errors='replace')[-2000:]}")
            parts.append(part)
        text, _, self._unread = b"".join(parts).partition(_END)
        message: Message = json.loads(text)
        return message


class _Tab:
    """A tab of the browser.

    Attributes:
        said: the events that tell what the page says.
    """

    def __init__(self, chromium: _Chromium, session: str) -> None:
        self._chromium = chromium
        self._session = session
        self._seen: set[str] = set()
        self.said: list[Message] = []
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def open(self, page: Path, fragment: str = "") -> None:
        """Shows a page, until it is loaded."""
        self._seen.clear()
        self.ask("Page.navigate", url=page.absolute().as_uri() + fragment)
        self._wait_for("Page.loadEventFired")

    def run_timers(self) -> None:
        """Lets the timers of the page run as if some seconds passed."""
        self._seen.clear()
        self.ask("Emulation.setVirtualTimePolicy", policy="pauseIfNetworkFetchesPending", budget=_FAST_CLOCK)
        self._wait_for("Emulation.virtualTimeBudgetExpired")
        self.ask("Emulation.setVirtualTimePolicy", policy="advance")

    def html(self) -> str:
        found = self.ask("Runtime.evaluate", expression="document.documentElement.outerHTML")
        text: str = found["result"]["value"]
        return text

    def ask(self, method: str, **parameters: object) -> Message:
        return self._chromium.ask(method, self._session, self._handle, **parameters)

    def _wait_for(self, event: str) -> None:
        while event not in self._seen:
            message = self._chromium.receive()
            if "method" in message:
                self._handle(message)

    def _handle(self, event: Message) -> None:
        if event.get("sessionId") != self._session:
            return
        self._seen.add(event["method"])
        if event["method"] in _SAID:
            self.said.append(event)
        if event["method"] == "Page.javascriptDialogOpening":
            self._chromium.send("Page.handleJavaScriptDialog", self._session, accept=False)


def _ignore(event: Message) -> None:
    """Does nothing."""


@functools.cache
def _chromium() -> _Chromium:
    """The browser of this process."""
    chromium = _Chromium()
    atexit.register(chromium.end)
    return chromium

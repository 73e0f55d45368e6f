"""Opens pages in Debian's chromium, headless."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_FAST_CLOCK = ("--virtual-time-budget=4000",)  # timers run at once
# What a browser of a user does as it starts, and a page does not need.
_NOTHING_ELSE = (
    *("--disable-extensions", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-default-apps", "--no-first-run"),
)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (apt-get install chromium)")


class Browser:
    """One profile for all pages of a test.

    Attributes:
        said: what the pages wrote to the console, script errors included.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.said = ""

    def dom(self, page: Path, fragment: str = "") -> str:
        """The page's elements as HTML, once its scripts have run."""
        return self._run(page, fragment, "--dump-dom", *_FAST_CLOCK).stdout

    def live_dom(self, page: Path) -> str:
        """The same, with the clock on the wall: for measurements."""
        return self._run(page, "", "--dump-dom", "--timeout=15000").stdout

    def screenshot(self, page: Path, *options: str, fragment: str = "") -> Path:
        image = self._folder / "page.png"
        self._run(page, fragment, f"--screenshot={image}", "--window-size=1400,2000", *_FAST_CLOCK, *options)
        return image

    def pdf(self, page: Path) -> bytes:
        paper = self._folder / "page.pdf"
        self._run(page, "", f"--print-to-pdf={paper}", *_FAST_CLOCK)
        return paper.read_bytes()

    def _run(self, page: Path, fragment: str, *options: str) -> subprocess.CompletedProcess[str]:
        assert CHROMIUM is not None
        command = [
            *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *_NOTHING_ELSE,
            *("--enable-logging=stderr", "--log-level=0"),
            f"--user-data-dir={self._folder / 'profile'}",
            *options,
            page.absolute().as_uri() + fragment,
        ]
        environment = os.environ | {"HOME": str(self._folder)}
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, env=environment)
        self.said = "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)
        return done

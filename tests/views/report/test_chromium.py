"""What a page does in the browser of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.views.report.chromium import Browser, needs_chromium

pytestmark = needs_chromium


def show(folder: Path, body: str, head: str = "") -> tuple[str, str]:
    """The elements of a page, and what it said."""
    page = folder / "page.html"
    page.write_text(f"<!doctype html><html><head>{head}</head><body>{body}</body></html>")
    browser = Browser(folder)
    return browser.dom(page, "#part"), browser.said


def test_timers_have_run(tmp_path: Path) -> None:
    late = "<script>setTimeout(() => document.body.append(`late in ${location.hash}`), 3000)</script>"
    dom, said = show(tmp_path, late)
    assert "</script>late in #part" in dom
    assert said == ""


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("<script>console.log('a message')</script>", "a message"),
        ("<script>throw new Error('uncaught')</script>", "uncaught"),
        ("<script>setTimeout(() => { throw new Error('uncaught') }, 3000)</script>", "uncaught"),
        ("<script>alert('a dialog')</script>", "a dialog"),
        ("<img src='missing.png'>", "ERR_FILE_NOT_FOUND"),
    ],
)
def test_what_a_page_says(tmp_path: Path, body: str, said: str) -> None:
    assert said in show(tmp_path, body)[1]


def test_what_a_policy_forbids_is_said(tmp_path: Path) -> None:
    policy = "<meta http-equiv='Content-Security-Policy' content=\"script-src 'none'\">"
    dom, said = show(tmp_path, "<script>document.body.append('it ran')</script>", policy)
    assert "Content Security Policy" in said
    assert "it ran</body>" not in dom


def test_pages_share_nothing(tmp_path: Path) -> None:
    keep = "<script>document.body.append(`before: ${localStorage.kept}`); localStorage.kept = 'a value'</script>"
    assert "before: undefined" in show(tmp_path, keep)[0]
    assert "before: undefined" in show(tmp_path, keep)[0]

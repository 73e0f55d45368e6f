"""Folders of the checkout that tests read from."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
CPP = TESTS / "cpp"
SMALL_LIBRARY = CPP / "small_library"
GOLDEN = TESTS / "golden"
RECORDED = TESTS / "recorded"
PACKAGE = ROOT / "aoti_debug"


def package_sources() -> list[Path]:
    """Returns the Python files of the package, without the templates of repros."""
    linked = (PACKAGE / "repro").rglob("*.py")  # rglob follows no link
    return sorted(path for path in {*PACKAGE.rglob("*.py"), *linked} if "templates" not in path.parts)

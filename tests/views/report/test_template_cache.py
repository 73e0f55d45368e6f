from __future__ import annotations

from pathlib import Path

import jinja2
import pytest

from aoti_debug.base.machine import cache
from aoti_debug.views.report import template_cache
from aoti_debug.views.report.template_cache import TemplateCache


class CountingEnvironment(jinja2.Environment):
    """Counts the templates that it compiles."""

    compiled = 0

    def _generate(self, *args: object, **fields: object) -> str:
        self.compiled += 1
        return super()._generate(*args, **fields)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return cache.directory() / template_cache.KIND


def rendered(source: str = "{{ name }} is {{ 1 + 1 }}") -> tuple[str, int]:
    """The text, and how many templates were compiled for it."""
    environment = CountingEnvironment(loader=jinja2.DictLoader({"page": source}), bytecode_cache=TemplateCache())
    return environment.get_template("page").render(name="it"), environment.compiled


def test_a_template_is_compiled_once() -> None:
    assert [rendered(), rendered()] == [("it is 2", 1), ("it is 2", 0)]
    assert rendered("{{ name }}, changed") == ("it, changed", 1)


@pytest.mark.parametrize("kept", [0, 10, 40, -1])
def test_a_damaged_file_is_not_used(folder: Path, kept: int) -> None:
    rendered()
    (file,) = folder.rglob("*.bin")
    file.write_bytes(file.read_bytes()[:kept])
    assert rendered() == ("it is 2", 1)


def test_a_file_of_another_user_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered()
    monkeypatch.setattr("os.getuid", lambda: -1)
    assert rendered() == ("it is 2", 1)


def test_a_cache_that_cannot_be_written(folder: Path) -> None:
    folder.write_text("no folder")
    assert [rendered(), rendered()] == [("it is 2", 1), ("it is 2", 1)]

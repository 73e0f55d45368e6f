"""Readers of untrusted input: damaged contents end in one clear error, never in a bug."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.fuzz import changed, readers

CORPUS = Path(__file__).parent / "corpus"
READERS = {reader.name: reader for reader in readers.readers()}
EXAMPLES = 12


@pytest.mark.parametrize("name", READERS)
def test_damaged_contents(name: str, tmp_path: Path) -> None:
    reader = READERS[name]
    numbers = itertools.count()

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(data=changed.contents(reader))
    def readable_or_refused(data: bytes) -> None:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        readers.check(reader, data, folder)

    readable_or_refused()


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*/*")), ids=lambda path: f"{path.parent.name}-{path.name}")
def test_contents_that_once_failed(path: Path, tmp_path: Path) -> None:
    readers.check(READERS[path.parent.name], path.read_bytes(), tmp_path)


def test_a_bug_is_noticed(tmp_path: Path) -> None:
    def fails(data: bytes, folder: Path) -> None:
        if data != b"{}":
            raise KeyError("a bug")

    reader = readers.Reader("planted", fails, lambda: [b"{}"], "json")

    @settings(max_examples=50, derandomize=True, database=None)
    @given(data=changed.contents(reader))
    def readable_or_refused(data: bytes) -> None:
        readers.check(reader, data, tmp_path)

    with pytest.raises(KeyError):
        readable_or_refused()


@given(code=st.sampled_from([0, 1, 7, 70]))
@settings(derandomize=True, database=None)
def test_exit_codes_that_are_no_error(code: int) -> None:
    with pytest.raises(readers.UnclearError):
        readers.check_error(code, "a clear line")


@pytest.mark.parametrize("text", ["", "two\nlines", "x" * 10_000])
def test_unclear_lines(text: str) -> None:
    with pytest.raises(readers.UnclearError):
        readers.check_error(3, text)

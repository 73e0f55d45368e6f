"""The list of changes that no test can tell from the original."""

from __future__ import annotations

from benchmarks.quality.mutants import EQUIVALENT
from tests.paths import ROOT


def test_the_changes_that_are_left_out_are_of_files_that_exist() -> None:
    files = {line.partition(": ")[0] for line in EQUIVALENT.read_text().splitlines() if line}
    assert files
    assert [name for name in sorted(files) if not (ROOT / name).is_file()] == []

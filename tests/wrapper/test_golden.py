"""What is found in real wrappers, and what they become: golden files, `--update-golden` writes them anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import texts
from listing import listing

from aoti_debug.builder.instrument import instrument

Check = Callable[[Path, str], None]


@pytest.mark.parametrize("name", texts.NAMES)
def test_sites(name: str, golden: Check) -> None:
    found = texts.analysis(name)
    golden(texts.GOLDEN / f"{name}.sites.txt", listing(found.sites, found.kernels, found.unrecognised))


@pytest.mark.parametrize("name", texts.NAMES)
def test_instrumented_text(name: str, golden: Check) -> None:
    found = texts.analysis(name)
    golden(texts.GOLDEN / f"{name}.instrumented.txt", instrument(texts.text(name), found.sites, found.kernels))

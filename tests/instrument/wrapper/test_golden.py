"""Sites and instrumented texts of real wrappers, as golden files; `--update-golden` rewrites them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from aoti_debug.instrument.builder.instrument import instrument
from aoti_debug.instrument.wrapper.analysis import analyse
from tests.instrument.wrapper import texts
from tests.instrument.wrapper.listing import listing

Check = Callable[[Path, str], None]


@pytest.mark.parametrize("name", texts.NAMES)
def test_sites(name: str, golden: Check) -> None:
    analysis = texts.analysis(name)
    golden(texts.WRAPPERS / f"{name}.sites.txt", listing(analysis.sites, analysis.kernels, analysis.unrecognised))


@pytest.mark.parametrize("name", texts.NAMES)
def test_instrumented_text(name: str, golden: Check) -> None:
    analysis = texts.analysis(name)
    golden(texts.WRAPPERS / f"{name}.instrumented.txt", instrument(texts.text(name), analysis))


def test_a_wrapper_with_its_entry_point_twice() -> None:
    text = texts.text("sizes")
    shims = [(texts.WRAPPERS / "shim.h.txt").read_text()]
    once, twice = (analyse(t, headers=shims, operators=texts.OPERATORS) for t in (text, text + text))
    assert twice.outputs == once.outputs

"""The environment: levels, filters, numbers, and values that are not understood."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from aoti_debug.base.abi import Level
from tests.runtime_shims.journal_decoder import Journal
from tests.runtime_shims.runtime_library import Handle, Runtime, Slot

Load = Callable[..., Runtime]
Decode = Callable[[], Journal]


@pytest.fixture(scope="module")
def lib(library: Path) -> Any:
    return ctypes.CDLL(str(library))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("0", 0), ("17", 17), ("4k", 4096), ("4K", 4096), ("3M", 3 << 20), ("1g", 1 << 30), ("2T", 2 << 40)),
        *(("", None), ("K", None), ("1.5G", None), ("-1", None), ("12 M", None), ("1KB", None), ("1 ", None)),
        *(("99999999999999999999", None), ("18446744073709551615", 2**64 - 1), ("18446744073709551615K", None)),
    ],
)
def test_numbers(lib: Any, text: str, expected: int | None) -> None:
    value = ctypes.c_uint64(123)
    assert lib.h_parse_bytes(text.encode(), ctypes.byref(value)) == (expected is not None)
    assert value.value == (123 if expected is None else expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("3", (0, 0, 3)), ("0.3", (0, 0, 3)), ("12.34", (0, 12, 34)), ("c0.1", (1, 0, 1)), ("c2", (1, 0, 2))),
        *(("", None), ("c", None), ("1.", None), (".1", None), ("1.2.3", None), ("x", None), ("1.2x", None)),
    ],
)
def test_launches(lib: Any, text: str, expected: tuple[int, int, int] | None) -> None:
    found = [ctypes.c_uint32() for _ in range(3)]
    assert lib.h_parse_launch(text.encode(), *map(ctypes.byref, found)) == (expected is not None)
    if expected is not None:
        assert tuple(number.value for number in found) == expected


@pytest.mark.parametrize(
    ("patterns", "kernel", "expected"),
    [
        *(("", "k", True), ("k", "k", True), ("k", "K", False), ("triton_*", "triton_poi_0", True)),
        *(("a,b", "b", True), (" a , b ", "b", True), ("a,,b", "c", False)),
        *(("!*_1", "k_1", False), ("!*_1", "k_2", True), ("k_*,!*_1", "k_2", True), ("k_*,!*_1", "k_1", False)),
        *(("k_[0-3]", "k_2", True), ("k_?", "k_22", False), ("*::op.default", "mylib::op.default", True)),
    ],
)
def test_filter(lib: Any, patterns: str, kernel: str, expected: bool) -> None:
    assert lib.h_filter_matches(patterns.encode(), 0, kernel.encode()) == expected


@pytest.mark.parametrize(("names", "expected"), [("Triton_K,other", True), ("triton_*", False), ("other", False)])
def test_filter_of_the_built_in_printer(lib: Any, names: str, expected: bool) -> None:
    assert lib.h_filter_matches(names.encode(), 1, b"triton_k") == expected


def test_level(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    printer = "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER"
    assert load().lib.h_level() == 3  # baked
    monkeypatch.setenv(printer, "2")
    assert load().lib.h_level() == 2
    assert load(LEVEL=1).lib.h_level() == 1
    assert load(LEVEL=0).lib.h_level() == 0
    assert load(LEVEL="hash").lib.h_level() == Level.HASH
    assert load(LEVEL="").lib.h_level() == 2
    monkeypatch.setenv(printer, "0")
    assert load().lib.h_level() == 0


def shown(load: Load, capfd: pytest.CaptureFixture[str], baked: str = "", **variables: object) -> list[str]:
    """The kernels that level 3 prints of k_0, k_1 and other."""
    runtime = load(**variables)
    ctypes.memmove(runtime.lib.h_filter(), baked.encode(), len(baked))
    sites = [runtime.site(i, name) for i, name in enumerate(("k_0", "k_1", "other"))]
    with runtime.call():
        for site in sites:
            with runtime.launch(site):
                pass
    runtime.unload()
    lines = capfd.readouterr().err.splitlines()
    return [line.split()[-1] for line in lines if " before " in line]


def test_filters_by_precedence(
    load: Load, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert shown(load, capfd, RUN=None, DIR=tmp_path / "runs") == ["k_0", "k_1", "other"]
    assert shown(load, capfd, baked="other") == ["other"]
    monkeypatch.setenv("AOT_INDUCTOR_FILTERED_KERNELS_TO_PRINT", "K_1")
    assert shown(load, capfd, baked="other") == ["k_1"]
    assert shown(load, capfd, baked="other", FILTER="k_*") == ["k_0", "k_1"]
    assert shown(load, capfd, baked="other", FILTER="") == ["k_0", "k_1", "other"]
    assert shown(load, capfd, LAUNCH="0.1", FILTER="") == ["k_1"]
    assert shown(load, capfd, LAUNCH="2", PRINT="stderr") == ["other"]
    assert shown(load, capfd, LAUNCH="2,0.0") == ["k_0", "other"]
    assert shown(load, capfd, PRINT="none") == []


ORIGINS = {  # by kernel: modules and lines
    "fused": ("encoder.layers.0.norm1\nencoder.layers.1", "/home/u/model.py:30"),
    "head": ("head", "/home/u/model.py:30\n/home/u/layers.py:7"),
    "own": ("", "/home/u/model.py:4"),
}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"MODULE": "encoder"}, ["fused"]),
        ({"MODULE": "encoder.layers.1.*"}, []),
        ({"MODULE": "*.norm?,head"}, ["fused", "head"]),
        ({"MODULE": "!head"}, ["fused", "own"]),
        ({"MODULE": "encoder,!*.norm1"}, []),
        ({"LINE": "model.py:30"}, ["fused", "head"]),
        ({"LINE": "u/layers.py:7"}, ["head"]),
        ({"LINE": "*.py:4"}, ["own"]),
        ({"LINE": "odel.py:30"}, []),
        ({"LINE": "model.py:30", "MODULE": "head", "FILTER": "h*"}, ["head"]),
    ],
)
def test_filters_of_modules_and_lines(
    load: Load, capfd: pytest.CaptureFixture[str], journal: Decode, variables: dict[str, str], expected: list[str]
) -> None:
    """The same cases as in tests/package/test_recording_settings.py."""
    runtime = load(**variables)
    for number, (kernel, (modules, lines)) in enumerate(ORIGINS.items()):
        runtime.site(number, kernel, modules=modules, lines=lines)
    with runtime.call():
        for number in range(len(ORIGINS)):
            with runtime.launch(number):
                pass
    runtime.unload()
    printed = [line.split()[-1] for line in capfd.readouterr().err.splitlines() if " before " in line]
    assert printed == expected
    note = "no launch of this package is in the chosen modules and lines"
    assert [record.text for record in journal().of("note")] == ([] if expected else [note])


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("LEVEL", "7", "AOTI_DEBUG_LEVEL=7 is not 0, 1, 2, 3 or hash; using 3"),
        ("PHASE", "later", "AOTI_DEBUG_PHASE=later is not before, after or both; using the default"),
        ("MAX_BYTES", "lots", "AOTI_DEBUG_MAX_BYTES=lots is not a number such as 512M; using the default"),
        ("CRUMB_EVERY", "0", "AOTI_DEBUG_CRUMB_EVERY=0 is not a number from 1; using the default"),
        (
            "LAUNCH",
            "first",
            "AOTI_DEBUG_LAUNCH=first is not CALL.LAUNCH such as 0.3, or several with commas; using every launch",
        ),
        (
            "LAUNCH",
            "0.1,",
            "AOTI_DEBUG_LAUNCH=0.1, is not CALL.LAUNCH such as 0.3, or several with commas; using every launch",
        ),
        *(
            (
                "JITTER",
                value,
                f"AOTI_DEBUG_JITTER={value} is not a seed such as 7, or one with numbers of launches such as 7:0,3; "
                "using no delays",
            )
            for value in ("often", "7:", "7:0,", "-1")
        ),
        ("SUMMARIES", "often", "AOTI_DEBUG_SUMMARIES=often is not a number of calls, such as 1; using no summaries"),
        ("FLIGHT", "99999", "AOTI_DEBUG_FLIGHT=99999 is not a number up to 65536; using 65536"),
        ("PRINT", "stdout", "AOTI_DEBUG_PRINT=stdout is not stderr or none; using stderr"),
    ],
)
def test_value_that_is_not_understood(
    load: Load, journal: Decode, capfd: pytest.CaptureFixture[str], name: str, value: str, line: str
) -> None:
    runtime = load(**{name: value})
    site = runtime.site(0, "k", Slot("x"))
    handle = Handle(torch.ones(1))
    assert runtime.lib.h_level() == 3
    for _ in range(2):
        with runtime.call(), runtime.launch(site, handle.value):
            pass
    runtime.unload()
    lines = capfd.readouterr().err.splitlines()
    assert [text for text in lines if "aoti-debug" in text] == [f"aoti-debug: {line}"]
    assert [(r.code, r.text) for r in journal().of("note")] == [(3, line)]
    assert len(journal().of("launch_end")) == 2


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("FILTR", "AOTI_DEBUG_FILTR is not known; perhaps AOTI_DEBUG_FILTER"),
        ("LEVELS", "AOTI_DEBUG_LEVELS is not known; perhaps AOTI_DEBUG_LEVEL"),
        ("SOMETHING", "AOTI_DEBUG_SOMETHING is not known"),
    ],
)
def test_a_misspelt_variable_is_named(
    load: Load, tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    runtime = load(RUN=None, DIR=tmp_path / "runs", **{name: "1"})
    assert runtime.lib.h_level() == 3
    runtime.unload()
    assert said in [line.partition(": ")[2] for line in capfd.readouterr().err.splitlines()]


def test_what_a_parent_has_said_is_not_said_again(
    load: Load, journal: Callable[[], Journal], capfd: pytest.CaptureFixture[str]
) -> None:
    runtime = load(FILTR="1")
    assert runtime.lib.h_level() == 3
    runtime.unload()
    assert "FILTR" not in capfd.readouterr().err

"""Compares every constant and struct of abi.py, flight_recorder_format.py and manifest.py with the C headers."""

from __future__ import annotations

import ctypes
import re
import struct
from enum import Enum
from pathlib import Path

import pytest

from aoti_debug.base import abi, dtypes
from aoti_debug.package import manifest
from aoti_debug.runs.run import running_process
from aoti_debug.runs.rundir import flight_recorder, summaries
from aoti_debug.runs.rundir.threads_json import CallState
from tests.paths import ROOT

SHIMS = ROOT / "runtime_shims"
FORMATS = tuple(
    f"formats/{name}.h" for name in ("journal_format", "flight_recorder_format", "summaries_format", "control_format")
)
HEADERS = "\n".join((SHIMS / name).read_text() for name in ("aoti_debug.h", *FORMATS))
CODE = re.sub(r"//[^\n]*", "", HEADERS)

STRUCTS = (*abi.STRUCTS, *flight_recorder.STRUCTS, *summaries.STRUCTS, *running_process.STRUCTS)

ENUMS: dict[str, tuple[str, type[Enum]]] = {
    "AotiDebugForm": ("AOTI_DEBUG_", manifest.Form),
    "AotiDebugRole": ("AOTI_DEBUG_ROLE_", manifest.Role),
    "AotiDebugType": ("AOTI_DEBUG_", manifest.CType),
    "AotiDebugLaunchAction": ("AOTI_DEBUG_", abi.Action),
    "AotiDebugCallKind": ("AOTI_DEBUG_CALL_", abi.CallKind),
    "Level": ("LEVEL_", abi.Level),
    "RecordType": ("RECORD_", abi.RecordType),
    "CallFlag": ("CALL_", abi.CallFlag),
    "RunEndFlag": ("RUN_END_", abi.RunEndFlag),
    "ValueTag": ("VALUE_", abi.ValueTag),
    "LaunchFlag": ("LAUNCH_", abi.LaunchFlag),
    "Phase": ("PHASE_", abi.Phase),
    "SaveStatus": ("SAVE_", abi.SaveStatus),
    "StatsFlag": ("STATS_", abi.StatsFlag),
    "FaultDomain": ("FAULT_", abi.FaultDomain),
    "WatchStatistic": ("WATCH_", abi.WatchStatistic),
    "WatchAction": ("WATCH_", abi.WatchAction),
    "NoteCode": ("NOTE_", abi.NoteCode),
    "ControlDelay": ("DELAY_", running_process.ControlDelay),
    "FlightStatus": ("FLIGHT_", flight_recorder.FlightStatus),
}

C_TYPES = {
    "char": "s",
    "uint8_t": "B",
    "uint16_t": "H",
    "int16_t": "h",
    "uint32_t": "I",
    "int32_t": "i",
    "uint64_t": "Q",
    "int64_t": "q",
    "double": "d",
}


def header_enums() -> dict[str, dict[str, int]]:
    return {
        name: {key: int(value, 0) for key, value in re.findall(r"(\w+)\s*=\s*(\w+)", body)}
        for name, body in re.findall(r"typedef enum (\w+) \{(.*?)\}", CODE, re.DOTALL)
    }


def header_structs() -> dict[str, list[tuple[str, str]]]:
    """Structs of the files: name -> (field, `struct` format)."""
    files = "".join((SHIMS / name).read_text() for name in FORMATS)
    code = re.sub(r"//[^\n]*", "", files)
    return {
        name: [
            (field, f"{count}{C_TYPES[type_]}")
            for type_, field, count in re.findall(r"(\w+)\s+(\w+)(?:\[(\d+)\])?\s*;", body)
        ]
        for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\}", code, re.DOTALL)
    }


def define(name: str) -> str:
    match = re.search(rf"^#define {name} (\S+)", CODE, re.MULTILINE)
    assert match, f"no #define {name}"
    return match[1]


def test_every_enum_of_the_headers_has_a_twin() -> None:
    assert set(header_enums()) == set(ENUMS)


@pytest.mark.parametrize("name", ENUMS)
def test_enum_values(name: str) -> None:
    prefix, twin = ENUMS[name]
    assert header_enums()[name] == {f"{prefix}{member.name}": member.value for member in twin}


def test_every_struct_of_the_journal_has_a_twin() -> None:
    assert set(header_structs()) == {s.name for s in STRUCTS}


@pytest.mark.parametrize("twin", STRUCTS, ids=lambda s: s.name)
def test_struct_fields(twin: abi.Struct) -> None:
    assert list(twin.fields) == header_structs()[twin.name]


@pytest.mark.parametrize("twin", STRUCTS, ids=lambda s: s.name)
def test_struct_size_and_alignment(twin: abi.Struct) -> None:
    asserted = re.search(rf"static_assert\(sizeof\({twin.name}\) == (\d+)", CODE)
    assert asserted
    assert twin.size == int(asserted[1])
    # A C compiler aligns fields naturally: it must find nothing to pad.
    assert struct.calcsize("@" + "".join(f for _, f in twin.fields)) == twin.size


def test_defines() -> None:
    assert int(define("AOTI_DEBUG_ABI").rstrip("u")) == abi.ABI_VERSION
    assert define("AOTI_DEBUG_JOURNAL_MAGIC").strip('"').encode() == abi.JOURNAL_MAGIC
    assert int(define("AOTI_DEBUG_JOURNAL_VERSION").rstrip("u")) == abi.JOURNAL_VERSION
    assert int(define("AOTI_DEBUG_BLOCK_BYTES").rstrip("u")) == abi.BLOCK_BYTES
    assert int(define("AOTI_DEBUG_BLOCK_MAGIC").rstrip("u"), 16) == abi.BLOCK_MAGIC
    assert int(define("AOTI_DEBUG_MAX_DIMS")) == abi.MAX_DIMS
    assert f'"{abi.CRUMB_MAGIC.decode()}"' in HEADERS
    assert define("AOTI_DEBUG_FLIGHT_MAGIC").strip('"').encode() == flight_recorder.MAGIC
    assert int(define("AOTI_DEBUG_FLIGHT_VERSION").rstrip("u")) == flight_recorder.VERSION
    assert define("AOTI_DEBUG_SUMMARIES_MAGIC").strip('"').encode() == summaries.MAGIC
    assert int(define("AOTI_DEBUG_SUMMARIES_VERSION").rstrip("u")) == summaries.VERSION


def test_environment_variables_are_those_that_the_runtime_reads() -> None:
    read = set(
        re.findall(r'"(AOTI_DEBUG_[A-Z_]+|AOT_INDUCTOR_[A-Z_]+)"', (SHIMS / "run/configuration.cpp").read_text())
    )
    assert read == {variable.value for variable in abi.Variable}


def test_the_runtime_knows_every_variable() -> None:
    known = set(re.findall(r'"(AOTI_DEBUG_[A-Z_]+[A-Z])"', (SHIMS / "run/unknown_variables.cpp").read_text()))
    assert known == {variable.value for variable in abi.Variable if variable.value.startswith("AOTI_DEBUG_")}


def test_dtypes_are_torchs() -> None:
    torch = pytest.importorskip("torch")
    header = Path(torch.__file__).parent / "include/torch/headeronly/core/ScalarType.h"
    if not header.exists():
        header = Path(torch.__file__).parent / "include/c10/core/ScalarType.h"
    numbered = dict(re.findall(r"_\(.*, (\w+)\) /\* (\d+) \*/", header.read_text()))
    known, newer = dtypes.DTYPES[: len(numbered)], dtypes.DTYPES[len(numbered) :]
    assert sorted(map(int, numbered.values())) == list(range(len(known)))
    for dtype in known:
        assert getattr(torch, dtype.name).itemsize == dtype.item_bytes, dtype
    assert [dtype for dtype in newer if hasattr(torch, dtype.name)] == []


def test_dtype_numbers_are_those_of_tensors() -> None:
    torch = pytest.importorskip("torch")
    shim = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    names = ("float32", "float64", "float16", "bfloat16", "complex64", "bool", "uint8", "int64", "uint16", "uint64")
    for name in (*names, "float8_e5m2", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2fnuz"):
        number = getattr(shim, f"aoti_torch_dtype_{name}")()
        assert dtypes.name_of_number(number) == name


def test_devices_and_layouts_are_torchs() -> None:
    torch = pytest.importorskip("torch")
    include = Path(torch.__file__).parent / "include"
    texts = [
        path.read_text()
        for folder in ("torch/headeronly/core", "c10/core")
        for path in (include / folder / "DeviceType.h", include / folder / "Layout.h")
        if path.exists()
    ]
    devices = re.search(r"enum class DeviceType[^{]*\{(.*?)\}", "\n".join(texts), re.DOTALL)
    layouts = re.search(r"enum class Layout[^{]*\{(.*?)\}", "\n".join(texts), re.DOTALL)
    assert devices
    assert layouts
    numbers = {int(n): name.lower() for name, n in re.findall(r"(\w+) = (\d+)", devices[1]) if "MAX" not in name}
    assert numbers == {**dict(enumerate(dtypes.DEVICE_TYPES)), 20: "privateuse1"}
    names = [name for name in re.findall(r"\w+", layouts[1]) if name != "NumOptions"]
    spelled = {"sparse_coo": "sparse"}
    assert [name.lower() for name in names] == [spelled.get(name, name).replace("_", "") for name in dtypes.LAYOUTS]


def test_names_of_unknown_numbers() -> None:
    assert dtypes.device_name(1, 3) == "cuda:3"
    assert dtypes.device_name(0, -1) == "cpu"
    assert dtypes.device_name(0, 0) == "cpu"
    assert dtypes.layout_name(77) == "layout77"


def test_the_outcomes_of_calls_of_threads_are_those_of_the_host() -> None:
    header = (SHIMS / "threads/thread_host.h").read_text()
    names = {int(number): name for name, number in re.findall(r"THREAD_CALL_(\w+) = (\d+)", header)}
    assert [names[number] for number in sorted(names)] == [state.name for state in CallState]

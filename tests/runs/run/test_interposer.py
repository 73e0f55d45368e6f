"""Calls of a library like a model's, recorded by the two interposing libraries: arguments, results, launches."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.base.machine.compiler import find_compiler, find_torch
from aoti_debug.instrument.builder.compiling.runtime_objects import THIS_MACHINE
from aoti_debug.instrument.builder.compiling.site_tables import sites_cpp
from aoti_debug.instrument.builder.compiling.toolchain import Toolchain
from aoti_debug.runs.run import interposer
from aoti_debug.runs.run.interposed_symbols import OTHER_KERNEL, interposed_symbols
from aoti_debug.runs.run.interposer import device_kernel, include_dirs, libraries
from aoti_debug.runs.rundir import run_directory
from aoti_debug.runs.rundir.launch import LaunchStatus
from aoti_debug.runs.rundir.run_directory import RunDir
from tests import factories

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="calls are interposed on x86-64 only"),
]
HERE = Path(__file__).resolve().parent
CALLED = ("cpp_fused_sum_0", "cpp_fused_throwing_1", "cuLaunchKernel", "cuModuleGetFunction")
KERNELS = ("triton_a", "b_failing")
HOST = """
import ctypes, json, sys, torch
front, recorder, model, other = sys.argv[1:]
recorder = ctypes.CDLL(recorder)
recorder.aoti_debug_interposer_hooks.restype = ctypes.c_void_p
front = ctypes.CDLL(front, mode=ctypes.RTLD_GLOBAL)
front.aoti_debug_interposer_attach(ctypes.c_void_p(recorder.aoti_debug_interposer_hooks()))
model, other = ctypes.CDLL(model), ctypes.CDLL(other)
model.run_sum.restype = ctypes.c_double
model.run_sum()
recorder.aoti_debug_interposer_begin(None)
results = [
    model.run_sum(),
    model.run_throwing(ctypes.c_long(3)),
    model.run_throwing(ctypes.c_long(100)),
    other.run_kernel(b"triton_a"),
    model.run_kernel(b"triton_a"),
    model.run_kernel(b"kernel_of_another_library"),
    model.run_kernel(b"b_failing"),
    model.run_sum(),
]
recorder.aoti_debug_interposer_end(0)
model.run_sum()
print(json.dumps(results))
"""


def compiled(folder: Path, name: str, source: str, *words: str) -> Path:
    path = folder / name
    command = [find_compiler().path, "-O1", "-shared", "-fPIC", str(HERE / source), *words, "-o", str(path)]
    subprocess.run(command, check=True)
    return path


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[float], RunDir]:
    """The results of the functions, and the recorded run."""
    folder = tmp_path_factory.mktemp("interposed")
    driver = compiled(folder, "libdriver.so", "driver.cpp")
    link = (f"-L{driver.parent}", "-ldriver", f"-Wl,-rpath,{driver.parent}")
    model = compiled(folder, "model.so", "model.cpp", *link)
    other = compiled(folder, "other.so", "model.cpp", "-DOTHER", *link)
    symbols = interposed_symbols(CALLED, {}, (), KERNELS)
    kernels = [device_kernel(name, i) for i, name in enumerate((*KERNELS, OTHER_KERNEL))]
    described = factories.make_manifest(*(site for symbol in symbols for site in symbol.sites), kernels=kernels)
    tools = Toolchain(find_compiler(), find_torch())
    flags = replace(
        THIS_MACHINE,
        include_dirs=include_dirs("cpu", tools.torch),
        libraries_dirs=(f"{tools.torch.directory}/lib",),
        libraries=("torch_cpu",),
    )
    generated = {
        "entries.cpp": interposer.entries(symbols),
        "table.cpp": interposer.table(symbols),
        "sites.cpp": sites_cpp(described),
    }
    front, recorder = libraries(tools, "cpu", flags, generated, described.json_text)
    done = subprocess.run(
        [sys.executable, "-c", HOST, *map(str, (front, recorder, model, other))],
        env={**os.environ, "AOTI_DEBUG_DIR": str(folder / "runs"), "AOTI_DEBUG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout), run_directory.open_run(folder / "runs")


def test_every_argument_arrives_and_every_result_comes_back(ran: tuple[list[float], RunDir]) -> None:
    results, _ = ran
    total = 1.5 + 2 + 3.5 + 4 + 5.5 + 6 + 7.5 + 8 + 9.5 + 10 + 11.5 + 12 + 13.5 + 14 + 15.5 + 1 + 17.5
    assert results == [total, 0, 1, 0, 0, 0, 700, total]


def test_launches_of_the_model_within_a_call_are_recorded_in_order(ran: tuple[list[float], RunDir]) -> None:
    _, run = ran
    assert [launch.kernel for launch in run.launches] == [
        "cpp_fused_sum_0",
        "cpp_fused_throwing_1",
        "cpp_fused_throwing_1",
        "triton_a",
        OTHER_KERNEL,
        "b_failing",
        "cpp_fused_sum_0",
    ]


def test_an_exception_passes_through_and_is_its_launch_s_fault(ran: tuple[list[float], RunDir]) -> None:
    _, run = ran
    failed = [launch for launch in run.launches if launch.status is LaunchStatus.FAILED]
    faults = [(launch.id, launch.fault.text if launch.fault else "") for launch in failed]
    assert faults == [("0.2", "index out of bounds"), ("0.5", "cuLaunchKernel returned CUDA error 700")]


def test_a_device_kernel_s_launch_has_its_grid(ran: tuple[list[float], RunDir]) -> None:
    _, run = ran
    (grid,) = run.launch("0.3").grids
    assert (grid.kernel, grid.grid, grid.num_warps, grid.shared_bytes) == ("triton_a", (2, 3, 4), 4, 64)

"""`--repeat` and `--bench`."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from aoti_debug.package.manifest import CType, Form, Kind, Role
from tests.repro.repro_launches import ADD_ONE, LaunchBuilder, cpp_repro, replay, write

TITLE = "0.3 cpp_fused_planted_0"


def test_results_that_vary_are_a_race(tmp_path: Path) -> None:
    folder = cpp_repro(tmp_path, f"{ADD_ONE} out_ptr0[3] += launches++;", declared="static int launches = 0;")
    done = replay(folder, "--repeat", "5")
    assert done.stdout == (
        f"{TITLE}: results VARY between launches from the same inputs, in buf0\n"
        "  buf0  4 of 4 further launches differ from the first, in 1 of 64 elements: "
        "at (3,) 4.0 in launch 1, 5.0 in launch 2\n"
    ), done.stderr
    assert done.returncode == 10


def test_a_missing_atomic_shows(tmp_path: Path) -> None:
    body = (
        "out_ptr0[0] = 0;\n#pragma omp parallel for num_threads(8)\n"
        "    for (int64_t i = 0; i < 4000000; ++i) *(volatile float*)out_ptr0 = out_ptr0[0] + 1;"
    )
    done = replay(cpp_repro(tmp_path, body), "--repeat", "20")
    assert re.search(
        r"buf0  \d+ of 19 further launches differ from the first, in 1 of 64 elements: at \(0,\)", done.stdout
    )
    assert done.returncode == 10


def test_every_launch_begins_with_the_same_values(tmp_path: Path) -> None:
    folder = cpp_repro(tmp_path, "for (int64_t i = 0; i < ks0; ++i) out_ptr0[i] += in_ptr0[i];", role=Role.INOUT)
    done = replay(folder, "--repeat", "3")
    assert done.stdout == f"{TITLE}: 3 launches gave the same results, bit for bit\n", done.stderr
    assert done.returncode == 0
    assert replay(folder, "--repeat", "1").returncode == 2


def test_random_operators_vary_without_a_race(tmp_path: Path) -> None:
    saved = tmp_path / "run"
    saved.mkdir()
    launch = LaunchBuilder(saved, "aoti_torch_cpu_rand", Kind.SHIM_ALLOC, "aten.rand.default").ints("size", (8,))
    for name, value in (("dtype", 6), ("layout", 0), ("device", 0)):
        launch.number(name, value, CType.I32, form=Form.SCALAR_REF)
    launch.number("device_index_", 0, CType.I32).number("pin_memory", 0, CType.I32, form=Form.SCALAR_REF)
    done = replay(write(launch.result("buf0", torch.rand(8)).build(), tmp_path / "repro"), "--repeat", "2")
    assert "results VARY" in done.stdout, done
    assert done.stdout.endswith("  aten.rand.default draws random numbers\n")
    assert done.returncode == 0


def test_the_time_of_a_launch(tmp_path: Path) -> None:
    done = replay(cpp_repro(tmp_path, ADD_ONE, n=4096), "--bench")
    number = r"[\d.e+]+"
    assert re.fullmatch(
        rf"{TITLE}: {number} [mµn]?s, the median of \d+ launches\n"
        rf"  half of them took {number} [mµn]?s to {number} [mµn]?s\n"
        rf"  32 KiB of arguments: {number} [MG]iB/s, {number}% of the copy speed\n"
        rf"  copying 64 MiB on cpu: {number} [MG]iB/s read and written\n",
        done.stdout,
    ), done
    assert done.returncode == 0

"""`--reduce`: the smallest part that still shows it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from aoti_debug.package.manifest import Form, Kind, Role
from aoti_debug.repro.templates.part import LaunchPart, Rows
from aoti_debug.repro.templates.reduce import Interrupts
from aoti_debug.repro.templates.shrink import smallest_count, smallest_set, smallest_window
from tests.repro.planted_triton import row_maxima_repro
from tests.repro.repro_launches import LaunchBuilder, cpp_repro, replay, write


def index_select(tmp_path: Path, bad: int) -> Path:
    """16 rows are chosen from a table of 40, the 12th one with the index `bad`."""
    saved = tmp_path / "run"
    saved.mkdir()
    launch = LaunchBuilder(saved, "aoti_torch_cpu_index_select", Kind.SHIM_ALLOC, "aten.index_select.default")
    index = torch.arange(16) % 10
    index[11] = bad
    launch.tensor("table", torch.randn(40, 4)).number("dim", 0).tensor("arg1_1", index)
    return write(launch.build("index out of range"), tmp_path / "repro")


def test_a_fault_of_an_operator_is_reduced_to_one_row(tmp_path: Path) -> None:
    folder = index_select(tmp_path, 99)
    done = replay(folder, "--reduce")
    assert done.returncode == 0, done
    assert "rows 11 to 11 of 16" in done.stdout.splitlines()[-2]
    assert done.stdout.splitlines()[-1] == f"next: python {folder / 'reduced' / 'repro.py'}"
    reduced = folder / "reduced"
    assert load_file(reduced / "tensors" / "before_arg1_1.safetensors")["x"].tolist() == [99]
    again = replay(reduced)
    assert again.returncode == 11, again
    assert "fault reproduced" in again.stdout


def test_an_interrupted_reduction_goes_on_where_it_was(tmp_path: Path) -> None:
    folder = index_select(tmp_path, 99)
    assert replay(folder, "--reduce").returncode == 0
    (state,) = (folder / "reduction").glob("*/trials.json")
    known = json.loads(state.read_text())
    half = dict(list(known.items())[: len(known) // 2])
    state.write_text(json.dumps(half))
    done = replay(folder, "--reduce")
    assert f"{len(half)} earlier trials were read from {state}" in done.stdout
    assert json.loads(state.read_text()) == known


def test_an_interrupt_says_that_it_can_go_on(tmp_path: Path) -> None:
    folder = index_select(tmp_path, 99)
    command = [sys.executable, "-u", "-I", str(folder / "repro.py"), "--reduce"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        while not process.stdout.readline().startswith("    2  rows"):
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        said = process.stdout.read()
    assert process.returncode == 1
    (state,) = (folder / "reduction").glob("*/trials.json")
    assert said.endswith(f"interrupted; run the same command again to continue from {state}\n")
    assert len(json.loads(state.read_text())) >= 2


def test_nothing_to_reduce(tmp_path: Path) -> None:
    done = replay(index_select(tmp_path, 3), "--reduce")
    assert done.stdout.endswith("nothing to reduce: the whole launch shows neither a fault nor a difference\n"), done
    assert done.returncode == 1


def test_a_difference_is_reduced_to_the_rows_that_show_it(tmp_path: Path) -> None:
    saved = tmp_path / "run"
    saved.mkdir()
    launch = LaunchBuilder(saved, "aoti_torch_cpu_mul_Tensor", Kind.SHIM_ALLOC, "aten.mul.Tensor")
    a, b = torch.randn(16, 3), torch.randn(16, 3)
    folder = write(launch.tensor("a", a).tensor("b", b).result("c", a * b).build(), tmp_path / "repro")
    path = folder / "tensors/after_c.safetensors"
    recorded = load_file(path)["x"].clone()
    recorded[11, 1] += 1
    save_file({"x": recorded}, path)
    done = replay(folder, "--reduce")
    assert "a difference, still shown by rows 11 to 11 of 16" in done.stdout, done
    again = replay(folder / "reduced")
    assert "DIFFERS in c\n  c  float32 (1, 3)  differs in 1 of 3 elements" in again.stdout, again
    assert again.returncode == 10


def test_rows_that_depend_on_each_other_are_not_cut(tmp_path: Path) -> None:
    saved = tmp_path / "run"
    saved.mkdir()
    launch = LaunchBuilder(saved, "aoti_torch_cpu_cumsum", Kind.SHIM_ALLOC, "aten.cumsum.default")
    a = torch.randn(16)
    expected = torch.cumsum(a, 0)
    expected[3] += 1
    launch.tensor("a", a).number("dim", 0).absent("dtype", Form.SCALAR_REF).result("c", expected)
    done = replay(write(launch.build(), tmp_path / "repro"), "--reduce")
    assert "a difference, still shown by rows 0 to 3 of 16" in done.stdout, done


def test_a_kernel_that_takes_its_number_of_rows(tmp_path: Path) -> None:
    body = (
        "for (int64_t i = 0; i < ks0; ++i) { out_ptr0[i] = in_ptr0[i]; if (in_ptr0[i] == 21) *(volatile int*)16 = 1; }"
    )
    folder = cpp_repro(tmp_path, body, fault="SIGSEGV")
    done = replay(folder, "--reduce")
    assert "fault: SIGSEGV, still shown by rows 21 to 21 of 64" in done.stdout, done
    assert "ctypes.c_int64(1)" in (folder / "reduced/repro.py").read_text()
    assert replay(folder / "reduced").returncode == 11


def test_a_launch_without_parts(tmp_path: Path) -> None:
    folder = cpp_repro(tmp_path, "out_ptr0[0] = 1;")
    script = folder / "repro.py"
    text = script.read_text()
    assert "ctypes.c_int64(64)" in text
    script.write_text(text.replace("ctypes.c_int64(64)", "ctypes.c_int64(63)"))
    done = replay(folder, "--reduce")
    assert done.stderr.endswith(
        "no smaller part that could be tried: its kernel takes no number of rows as an argument: "
        "its sizes are constants of the source\n"
    )
    assert done.returncode == 1


def test_delta_debugging_finds_what_belongs_together() -> None:
    asked = 0

    def holds(some: list[int]) -> bool:
        nonlocal asked
        asked += 1
        return {3, 700} <= set(some)

    assert smallest_set(list(range(1000)), holds) == [3, 700]
    assert asked < 130


def test_counts_and_windows() -> None:
    assert smallest_count(100, lambda n: n >= 17) == 17
    assert smallest_window(0, 64, lambda begin, end: begin <= 20 and end > 30) == (20, 31)
    assert smallest_window(0, 1, lambda begin, end: True) == (0, 1)


def test_parts_are_written_and_read() -> None:
    part = LaunchPart.of_programs([0, 1, 5]).with_rows(Rows(8, 2, 3)).with_rows(Rows(8, 2, 4, scalars=True))
    assert part.programs == ((0, 2), (5, 6))
    assert part.rows == (Rows(8, 2, 4, scalars=True),)
    assert LaunchPart.from_json(part.to_json()) == part
    assert part.chosen((4, 2, 1)) == ((0, 0, 0), (1, 0, 0), (1, 1, 0))
    assert str(part) == "rows 2 to 3 of 8, programs 0 to 1, 5"
    assert part.cut(torch.arange(8)).tolist() == [2, 3]


def test_outputs_that_are_not_cut_show_nothing(tmp_path: Path) -> None:
    saved = tmp_path / "run"
    saved.mkdir()
    launch = LaunchBuilder(saved, "aoti_torch_cpu_sum", Kind.SHIM_OUT, "aten.sum.default")
    a = torch.ones(8)
    launch.tensor("a", a, Role.IN).absent("dtype", Form.SCALAR_REF).result("s", torch.tensor(9.0))
    done = replay(write(launch.build(), tmp_path / "repro"), "--reduce")
    assert done.stdout.splitlines()[-1].endswith("a difference, still shown by the whole launch"), done


def test_programs_of_a_grid_are_reduced(tmp_path: Path) -> None:
    folder = row_maxima_repro(tmp_path, lambda source: source.replace("xindex < xnumel", "xindex < xnumel + 1"))
    done = replay(folder, "--backend", "interpret", "--reduce")
    assert "an out-of-bounds access, still shown by program 1\n" in done.stdout, done
    assert done.stdout.endswith("repro.py --backend interpret --program 1,0,0\n")
    one = replay(folder, "--backend", "interpret", "--program", "1,0,0")
    assert "17 out-of-bounds accesses" in one.stdout, one
    assert one.returncode == 11
    other = replay(folder, "--backend", "interpret", "--program", "0")
    assert other.stdout.endswith("1 program of the grid ran: outputs not compared\n"), other
    assert other.returncode == 0


def test_a_wrong_program_is_found(tmp_path: Path) -> None:
    wrong = "(tmp2 + alpha + tl.program_id(0)).to(tl.float32)"
    folder = row_maxima_repro(tmp_path, lambda source: source.replace("(tmp2 + alpha).to(tl.float32)", wrong))
    done = replay(folder, "--backend", "interpret", "--reduce")
    assert "a difference, still shown by program 1\n" in done.stdout, done


def test_an_interrupt_whose_exception_was_dropped_is_not_lost() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts() as interrupts:
        interrupts.check()
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_is_raised_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), Interrupts():
        os.kill(os.getpid(), signal.SIGINT)

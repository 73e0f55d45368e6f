"""`--debugger` of a Triton kernel on a CUDA device: cuda-gdb stops at the kernel, and at its fault."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from aoti_debug.repro.templates.sanitizers import find_cuda_program
from tests.repro.planted_triton import row_maxima_repro
from tests.repro.repro_launches import replay

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.skipif(find_cuda_program("cuda-gdb") is None, reason="cuda-gdb is not installed"),
]

TITLE = "0.3 triton_per_fused_amax_add_0"


def repro(folder: Path, edit: Callable[[str], str] = str) -> Path:
    return row_maxima_repro(folder, edit, "cuda:0")


def wild_load(source: str) -> str:
    """A load 64 GiB behind the argument, in the second program only."""
    return re.sub(
        r"tl\.load\(in_ptr0 \+ \(?", r"tl.load(in_ptr0 + (tl.program_id(0) == 1).to(tl.int64) * (1 << 34) + (", source
    )


def test_it_stops_at_the_kernel_and_runs_to_the_end(tmp_path: Path) -> None:
    done = replay(repro(tmp_path), "--debugger", "--backend", "jit")
    print(done.stdout, done.stderr)
    assert "arguments:\n  in_ptr0 " in done.stdout
    assert f"{TITLE}: stopped at the kernel; its arguments are listed above" in done.stdout
    assert re.search(r"CUDA thread hit .*Breakpoint 1", done.stdout)
    assert "as recorded" in done.stdout
    assert done.returncode == 0


def test_it_stops_in_a_block(tmp_path: Path) -> None:
    done = replay(repro(tmp_path), "--debugger", "--backend", "jit", "--program", "1,0,0")
    print(done.stdout, done.stderr)
    assert f"{TITLE}: stopped at the kernel in block 1,0,0" in done.stdout
    assert re.search(r"block \(1,0,0\), thread \(0,0,0\)", done.stdout)
    assert done.returncode == 0


def test_a_wrong_access_is_shown_with_its_instruction(tmp_path: Path) -> None:
    done = replay(repro(tmp_path, wild_load), "--debugger", "--backend", "jit")
    print(done.stdout, done.stderr)
    assert re.search(r"CUDA_EXCEPTION_\d+", done.stdout)
    assert "the fault:\n" in done.stdout
    shown = done.stdout.partition("the fault:\n")[2]
    assert re.search(r"^\W*0x[0-9a-f]+ <triton_per_fused_amax_add_0\+\d+>:\s+.*\bLD", shown, re.MULTILINE)
    line = re.search(r"^Line (\d+) of .*repro\.py", shown, re.MULTILINE)
    assert line is not None
    assert "tl.load" in (tmp_path / "repro/repro.py").read_text().splitlines()[int(line[1]) - 1]
    assert done.returncode == 11

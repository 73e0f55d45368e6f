"""The options of a repro on a CUDA device: planted faults, by argument and element. One process a question."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from aoti_debug.package.manifest import Kind, Role
from aoti_debug.repro.run_repro import gather
from aoti_debug.repro.templates import sanitizers
from tests.repro.planted_triton import row_maxima_repro
from tests.repro.repro_launches import LaunchBuilder, replay, write

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

TITLE = "0.3 triton_per_fused_amax_add_0"


def repro(folder: Path, edit: Callable[[str], str] = str) -> Path:
    return row_maxima_repro(folder, edit, "cuda:0")


def one_row_more(source: str) -> str:
    return source.replace("xindex < xnumel", "xindex < xnumel + 1")


def needs_sanitizer() -> None:
    try:
        sanitizers.find_compute_sanitizer()
    except SystemExit as error:
        pytest.skip(str(error))


def test_a_kernel_that_does_nothing_wrong(tmp_path: Path) -> None:
    folder = repro(tmp_path)
    poisoned = replay(folder, "--poison", "--backend", "jit")
    assert "no overrun within 64 KiB, and no output depends on uninitialised memory" in poisoned.stdout, poisoned
    assert poisoned.returncode == 0
    repeated = replay(folder, "--repeat", "50")
    assert f"{TITLE}: 50 launches gave the same results, bit for bit" in repeated.stdout, repeated
    assert repeated.returncode == 0


def test_the_time_of_a_launch(tmp_path: Path) -> None:
    done = replay(repro(tmp_path), "--bench")
    print(done.stdout)
    assert re.search(r"µs, the median of \d+ launches, each with a cold L2 cache", done.stdout), done
    speed = re.search(r"copying 256 MiB on cuda:0: ([\d.]+) (G|T)iB/s", done.stdout)
    assert speed is not None, done
    assert float(speed[1]) * (1024 if speed[2] == "T" else 1) > 100  # GiB/s


def test_a_small_overrun_that_does_not_fault(tmp_path: Path) -> None:
    done = replay(repro(tmp_path, one_row_more), "--poison")
    assert (
        "OVERRUN: 4 bytes were written past the end of buf0, up to 4 bytes past its storage: "
        "element 3 of buf0, 1 element past its end (3 elements)" in done.stdout
    ), done
    assert done.returncode == 11


def test_a_read_of_what_nothing_has_written(tmp_path: Path) -> None:
    def reads(source: str) -> str:
        return source.replace("(tmp2 + alpha)", "(tmp2 + alpha + tl.load(out_ptr0 + xindex, xmask))")

    folder = repro(tmp_path, reads)
    done = replay(folder, "--poison")
    assert "UNINITIALISED: 3 of 3 elements of buf0 depend on uninitialised memory" in done.stdout, done
    assert done.returncode == 10
    needs_sanitizer()
    done = replay(folder, "--sanitize", "initcheck")
    print(done.stdout)
    assert "Uninitialized __global__ memory read: read of 4 bytes" in done.stdout, done
    assert done.returncode == 11


def test_a_missing_atomic_is_a_race(tmp_path: Path) -> None:
    def counts(source: str) -> str:
        return source.replace(
            "    tl.store(out_ptr0 + (xindex),",
            "    tl.store(out_ptr0, tl.load(out_ptr0) + tl.program_id(0))\n    tl.store(out_ptr0 + 1 + 0 * (xindex),",
        )

    folder = repro(tmp_path, counts)
    script = folder / "repro.py"
    text = script.read_text()
    assert "grid=(2, 1, 1)" in text
    script.write_text(text.replace("grid=(2, 1, 1)", "grid=(8192, 1, 1)"))
    done = replay(folder, "--repeat", "50", "--backend", "jit")
    print(done.stdout)
    assert "results VARY between launches from the same inputs, in buf0" in done.stdout, done
    assert done.returncode == 10


def test_memcheck_names_the_argument_and_the_element(tmp_path: Path) -> None:
    needs_sanitizer()
    done = replay(repro(tmp_path, one_row_more), "--sanitize")
    print(done.stdout)
    assert f"{TITLE}: compute-sanitizer memcheck: " in done.stdout, done
    place = r"element \d+ of arg0_1, \d+ elements? past its end \(48 elements\)"
    assert re.search(r"Invalid __global__ read: read of \d+ bytes at 0x\w+: " + place, done.stdout)
    assert "tl.load(in_ptr0 + (r0_1 + 16*xindex)" in done.stdout
    assert "of triton_per_fused_amax_add_0" in done.stdout
    assert done.returncode == 11


@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_a_clean_launch_under_a_sanitizer(tmp_path: Path, tool: str) -> None:
    needs_sanitizer()
    done = replay(repro(tmp_path), "--sanitize", tool)
    assert done.stdout == f"{TITLE}: compute-sanitizer {tool} found nothing\n", done
    assert done.returncode == 0


def test_an_operator_of_torch_under_memcheck(tmp_path: Path) -> None:
    """index_select checks nothing on CUDA but by an assertion, which is a fault of the launch."""
    needs_sanitizer()
    saved = tmp_path / "run"
    saved.mkdir()
    launch = LaunchBuilder(saved, "aoti_torch_cuda_index_select", Kind.SHIM_ALLOC, "aten.index_select.default")
    index = torch.tensor([1, 2, 99, 0])
    launch.tensor("table", torch.ones(8, 4), Role.IN).number("dim", 0).tensor("arg1_1", index)
    folder = write(launch.build("device-side assert"), tmp_path / "repro")
    script = folder / "repro.py"
    script.write_text(script.read_text().replace('device="cpu"', 'device="cuda:0"'))
    done = replay(folder, "--sanitize")
    print(done.stdout)
    assert done.returncode == 11, done
    reduced = replay(folder, "--reduce")
    print(reduced.stdout)
    assert "still shown by rows 2 to 2 of 4" in reduced.stdout, reduced
    assert reduced.returncode == 0


def test_evidence_of_each_back_end(tmp_path: Path) -> None:
    """The same planted fault, as programs read it."""
    folder = repro(tmp_path, one_row_more)
    interpreted = gather(folder, ("--backend", "interpret"))
    assert (interpreted.mode, interpreted.outcome, interpreted.code) == ("interpret", "fault", 11), interpreted
    load = next(access for access in interpreted.accesses if access.kind == "load")
    assert (load.argument, load.parameter, load.element, load.elements) == ("arg0_1", "in_ptr0", 48, 48)
    assert load.source is not None
    assert "tl.load(in_ptr0 + " in load.source.text
    poisoned = gather(folder, ("--poison", "--backend", "jit"))
    (overrun,) = poisoned.accesses
    assert (overrun.kind, overrun.argument, overrun.element, overrun.bytes) == ("overrun", "buf0", 3, 4)
    needs_sanitizer()
    watched = gather(folder, ("--sanitize", "memcheck"))
    assert (watched.sanitize, watched.outcome) == ("memcheck", "fault"), watched
    assert ("read", "arg0_1") in {(access.kind, access.argument) for access in watched.accesses}
    assert all(access.program is not None for access in watched.accesses)


def test_evidence_of_a_launch_that_breaks_the_device(tmp_path: Path) -> None:
    """The child process dies with the device's error; the file says so all the same."""

    def far(source: str) -> str:
        return source.replace("tl.load(in_ptr0 + (", "tl.load(in_ptr0 + (1 << 40) + (")

    found = gather(repro(tmp_path, far), ("--backend", "jit"))
    assert (found.mode, found.outcome, found.code) == ("jit", "fault", 11), found
    assert "CUDA error: an illegal memory access" in found.what
    assert found.accesses == ()

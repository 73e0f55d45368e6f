"""`--sanitize` of C++ kernels: AddressSanitizer and UBSan on planted faults, by argument, element and line."""

from __future__ import annotations

from pathlib import Path

import torch

from aoti_debug.package.manifest import Kind, Role
from tests.repro.repro_launches import ADD_ONE, LaunchBuilder, cpp_repro, replay, write

TITLE = "0.3 cpp_fused_planted_0"


# After a report the kernel goes on, until it ends the process.
FAULTS = {
    "for (int64_t i = 0; i <= ks0; ++i)\n        out_ptr0[i] = in_ptr0[i];": (
        "AddressSanitizer: heap-buffer-overflow: read of 4 bytes at 0x",
        ": element 64 of arg0_1, 1 element past its end (64 elements)\n",
        "AddressSanitizer: heap-buffer-overflow: write of 4 bytes at 0x",
        ": element 64 of buf0, 1 element past its end (64 elements)\n",
        "  out_ptr0[i] = in_ptr0[i];\n",
        "    cpp_fused_planted_0\n",
    ),
    "out_ptr0[0] = in_ptr0[-2];": (": element -2 of arg0_1, 2 elements before its beginning (64 elements)\n",),
    "int n = 2147483647; out_ptr0[0] = n + static_cast<int>(ks0);": (
        "UBSan: signed integer overflow: ",
        " cannot be represented in type 'int'\n",
    ),
    "*(volatile int*)16 = 1;": ("AddressSanitizer: SEGV: write of ",),
}


def test_planted_faults_are_found(tmp_path: Path) -> None:
    done = replay(cpp_repro(tmp_path, "\n    ".join(FAULTS), fault="SIGSEGV"), "--sanitize")
    assert done.stdout.startswith(f"{TITLE}: AddressSanitizer and UBSan: "), done
    for text in (text for said in FAULTS.values() for text in said):
        assert text in done.stdout
    assert done.returncode == 11


def test_a_kernel_that_does_nothing_wrong(tmp_path: Path) -> None:
    folder = cpp_repro(tmp_path, f"#pragma omp parallel for\n    {ADD_ONE}")
    done = replay(folder, "--sanitize")
    assert done.stdout == f"{TITLE}: AddressSanitizer and UBSan found nothing\n", done
    assert done.returncode == 0


def test_a_compiler_without_a_sanitizer(tmp_path: Path) -> None:
    folder = cpp_repro(tmp_path, ADD_ONE)
    compiler = tmp_path / "g++"
    compiler.write_text("#!/bin/sh\ncase $1 in -print*) echo libasan.so;; *) exit 1;; esac\n")
    compiler.chmod(0o755)
    script = folder / "repro.py"
    script.write_text(script.read_text().replace('command="g++"', f'command="{compiler}"'))
    done = replay(folder, "--sanitize")
    assert done.stderr == f"{compiler} has no AddressSanitizer here (libasan.so); it comes with the package libasan\n"
    assert done.returncode == 1


def test_what_no_sanitizer_can_watch(tmp_path: Path) -> None:
    saved = tmp_path / "run"
    saved.mkdir()
    launch = LaunchBuilder(saved, "aoti_torch_zero_", Kind.SHIM_INPLACE, "aten.zero_.default")
    folder = write(launch.tensor("a", torch.ones(2), Role.INOUT, after=torch.zeros(2)).build(), tmp_path / "repro")
    done = replay(folder, "--sanitize")
    assert done.stderr.endswith("torch's own code, which the repro does not compile; --poison looks for overruns\n")
    assert replay(cpp_repro(tmp_path / "run", ADD_ONE), "--sanitize", "racecheck").returncode == 1

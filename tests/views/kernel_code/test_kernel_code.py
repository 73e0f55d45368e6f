from __future__ import annotations

import getpass
import hashlib
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.base.errors import ArtifactError, ToolchainError, UsageError
from aoti_debug.base.machine import compiler
from aoti_debug.base.terminal_cells import UNLIMITED
from aoti_debug.package.manifest import Kernel, Kind
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from aoti_debug.views.kernel_code import kernel_code
from aoti_debug.views.kernel_code.kernel_code import KernelCode, document, listing, triton_caches
from aoti_debug.views.kernel_code.line_origins import line_origins
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, triton_kernel
from tests.views.kernel_code import layer_norm_kernel as triton

NAME = "triton_poi_fused_0"
PTX = f"""\
.version 8.0
.target sm_80
.address_size 64
.visible .entry {NAME}(.param .u64 pointer)
{{
  .reg .b64 %rd<3>;
  .reg .b32 %r<2>;
  ld.param.u64 %rd1, [pointer];
  cvta.to.global.u64 %rd2, %rd1;
  mov.u32 %r1, 7;
  st.global.u32 [%rd2], %r1;
  ret;
}}
"""


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    writer = JournalWriter()
    writer.call_begin()
    launched = site(NAME, arg("x"), kind=Kind.TRITON, launches=(NAME,))
    return open_run(run_directory(tmp_path / "runs", make_manifest(launched, kernels=(kernel(),)), writer))


def kernel(cubin: bytes = b"code") -> Kernel:
    digest = hashlib.sha256(cubin).hexdigest()
    return replace(triton_kernel(NAME), cubin="k.cubin", cubin_sha256=digest, mangled=NAME)


@pytest.fixture
def packaged(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Machine code that the package has; made here where Triton's ptxas is installed."""
    code = b"code"
    monkeypatch.setattr(kernel_code, "kernel_binary", lambda run, kernel: (code, ""))
    return code


def test_the_ptx_of_the_same_binary(run: RunDir, packaged: bytes, tmp_path: Path) -> None:
    for entry, content, text in (("A", b"other", "wrong"), ("B", packaged, PTX)):
        folder = tmp_path / "triton" / entry
        folder.mkdir(parents=True)
        (folder / f"{NAME}.cubin").write_bytes(content)
        (folder / f"{NAME}.ptx").write_text(text)
    assert kernel_code.ptx(run, kernel(), [tmp_path / "gone", tmp_path / "triton"]) == PTX


def test_no_cache_has_the_ptx(run: RunDir, packaged: bytes, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=rf"not recorded.*\({tmp_path}\) has no such kernel") as raised:
        kernel_code.ptx(run, kernel(), [tmp_path])
    assert raised.value.hint.startswith("--sass shows")


def test_a_kernels_name_is_no_pattern(run: RunDir, packaged: bytes, tmp_path: Path) -> None:
    folder = tmp_path / "triton/A"
    folder.mkdir(parents=True)
    (folder / f"{NAME}.cubin").write_bytes(packaged)
    (folder / f"{NAME}.ptx").write_text(PTX)
    for name in ("*", "../*/*"):
        with pytest.raises(ArtifactError, match="not recorded"):
            kernel_code.ptx(run, replace(kernel(), mangled=name), [tmp_path / "triton"])


def test_no_program_is_started_on_untrusted_machine_code(
    run: RunDir, packaged: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "of another user"))
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a program was started"))
    with pytest.raises(UsageError, match=f"not made on this account; .* machine code of {NAME}") as raised:
        kernel_code.sass(run, kernel(), trusted=False)
    assert raised.value.hint.endswith("--trust")


def test_machine_code_is_disassembled(run: RunDir, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bundled = compiler.triton_directory()
    if bundled is None:
        pytest.skip("Triton, which contains ptxas and nvdisasm, is not installed")
    ptxas = bundled / "bin/ptxas"
    (tmp_path / "k.ptx").write_text(PTX)
    cubin = tmp_path / "k.cubin"
    subprocess.run([ptxas, "-arch=sm_80", tmp_path / "k.ptx", "-o", cubin], check=True)
    monkeypatch.setattr(kernel_code, "kernel_binary", lambda run, kernel: (cubin.read_bytes(), ""))
    assert "STG.E" in kernel_code.sass(run, kernel(), trusted=False)
    monkeypatch.setattr(kernel_code, "kernel_binary", lambda run, kernel: (b"\0" * 64, ""))
    with pytest.raises(ToolchainError, match=f"cannot disassemble {NAME}"):
        kernel_code.sass(run, kernel(), trusted=False)


def test_no_disassembler(run: RunDir, packaged: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "find_program", lambda name: None)
    monkeypatch.setattr(compiler, "triton_directory", lambda: None)
    with pytest.raises(ToolchainError, match="neither nvdisasm nor cuobjdump is installed") as raised:
        kernel_code.sass(run, kernel(), trusted=False)
    assert raised.value.exit_code == 4
    assert "Triton" in raised.value.hint


def test_the_package_is_gone(run: RunDir) -> None:
    with pytest.raises(ArtifactError, match="the package that was run was not found"):
        kernel_code.sass(run, kernel(), trusted=False)


def test_a_cpp_kernel_has_none(run: RunDir) -> None:
    with pytest.raises(UsageError, match=r"--sass is for Triton kernels; k is one in C\+\+"):
        kernel_code.sass(run, Kernel("k", "cpp", "void k() {}", "0" * 64), trusted=False)


def test_the_cache_of_torchs_own_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    (tmp_path / "triton/0").mkdir(parents=True)
    (tmp_path / "triton/1").mkdir()
    assert {tmp_path / "triton/0", tmp_path / "triton/1"} < set(triton_caches())


def test_inductors_default_is_that_of_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache_dir_utils = pytest.importorskip("torch._inductor.runtime.cache_dir_utils")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(getpass, "getuser", lambda: "a:b")
    cache = Path(cache_dir_utils.default_cache_dir())
    assert cache.parent == tmp_path
    (cache / "triton/0").mkdir(parents=True)
    assert cache / "triton/0" in triton_caches()


def test_the_directory_that_is_named_for_triton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    assert tmp_path in triton_caches()


CODE = KernelCode(triton.KERNEL, line_origins(triton.KERNEL, triton.SITE, triton.MANIFEST, triton.REFERENCE))


def test_model_lines_beside_the_source() -> None:
    lines = listing(CODE, triton.PROVENANCE, 100, UNLIMITED)
    assert lines[:5] == [
        f"{triton.NAME} (triton, sha256 abababababab)",
        "  model.py:12  add",
        "  model.py:13  norm  mean, sub, add_1, rsqrt, mul",
        "  beside or above a line: the operator that it computes, or a part of it, < what it reads, > what it",
        "  writes",
    ]
    assert lines[5:] == [
        " 1                          │ @triton.jit",
        f" 2                          │ def {triton.NAME}(in_ptr0, in_ptr1, out_ptr2, xnumel, r0_numel, "
        "XBLOCK : tl.constexpr):",
        " 3                          │     xoffset = tl.program_id(0) * XBLOCK",
        " 4               < arg0_1   │     tmp0 = tl.load(in_ptr0 + (r0_1 + 64*x0), None)",
        " 5               < arg1_1   │     tmp1 = tl.load(in_ptr1 + (r0_1 + 64*x0), None).to(tl.float32)",
        " 6  model.py:12  add        │     tmp2 = tmp0 + tmp1",
        " 7  model.py:12  add        │     tmp3 = tl.broadcast_to(tmp2, [XBLOCK, R0_BLOCK])",
        " 8  model.py:12  add        │     tmp5 = tl.where(xmask, tmp3, 0)",
        " 9  model.py:13  mean       │     tmp6 = tl.sum(tmp5, 1)[:, None].to(tl.float32)",
        "10                          │     tmp7 = tl.full([XBLOCK, 1], 64, tl.int32)",
        "11  model.py:13  mean       │     tmp9 = (tmp6 / tmp7)",
        "12  model.py:13  sub        │     tmp10 = tmp2 - tmp9",
        "13                          │     tmp11 = 1e-05",
        "14  model.py:13  add_1      │     tmp12 = tmp9 + tmp11",
        "15  model.py:13  rsqrt      │     tmp13 = libdevice.rsqrt(tmp12)",
        "16  model.py:13  mul        │     tmp14 = tmp10 * tmp13",
        "17  model.py:13  mul > buf0 │     tl.store(out_ptr2 + (r0_1 + 64*x0), tmp14, None)",
    ]


def test_in_a_narrow_terminal_it_stands_above_the_source() -> None:
    lines = listing(CODE, triton.PROVENANCE, 60, 60)
    assert max(map(len, lines[1:])) <= 60
    at = lines.index("   ┌ model.py:12  add")
    assert lines[at + 1] == " 6 │     tmp2 = tmp0 + tmp1"
    assert [line for line in lines if line.startswith("   │ ")] == [
        "   │     in_ptr1, out_ptr2, xnumel, r0_numel, XBLOCK :",
        "   │     tl.constexpr):",
        "   │         None).to(tl.float32)",
    ]


def test_what_is_known_where_no_line_is() -> None:
    lines = listing(KernelCode(triton.KERNEL, {}, "the package is gone"), triton.PROVENANCE, 200, UNLIMITED)
    assert lines[1:3] == [
        "  which line comes from which model line is not known: the package is gone; all of it comes from model.py:13, "
        "model.py:12",
        " 1     │ @triton.jit",
    ]


def test_the_same_for_programs() -> None:
    described = document(CODE)
    assert described["source"] == triton.SOURCE
    assert described["unknown"] is None
    assert described["lines"][-1] == {
        "line": 17,
        "node": "mul",
        "module": "norm",
        "model_line": {"file": triton.PLACE, "line": 13, "function": "forward", "text": "return self.norm(h)"},
        "reads": [],
        "writes": "buf0",
    }

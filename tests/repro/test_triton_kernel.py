"""The module that launches a Triton kernel in a repro, as far as it can be tried without a GPU."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from aoti_debug.repro.arguments import arguments_of
from aoti_debug.repro.generate_texts import generate
from aoti_debug.repro.repro_files import write_folder
from aoti_debug.repro.templates import machine_code, triton_kernel
from aoti_debug.repro.templates.compile_time import constexpr_next_power_of_2, if_mask
from aoti_debug.repro.templates.kernel import Settings
from aoti_debug.repro.templates.triton_kernel import Binary, TritonKernel, compile_kernel
from tests.repro.repro_launches import manifest, replay
from tests.repro.triton_launches import row_maxima, with_kernel

HOPPER = 90
KERNELS = """
import triton
import triton.language as tl

@triton.jit
def add(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)

@triton.jit
def summed(x, y, n, BLOCK: tl.constexpr):
    parts = tl.zeros([BLOCK], tl.float32)
    for begin in tl.range(0, n, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        parts += tl.load(x + i, mask=i < n, other=0.0)
    tl.store(y, tl.sum(parts, 0))

@triton.jit
def total(x, y, BLOCK: tl.constexpr):
    tl.store(y, tl.sum(tl.load(x + tl.arange(0, BLOCK)), 0))
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """Kernels in a file of their own: Triton reads their source from there."""
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "plain_kernels.py").write_text(KERNELS)
    sys.path.insert(0, str(folder))
    return importlib.import_module("plain_kernels")


def add(kernels: ModuleType, **changes: Any) -> TritonKernel:
    described: dict[str, Any] = {
        "signature": {"x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"},
        "constants": {"BLOCK": 256},
        "divisible": ("x", "y"),
        "grid": (4, 1, 1),
        "num_warps": 4,
        "num_stages": 1,
        "options": {"debug": False, "sanitize_overflow": False, "enable_fp_fusion": True},
    }
    return TritonKernel(kernels.add, **(described | changes))


def test_the_source_is_compiled_for_what_is_recorded(kernels: ModuleType) -> None:
    made = compile_kernel(add(kernels), HOPPER)
    assert (made.name, made.num_warps, made.shared_bytes) == ("add", 4, 0)
    assert made.code[:4] == b"\x7fELF"
    same, other_warps = compile_kernel(add(kernels), HOPPER), compile_kernel(add(kernels, num_warps=2), HOPPER)
    code = [machine_code.instructions(image.code, "add") for image in (made, same, other_warps)]
    assert code[0] == code[1] != code[2]


def test_divisibility_and_constants_decide_about_the_code(kernels: ModuleType) -> None:
    variants = [
        add(kernels),
        add(kernels, divisible=()),
        add(kernels, divisible=("x", "y", "n")),
        add(kernels, constants={"BLOCK": 512}),
    ]
    code = {machine_code.instructions(compile_kernel(v, HOPPER).code, "add") for v in variants}
    assert len(code) == len(variants)


def test_shared_memory_is_what_triton_says(kernels: ModuleType) -> None:
    signature = {"x": "*fp32", "y": "*fp32", "BLOCK": "constexpr"}
    kernel = TritonKernel(
        kernels.total,
        signature=signature,
        constants={"BLOCK": 256},
        divisible=("x",),
        grid=(1, 1, 1),
        num_warps=8,
        options={"enable_fp_fusion": True},
    )
    assert compile_kernel(kernel, HOPPER).shared_bytes == 32


def test_a_source_that_triton_refuses_says_why(kernels: ModuleType) -> None:
    with pytest.raises(SystemExit, match="does not compile the kernel"):
        compile_kernel(add(kernels, signature={"x": "fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"}), HOPPER)


def test_back_ends_and_where_tensors_go(kernels: ModuleType) -> None:
    kernel = add(kernels, without={"cubin": "it is gone"})
    assert kernel.backends == ("jit", "interpret")
    assert kernel.default_backend() == ("jit" if torch.cuda.is_available() else "interpret")
    assert (kernel.device("jit", "cuda:1"), kernel.device("interpret", "cuda:1")) == ("cuda:1", "cpu")
    assert (kernel.part("cubin"), kernel.part("interpret")) == ("leading", "any")


def test_the_interpreter_has_a_tolerance_and_machine_code_has_none(kernels: ModuleType) -> None:
    kernel = add(kernels)
    assert (kernel.tolerance("jit"), kernel.tolerance("cubin"), kernel.tolerance("interpret")) == (0.0, 0.0, 1e-4)
    double = add(kernels, signature={"x": "*fp64", "y": "*fp64", "n": "i32", "BLOCK": "constexpr"})
    assert double.tolerance("interpret") == 1e-10


def test_machine_code_that_is_gone_is_named(kernels: ModuleType, tmp_path: Path) -> None:
    kernel = add(kernels, binary=Binary("kernel.cubin", "add", shared_bytes=0))
    with pytest.raises(SystemExit, match=r"kernel\.cubin does not exist"):
        kernel.prepare(Settings(tmp_path, backend="cubin"))


LOOP = {"signature": {"x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"}, "divisible": ("x", "y", "n")}
OTHERS = ({"BLOCK": 256}, {"BLOCK": 1024}, {"BLOCK": 1024, "num_stages": 2})


def looped(kernels: ModuleType, folder: Path, package: bytes, **changes: Any) -> TritonKernel:
    """A kernel that is made ready for "jit" as on a Hopper GPU, beside the package's machine code."""
    (folder / "kernel.cubin").write_bytes(package)
    described: dict[str, Any] = {"constants": {"BLOCK": 512}, "binary": Binary("kernel.cubin", "summed", 0)}
    described |= {"grid": (1, 1, 1), "num_warps": 4, "num_stages": 1, "others": OTHERS, **LOOP}
    return TritonKernel(kernels.summed, **(described | changes))


def remark(kernel: TritonKernel, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(triton_kernel, "use_ptxas_of", lambda image: None)  # it changes the environment
    kernel.prepare(Settings(folder, backend="jit"))
    found = kernel.findings()
    assert found is not None
    (said,) = found.remarks
    return said


@pytest.mark.parametrize(("block", "said"), [(512, "BLOCK=512"), (1024, "BLOCK=1024")])
def test_of_several_configurations_the_one_of_the_package_is_taken(
    kernels: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, said: str
) -> None:
    package = compile_kernel(looped(kernels, tmp_path, b"", constants={"BLOCK": block}), HOPPER).code
    kernel = looped(kernels, tmp_path, package)
    found = remark(kernel, tmp_path, monkeypatch)
    assert found == f"{triton_kernel.SAME_CODE}, with {said}, num_stages=1"
    assert kernel._image is not None
    assert machine_code.instructions(kernel._image.code, "summed") == machine_code.instructions(package, "summed")


def test_where_none_is_the_package_s_it_is_said(
    kernels: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = compile_kernel(looped(kernels, tmp_path, b"", constants={"BLOCK": 64}), HOPPER).code
    found = remark(looped(kernels, tmp_path, package), tmp_path, monkeypatch)
    assert found.startswith(triton_kernel.OTHER_CODE)
    assert found.endswith("; with BLOCK=512, num_stages=1: chosen, not recorded in the package)")
    plain = remark(looped(kernels, tmp_path, package, others=()), tmp_path, monkeypatch)
    assert plain.startswith(triton_kernel.OTHER_CODE)
    assert "record" not in plain


def test_machine_code_of_another_compiler_is_not_looked_for(
    kernels: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = compile_kernel(looped(kernels, tmp_path, b"", constants={"BLOCK": 1024}), HOPPER).code
    package += b"Cuda compilation tools, release 11.0, V11.0.1"
    monkeypatch.setattr(triton_kernel, "version_in", lambda image: "11.0.1" if image == package else "13.0.88")
    found = remark(looped(kernels, tmp_path, package), tmp_path, monkeypatch)
    assert found.startswith(triton_kernel.OTHER_CODE)
    assert "the package's ptxas was 11.0.1" in found


def test_what_it_computes_may_depend_on_a_choice_that_is_the_package_s(
    kernels: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = compile_kernel(looped(kernels, tmp_path, b"", constants={"BLOCK": 1024}), HOPPER).code
    kernel = looped(kernels, tmp_path, package, decisive=("BLOCK",))
    assert remark(kernel, tmp_path, monkeypatch) == f"{triton_kernel.SAME_CODE}, with BLOCK=1024, num_stages=1"
    assert kernel.default_backend() == "cubin"


def test_what_may_compute_something_else_is_refused(
    kernels: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = compile_kernel(looped(kernels, tmp_path, b"", constants={"BLOCK": 64}), HOPPER).code
    kernel = looped(kernels, tmp_path, package, decisive=("BLOCK",))
    with pytest.raises(SystemExit, match=r"does not record BLOCK: .* instructions that differ .*--backend cubin"):
        remark(kernel, tmp_path, monkeypatch)
    (tmp_path / "kernel.cubin").unlink()
    with pytest.raises(SystemExit, match="does not record BLOCK: the package's machine code is not avail"):
        remark(kernel, tmp_path, monkeypatch)


def test_an_empty_grid_launches_nothing(
    kernels: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = add(kernels, grid=(0, 1, 1))
    kernel.prepare(Settings(tmp_path, backend="interpret"))
    kernel(x=torch.zeros(1), y=torch.zeros(1), n=None)
    assert capsys.readouterr().out == "add: the grid (0, 1, 1) is empty: nothing is launched\n"


def test_functions_of_compile_time_take_constants_and_plain_values() -> None:
    import triton.language as tl

    assert constexpr_next_power_of_2(tl.constexpr(5)).value == 8
    assert constexpr_next_power_of_2(5).value == 8
    assert if_mask(tl.constexpr(None), 3).value is None
    assert if_mask(tl.constexpr(True), 3) == 3
    assert if_mask("a mask", 3) == 3


def test_what_has_no_instructions_is_said(kernels: ModuleType) -> None:
    with pytest.raises(ValueError, match="not a 64-bit ELF"):
        machine_code.instructions(b"\x7fELF\x01" + bytes(60), "add")
    with pytest.raises(ValueError, match="no kernel total"):
        machine_code.instructions(compile_kernel(add(kernels), HOPPER).code, "total")


def written(folder: Path, fault: str = "") -> Path:
    """The repro of `triton_launches.row_maxima`, whose tensors were on the CPU."""
    saved = folder / "run"
    saved.mkdir()
    launch = row_maxima(saved, fault)
    arguments = arguments_of(launch)
    write_folder(folder / "repro", generate(launch, with_kernel(manifest()), arguments), arguments)
    return folder / "repro"


def test_interpreted_in_a_process_of_its_own(tmp_path: Path) -> None:
    done = replay(written(tmp_path), "--backend", "interpret")
    assert done.returncode == 0, done
    assert "0.3 triton_per_fused_amax_add_0 (interpret): as recorded" in done.stdout


def test_the_interpreter_says_which_constants_were_chosen(tmp_path: Path) -> None:
    script = written(tmp_path) / "repro.py"
    text = script.read_text()
    assert "    num_stages=1,\n" in text
    script.write_text(
        text.replace("    num_stages=1,\n", '    num_stages=1,\n    others=({"XBLOCK": 4}, {"num_stages": 2}),\n')
    )
    done = replay(script.parent, "--backend", "interpret")
    assert done.returncode == 0, done
    assert "interpreted with XBLOCK=2: chosen, not recorded in the package\n" in done.stdout


def test_an_edited_kernel_differs(tmp_path: Path) -> None:
    script = written(tmp_path) / "repro.py"
    text = script.read_text()
    assert "+ alpha" in text
    script.write_text(text.replace("+ alpha", "- alpha"))
    done = replay(script.parent, "--backend", "interpret")
    assert done.returncode == 10, done
    assert "DIFFERS in buf0" in done.stdout


def test_an_access_outside_is_a_fault(tmp_path: Path) -> None:
    """The mask of a store is off by one."""
    script = written(tmp_path) / "repro.py"
    text = script.read_text()
    script.write_text(text.replace("tl.float32), xmask)", "tl.float32), xindex <= xnumel)"))
    done = replay(script.parent, "--backend", "interpret")
    assert done.returncode == 11, done
    assert "buf0" in done.stdout or "out_ptr0" in done.stdout
    assert "xindex <= xnumel" in done.stdout


def test_a_recorded_fault_comes_or_does_not(tmp_path: Path) -> None:
    script = written(tmp_path, "an illegal memory access was encountered") / "repro.py"
    assert replay(script.parent, "--backend", "interpret").returncode == 12
    script.write_text(script.read_text().replace("16*xindex)", "16*xindex + 40)"))
    done = replay(script.parent, "--backend", "interpret")
    assert done.returncode == 11, done
    assert "fault reproduced" in done.stdout
    assert "arg0_1" in done.stdout or "in_ptr0" in done.stdout


def test_progress_is_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(triton_kernel, "BAR_SECONDS", 0.0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    progress = triton_kernel._Progress()
    progress(1, 4)
    progress(4, 4)
    progress(1, 2)
    progress.close()
    width = triton_kernel.BAR_WIDTH
    assert capsys.readouterr().err == (
        f"\r[{'#' * (width // 4)}{' ' * (width - width // 4)}] 1 of 4 programs"
        f"\r[{'#' * width}] 4 of 4 programs\n"
        f"\r[{'#' * (width // 2)}{' ' * (width // 2)}] 1 of 2 programs\n"
    )


def test_progress_is_lines_elsewhere(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(triton_kernel, "PROGRESS_SECONDS", 0.0)
    triton_kernel._Progress()(3, 4)
    assert capsys.readouterr().err == "3 of 4 programs\n"

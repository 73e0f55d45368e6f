"""Repros of launches that were made here, run in processes of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from aoti_debug.package.manifest import CType, Form, Kernel, Kind, Role
from aoti_debug.repro.templates.cpp_kernel import CppCompiler
from tests.repro.repro_launches import PLAIN, LaunchBuilder, replay, write

FLOAT: dict[str, Any] = {"type": CType.F32, "ctype": "float"}
BOOL: dict[str, Any] = {"type": CType.BOOL, "ctype": "bool"}


def builder(tmp_path: Path, kernel: str, kind: Kind, op: str = "") -> LaunchBuilder:
    saved = tmp_path / "run"
    saved.mkdir()
    return LaunchBuilder(saved, kernel, kind, op)


def addmm(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    out = torch.full((2, 4), 7.0)
    bias, left, right = torch.randn(4), torch.randn(2, 3), torch.randn(4, 3).t()
    launch = builder(tmp_path, "aoti_torch_cpu_addmm_out", Kind.SHIM_OUT, "aten.addmm.out")
    expected = torch.addmm(bias, left, right)
    launch.tensor("buf0", out, Role.OUT, after=expected)
    launch.tensor("l1_bias", bias).tensor("arg9_1", left).tensor("l1_weight_view", right)
    launch.number("beta", 1, ctype="double").number("alpha", 1, ctype="double")
    return write(launch.build(), tmp_path / "repro")


def test_an_out_operator_is_replayed_bit_for_bit(tmp_path: Path) -> None:
    done = replay(addmm(tmp_path))
    assert done.stderr == ""
    assert done.stdout == ("0.3 aoti_torch_cpu_addmm_out: as recorded\n  buf0  float32 (2, 4)  equal bit for bit\n")
    assert done.returncode == 0


def test_an_operator_is_replayed_before_torchs_compiler_could_be_imported(tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-X", "importtime", str(addmm(tmp_path) / "repro.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("0.3 aoti_torch_cpu_addmm_out: as recorded\n")
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "torch" in imported
    assert "torch._dynamo" not in imported


def test_a_difference_is_measured_and_located(tmp_path: Path) -> None:
    folder = addmm(tmp_path)
    path = folder / "tensors/after_buf0.safetensors"
    recorded = load_file(path)["x"].clone()
    recorded[1, 2] += 0.5
    save_file({"x": recorded}, path)
    done = replay(folder)
    assert done.returncode == 10
    assert re.search(
        r"DIFFERS in buf0\n  buf0  float32 \(2, 4\)  differs in 1 of 8 elements: "
        r"max abs 0\.5 at \(1, 2\) \(\S+ here, \S+ recorded\); max rel \S+ at \(1, 2\)",
        done.stdout,
    )


def test_views_of_one_storage_share_it_again(tmp_path: Path) -> None:
    memory = torch.arange(12.0)
    whole, tail = memory[:8], memory[4:].view(4, 2)
    source = torch.arange(100.0, 108.0)
    tail_after = torch.cat([source[4:], memory[8:]]).view(4, 2)
    launch = builder(tmp_path, "aoti_torch_copy_", Kind.SHIM_INPLACE, "aten.copy_.default")
    launch.tensor("buf1", whole, Role.INOUT, after=source)
    launch.tensor("arg0_1", source).number("non_blocking", 0, CType.I32)
    launch.tensor("buf1_view", tail, Role.UNKNOWN, after=tail_after)  # what the copy does to the shared part shows
    done = replay(write(launch.build(), tmp_path / "repro"))
    assert done.stdout.count("equal bit for bit") == 2, done
    assert done.returncode == 0


def test_none_empty_and_lists(tmp_path: Path) -> None:
    table, index, values = torch.zeros(4, 5), torch.tensor([3, 0]), torch.randn(4, 2)
    empty = torch.empty(4, 0)
    expected = torch.cat([table, values, empty], 1)
    launch = builder(tmp_path, "aoti_torch_cpu_cat", Kind.SHIM_ALLOC, "aten.cat.default")
    for i, (name, tensor) in enumerate((("table", table), ("values", values), ("buf0", empty))):
        launch.tensor(name, tensor, form=Form.LIST, element=i, at=0)
    launch.position = 1
    launch.number("tensors_len_", 3).number("dim", 1).result("buf9", expected)
    assert replay(write(launch.build(), tmp_path / "repro")).returncode == 0

    saved = tmp_path / "more"
    saved.mkdir()
    launch = LaunchBuilder(saved, "aoti_torch_index_put_out", Kind.SHIM_INPLACE, "aten.index_put.out")
    after = torch.ops.aten.index_put.default(table, [None, index], values)
    launch.tensor("kv", table, Role.OUT, after=after).tensor("kv", table)
    launch.absent("indices[0]", Form.LIST, element=0)
    launch.tensor("arg1_1", index, form=Form.LIST, element=1, at=2)
    launch.number("num_indices", 2).tensor("arg2_1", values).number("accumulate", 0, CType.I32)
    done = replay(write(launch.build(), tmp_path / "second"))
    assert "kv  float32 (4, 5)  equal bit for bit" in done.stdout, done


def test_several_results_of_a_launch(tmp_path: Path) -> None:
    x = torch.tensor([[3, 1, 2, 1], [9, 9, 8, 7]], dtype=torch.int32)
    values, order = torch.sort(x, stable=True, dim=1, descending=True)
    launch = builder(tmp_path, "aoti_torch_cpu_sort_stable", Kind.SHIM_ALLOC, "aten.sort.stable")
    launch.tensor("arg0_1", x).number("stable", 1, CType.I32, ctype="int32_t*", form=Form.SCALAR_REF)
    launch.number("dim", 1).number("descending", 1, CType.I32).result("buf1", values).result("buf2", order, "ret1")
    done = replay(write(launch.build(), tmp_path / "repro"))
    assert done.stdout.endswith("  buf1  int32 (2, 4)  equal bit for bit\n  buf2  int64 (2, 4)  equal bit for bit\n"), (
        done
    )


def test_a_c_function_that_calls_two_operators(tmp_path: Path) -> None:
    a, b, c, d = (torch.arange(4.0).view(2, 2) + i for i in range(4))
    launch = builder(tmp_path, "aoti_torch__mm_plus_mm_out", Kind.SHIM_OUT)
    launch.tensor("buf0", torch.zeros(2, 2), Role.OUT, after=a @ b + c @ d)
    launch.tensor("a", a).tensor("b", b).tensor("c", c).tensor("d", d)
    done = replay(write(launch.build(), tmp_path / "repro"))
    assert "buf0  float32 (2, 2)  equal bit for bit" in done.stdout, done


def test_random_operators_are_not_compared(tmp_path: Path) -> None:
    made = torch.rand(2, 3)
    launch = builder(tmp_path, "aoti_torch_cpu_rand", Kind.SHIM_ALLOC, "aten.rand.default")
    launch.ints("size", (2, 3)).number("dtype", 6, CType.I32, form=Form.SCALAR_REF).absent("layout", Form.SCALAR_REF)
    launch.number("device", 0, CType.I32, form=Form.SCALAR_REF).number("device_index_", 0, CType.I32)
    launch.number("pin_memory", 0, CType.I32, form=Form.SCALAR_REF).result("buf0", made)
    done = replay(write(launch.build(), tmp_path / "repro"))
    assert (done.returncode, done.stdout) == (
        0,
        "0.3 aoti_torch_cpu_rand: aten.rand.default draws random numbers: not compared\n",
    )


def test_dtypes_that_safetensors_has_not_and_repeated_elements(tmp_path: Path) -> None:
    row = torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex128)
    spread = row.expand(3, 2)
    launch = builder(tmp_path, "aoti_torch_cpu_mul_Tensor", Kind.SHIM_ALLOC, "aten.mul.Tensor")
    launch.tensor("buf37", spread).tensor("buf37", spread).result("buf39", spread * spread)
    done = replay(write(launch.build(), tmp_path / "repro"))
    assert "buf39  complex128 (3, 2)  equal bit for bit" in done.stdout, done


KERNEL = f"""{PLAIN}
extern "C" void cpp_fused_test_0(const float* in_ptr0, float* in_out_ptr0, int64_t* out_ptr0, const int64_t ks0,
                                 const float scale, const bool flag)
{{
    for (int64_t i = 0; i < ks0; ++i) in_out_ptr0[i] = in_ptr0[i] * scale + in_out_ptr0[i];
    out_ptr0[0] = reinterpret_cast<uintptr_t>(in_ptr0) % 128;
    out_ptr0[2] = flag;
}}
"""


def cpp_launch(tmp_path: Path, fault: str = "") -> tuple[LaunchBuilder, Kernel]:
    """A kernel that leaves half of its output alone and writes down the alignment of its input."""
    block = torch.randn(64)
    first = (40 - block.data_ptr()) % 128 // 4
    source, total, out = block[first : first + 5], torch.ones(5), torch.tensor([-1, -2, -3, -4])
    launch = builder(tmp_path, "cpp_fused_test_0", Kind.CPP)
    scale = 0.1
    launch.tensor("c_float", source, param="in_ptr0", ctype="const float*", form=Form.POINTER)
    kept = torch.ones(5)
    kept[:3] += source[:3] * torch.tensor(scale)
    launch.tensor("buf1", total, Role.INOUT, after=kept, param="in_out_ptr0", ctype="float*", form=Form.POINTER)
    written = torch.tensor([40, -2, 1, -4])
    launch.tensor("buf2", out, Role.OUT, after=written, param="out_ptr0", ctype="int64_t*", form=Form.POINTER)
    launch.number("s77", 3, ctype="const int64_t").number("scale", scale, **FLOAT).number("flag", True, **BOOL)
    return launch, Kernel("cpp_fused_test_0", "cpp", KERNEL, "")


def test_a_kernel_is_compiled_and_called_as_recorded(tmp_path: Path) -> None:
    launch, kernel = cpp_launch(tmp_path)
    folder = write(launch.build(), tmp_path / "repro", kernel)
    done = replay(folder)
    assert done.stdout == (
        "0.3 cpp_fused_test_0: as recorded\n"
        "  buf1  float32 (5,)  equal bit for bit\n"
        "  buf2  int64 (4,)  equal bit for bit\n"
    ), done.stderr
    built = {p.name: p.stat().st_mtime_ns for p in (folder / "build").iterdir()}
    assert replay(folder).returncode == 0
    assert {p.name: p.stat().st_mtime_ns for p in (folder / "build").iterdir()} == built


def test_an_edited_call_that_does_not_fit_the_kernel(tmp_path: Path) -> None:
    launch, kernel = cpp_launch(tmp_path)
    folder = write(launch.build(), tmp_path / "repro", kernel)
    script = folder / "repro.py"
    text = script.read_text()
    script.write_text(text.replace("ctypes.c_int64(3)", "ctypes.c_float(3)"))
    assert "RuntimeError: an argument has another size than the kernel's parameter" in replay(folder).stderr
    script.write_text(text.replace("        ctypes.c_int64(3), ", "        "))
    assert "RuntimeError: the kernel takes 6 arguments, not 5" in replay(folder).stderr


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ("*(volatile int*)16 = 1;", 11, "here:     SIGSEGV\n0.3 cpp_fused_bad_0: fault reproduced\n"),
        (
            'throw std::out_of_range("0 <= 7 < 3");',
            11,
            "here:     RuntimeError: 0 <= 7 < 3\n0.3 cpp_fused_bad_0: fault reproduced\n",
        ),
        ("in_out_ptr0[0] = 1;", 12, "the launch ended without a fault; the recorded fault was not reproduced\n"),
    ],
)
def test_a_fault_is_reproduced_in_a_child_process(tmp_path: Path, body: str, code: int, said: str) -> None:
    launch = builder(tmp_path, "cpp_fused_bad_0", Kind.CPP)
    launch.tensor("buf1", torch.ones(3), Role.INOUT, param="in_out_ptr0", ctype="float*", form=Form.POINTER)
    source = f'{PLAIN}extern "C" void cpp_fused_bad_0(float* in_out_ptr0) {{ {body} }}\n'
    done = replay(write(launch.build("SIGSEGV"), tmp_path / "repro", Kernel("cpp_fused_bad_0", "cpp", source, "")))
    assert done.stdout.startswith("recorded: SIGSEGV\n")
    assert done.stdout.endswith(said), done
    assert done.returncode == code


def test_a_launch_that_hangs(tmp_path: Path) -> None:
    launch = builder(tmp_path, "cpp_fused_bad_0", Kind.CPP)
    launch.tensor("buf1", torch.ones(3), Role.INOUT, param="in_out_ptr0", ctype="float*", form=Form.POINTER)
    source = PLAIN + 'extern "C" void cpp_fused_bad_0(float* p) { for (;;) *(volatile float*)p = 1; }\n'
    folder = write(launch.build("no end in time"), tmp_path / "repro", Kernel("cpp_fused_bad_0", "cpp", source, ""))
    process = folder / "replay" / "child.py"
    text = process.read_text()
    assert "HANG_SECONDS = 120.0" in text
    process.write_text(text.replace("HANG_SECONDS = 120.0", "HANG_SECONDS = 1.0"))
    done = replay(folder)
    assert "here:     no end within 1 s\n" in done.stdout, done
    assert done.returncode == 11


def test_an_exception_is_a_fault(tmp_path: Path) -> None:
    launch = builder(tmp_path, "aoti_torch_cpu_mm_out", Kind.SHIM_OUT, "aten.mm.out")
    launch.tensor("buf0", torch.zeros(2, 2), Role.OUT).tensor("a", torch.ones(2, 3)).tensor("b", torch.ones(2, 2))
    done = replay(write(launch.build("the shim returned 1"), tmp_path / "repro"))
    assert re.search("here:     RuntimeError: (mm: )?mat1 and mat2 shapes cannot be multiplied", done.stdout), done
    assert done.returncode == 11


def test_a_kernel_that_does_not_compile_is_no_fault(tmp_path: Path) -> None:
    launch = builder(tmp_path, "cpp_fused_bad_0", Kind.CPP)
    launch.tensor("buf1", torch.ones(3), Role.INOUT, param="in_out_ptr0", ctype="float*", form=Form.POINTER)
    kernel = Kernel("cpp_fused_bad_0", "cpp", PLAIN + 'extern "C" void cpp_fused_bad_0(float* p) { nonsense; }\n', "")
    done = replay(write(launch.build("SIGSEGV"), tmp_path / "repro", kernel))
    assert done.returncode == 1
    assert "the replay failed before the launch" in done.stdout
    assert re.search("error: .*nonsense", done.stderr), done.stderr


def test_a_compiler_that_is_not_here_is_sought_by_its_name() -> None:
    compiler = CppCompiler("/no/such/place/c++", ("-O1",), ("{torch}/include",), ("-L{torch}/lib",))
    directory = Path(torch.__file__).parent
    compilation = compiler.compilation(Path("a.cpp"), Path("a.o"))
    assert compilation[:5] == ["c++", "-c", "a.cpp", "-O1", f"-I{directory}/include"]
    linking = compiler.linking(Path("a.o"), Path("a.so"), compiler.link_flags)
    assert linking == ["c++", "a.o", "-O1", "-shared", "-o", "a.so", f"-L{directory}/lib"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
def test_a_device_that_is_not_here(tmp_path: Path) -> None:
    folder = addmm(tmp_path)
    script = folder / "repro.py"
    script.write_text(script.read_text().replace('device="cpu"', 'device="cuda:0"'))
    done = replay(folder)
    assert done.stderr == "0.3 aoti_torch_cpu_addmm_out ran on cuda:0; torch finds no CUDA device here\n"
    assert done.returncode == 1

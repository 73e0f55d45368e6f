from __future__ import annotations

import pytest

from aoti_debug.instrument.wrapper.callees.kernels import functions
from aoti_debug.instrument.wrapper.callees.prototypes import Param
from aoti_debug.instrument.wrapper.callees.triton_functions import TritonCall, TritonFunction
from aoti_debug.package.manifest import CType, KernelParam
from tests.instrument.wrapper import texts


def function(name: str, wrapper: str = "cuda_forms") -> TritonFunction:
    return functions(texts.text(wrapper))[name]


def test_the_signature() -> None:
    params = function("call_add_kernel_0").params
    assert [p.name for p in params[:7]] == ["x", "y", "o", "alpha", "FLAG", "n", "s"]
    assert params[3:6] == (Param("float", "alpha"), Param("bool", "FLAG"), Param("int64_t", "n"))
    assert params[-1] == Param("const std::optional<std::string>&", "cubin_dir_")
    assert function("call_triton_tem_fused_mm_1").params[1] == Param("b_desc_type_&", "b_desc")


def test_the_source_is_dedented_and_unescaped() -> None:
    source = function("call_add_kernel_0").source
    assert source.startswith("import triton\nimport triton.language as tl\n\n@triton.jit\ndef add_kernel(")
    assert '    tl.device_print("a\\n", alpha)\n' in source
    compile(source, "add_kernel.py", "exec")
    assert function("call_triton_tem_fused_mm_1").source == ""


def test_binary_and_launch() -> None:
    parsed = function("call_add_kernel_0")
    assert (parsed.cubin, parsed.mangled) == ("/tmp/kernels/add_kernel.cubin", "add_kernel")
    assert parsed.launch is not None
    text = texts.text("cuda_forms")
    assert text[parsed.launch.statement :].startswith("launchKernel(kernels_.add_kernel_0, ")
    assert parsed.launch == TritonCall(
        parsed.launch.statement,
        "add_kernel_0",
        ("grid_0", "grid_1", "grid_2"),
        4,
        0,
        "kernel_args_",
        (("grid_0", "_grid_0"), ("grid_1", "_grid_1"), ("grid_2", "_grid_2")),
    )


def test_scratch_memory_is_that_of_one_program() -> None:
    assert function("call_add_kernel_0").scratch == {"global_scratch": 256}
    assert function("call_triton_poi_fused_relu_2").scratch == {}


def test_an_embedded_binary_has_no_path() -> None:
    parsed = function("call_triton_tem_fused_mm_1")
    assert (parsed.cubin, parsed.mangled) == ("", "triton_tem_fused_mm_1")


def test_kernel_params_have_the_types_behind_their_addresses() -> None:
    assert function("call_add_kernel_0").kernel_params == (
        KernelParam("x", "CUdeviceptr", CType.ADDRESS),
        KernelParam("y", "CUdeviceptr", CType.ADDRESS),
        KernelParam("o", "CUdeviceptr", CType.ADDRESS),
        KernelParam("alpha", "double", CType.F64),
        KernelParam("FLAG", "bool", CType.BOOL),
        KernelParam("n", "int32_t", CType.I32),
        KernelParam("s", "float", CType.F32),
        KernelParam("global_scratch", "CUdeviceptr", CType.ADDRESS),
        KernelParam("profile_scratch", "CUdeviceptr", CType.ADDRESS),
    )


def test_a_tensor_descriptor_is_taken_apart() -> None:
    assert function("call_triton_tem_fused_mm_1").kernel_params[1:6] == (
        KernelParam("b_desc.m", "", CType.NONE),
        KernelParam("b_desc.block_shape[0]", "", CType.I32),
        KernelParam("b_desc.block_shape[1]", "", CType.I32),
        KernelParam("b_desc.strides[0]", "", CType.I64),
        KernelParam("b_desc.strides[1]", "", CType.I64),
    )


def test_mutated_parameters_are_as_inductor_notes_them() -> None:
    assert function("call_triton_poi_fused_relu_2").mutated == {"out_ptr0"}
    assert function("call_add_kernel_0").mutated == frozenset()


def test_triton_on_the_cpu_has_no_launch() -> None:
    parsed = function("call_add_kernel_0", "cpu_forms")
    assert (parsed.launch, parsed.kernel_params, parsed.cubin) == (None, (), "")


def made_up(*lines: str) -> TritonFunction:
    """A function of a kernel k, with those lines in its body."""
    body = "\n    ".join(lines)
    return functions(f"static void call_k(\n    int64_t n\n){{\n    {body}\n}}\n")["call_k"]


LAUNCH = "launchKernel(kernels_.k, 1, 1, 1, 4, 0, kernel_args_, stream_);"


@pytest.mark.parametrize(
    ("line", "cubin", "mangled"),
    [
        ('kernels_.k = loadKernel("/tmp/k.cubin", "k_mangled", 0);', "/tmp/k.cubin", "k_mangled"),
        ('kernels_.k = loadKernel(__k_start, "k_mangled", 0);', "", "k_mangled"),
        (r'kernels_.k = loadKernel("/tmp/\"k\".cubin", "k", 0, cubin_dir_);', '/tmp/"k".cubin', "k"),
        ('kernels_.k = loadKernel("/tmp/k.cubin", "k_mangled");', "", ""),
        ("auto loadKernel = 3;", "", ""),
    ],
)
def test_the_binary_of_a_kernel(line: str, cubin: str, mangled: str) -> None:
    found = made_up(line, LAUNCH)
    assert (found.cubin, found.mangled) == (cubin, mangled)
    assert found.launch is not None


@pytest.mark.parametrize(
    "line",
    [
        LAUNCH.replace(", stream_", ""),
        LAUNCH.replace(" 4, 0,", " warps, 0,"),
        LAUNCH.replace(" 4, 0,", " 4, shared,"),
        LAUNCH.replace("launchKernel(", "launchOther("),
    ],
)
def test_launches_in_another_form(line: str) -> None:
    found = made_up(line)
    assert (found.launch, found.kernel_params, found.scratch) == (None, (), {})


def test_the_configuration_of_a_launch() -> None:
    found = made_up(
        "uint32_t grid_0 = n / 2;",
        "int64_t global_scratch_7_size[] = {256*grid_0};",
        "int64_t profile_scratch_8_size[] = {static_cast<int64_t>(64)};",
        LAUNCH.replace("k, 1,", "k, grid_0,").replace("4, 0,", "8, 1024,"),
        "uint32_t grid_1 = 3;",
    )
    assert found.launch is not None
    assert (found.launch.num_warps, found.launch.shared_bytes) == (8, 1024)
    assert found.launch.grid == ("grid_0", "1", "1")
    assert found.launch.sizes == (("grid_0", "n / 2"),)
    assert found.scratch == {"global_scratch": 256, "profile_scratch": 64}
    assert found.kernel_params == ()  # the array of arguments is not there


@pytest.mark.parametrize(
    ("comment", "source"),
    [
        ("/* async_compile.triton('k', '''\n  a\n    b\n\n  c\n''') */", "a\n  b\n\nc\n"),
        ("/* async_compile.triton('k', '''a''') */", "a\n"),
        ("/* a comment */", ""),
        ("// async_compile.triton('k', '''a''')", ""),
    ],
)
def test_the_source_of_a_kernel(comment: str, source: str) -> None:
    assert made_up(comment, LAUNCH).source == source

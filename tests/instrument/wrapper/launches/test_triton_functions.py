from __future__ import annotations

import pytest

from aoti_debug.instrument.wrapper.launches.c_functions import Param
from aoti_debug.instrument.wrapper.launches.kernels import functions
from aoti_debug.instrument.wrapper.launches.triton_functions import TritonCall, TritonFunction
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


def test_what_came_out_of_the_first_run_is_read_from_its_macros() -> None:
    parsed = function("call_triton_red_fused__softmax_sum_1", "torch_2.14.1_first_run")
    name = "triton_red_fused__softmax_sum_1"
    assert (parsed.cubin, parsed.mangled) == (f"/tmp/kernels/{name}.cubin", name)
    assert parsed.launch is not None
    assert (parsed.launch.num_warps, parsed.launch.shared_bytes) == (16, 64)
    assert parsed.launch.sizes[0] == ("grid_0", "((xnumel + (1 - 1)) / (1))")
    assert [p.name for p in parsed.kernel_params[-3:]] == ["r0_numel", "global_scratch", "profile_scratch"]
    assert (parsed.source, parsed.generated, parsed.scratch) == ("", False, {})
    with_source = function(parsed.name, "torch_2.14.1_first_run_with_sources")
    assert (with_source.generated, with_source.launch and with_source.launch.kernel) == (True, name)


def test_a_grid_that_depends_on_the_configuration_has_no_expression() -> None:
    launch = function("call_tuned_kernel_1", "torch_2.14.1_first_run").launch
    assert launch is not None
    assert (launch.grid, launch.sizes) == (("grid_0", "grid_1", "grid_2"), ())


def test_scratch_memory_after_a_first_run() -> None:
    text = texts.text("torch_2.14.1_first_run")
    text = text.replace("ADD_KERNEL_0_GLOBAL_SCRATCH -1", "ADD_KERNEL_0_GLOBAL_SCRATCH 256")
    assert functions(text)["call_add_kernel_0"].scratch == {"global_scratch": 256}


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
    signature = "static void call_k(\n    int64_t n,\n    cudaStream_t stream_\n)"
    return functions(f"{signature}{{\n    {body}\n}}\n")["call_k"]


ARGUMENTS = "void* kernel_args_[] = {};"
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
    found = made_up(line, ARGUMENTS, LAUNCH)
    assert (found.cubin, found.mangled) == (cubin, mangled)
    assert found.launch is not None


@pytest.mark.parametrize(
    ("lines", "unread"),
    [
        ([ARGUMENTS, LAUNCH.replace(", stream_", "")], "a launchKernel with 7 arguments"),
        ([ARGUMENTS, LAUNCH.replace("stream_", "stream_, x")], "ninth argument of launchKernel x"),
        ([ARGUMENTS, LAUNCH.replace("stream_", "stream_, true, 1")], "a launchKernel with 10 arguments"),
        ([ARGUMENTS, LAUNCH.replace(" 4, 0,", " warps, 0,")], "number of warps warps"),
        ([ARGUMENTS, LAUNCH.replace(" 4, 0,", " 4, shared,")], "shared memory shared"),
        ([ARGUMENTS, LAUNCH.replace("kernels_.k", "table[3]")], "kernel table[3]"),
        ([ARGUMENTS, LAUNCH.replace("stream_", "other")], "stream other"),
        ([ARGUMENTS, "stream_ = other;", LAUNCH], "another use of stream_"),
        ([ARGUMENTS, LAUNCH.replace("launchKernel(", "launchOther(")], "0 calls of launchKernel"),
        ([ARGUMENTS, LAUNCH, LAUNCH], "2 calls of launchKernel"),
        ([ARGUMENTS, f"if (n > 3) {LAUNCH}"], "a launchKernel within another statement"),
        ([ARGUMENTS, f"for (int i = 0; i < n; i++) {{ {LAUNCH} }}"], "a launchKernel within ) {"),
        ([LAUNCH], "list of arguments kernel_args_"),
        ([ARGUMENTS, "kernel_args_[0] = &n;", LAUNCH], "list of arguments kernel_args_"),
        (["void* kernel_args_[] = {&x};", LAUNCH], "argument &x of launchKernel"),
    ],
)
def test_launches_in_another_form(lines: list[str], unread: str) -> None:
    found = made_up(*lines)
    assert (found.launch, found.kernel_params, found.scratch) == (None, (), {})
    assert found.unread == f"{unread} in call_k"


def test_a_parameter_without_a_name_makes_a_function_unreadable() -> None:
    found = functions("static void call_k(\n    int64_t\n){\n}\n")["call_k"]
    assert (found.params, found.launch, found.unread) == ((), None, "parameter int64_t in call_k")


def test_two_functions_of_one_name() -> None:
    text = texts.text("cuda_forms")
    found = functions(text + text)["call_add_kernel_0"]
    assert (found.launch, found.unread) == (None, "a second function call_add_kernel_0")


def test_variables_that_are_changed_before_the_launch() -> None:
    found = made_up(
        "uint32_t grid_0 = n / 2;",
        "grid_0 += 1;",
        "int32_t var_0 = n;",
        "var_0 = 3;",
        "void* kernel_args_[] = {&var_0};",
        LAUNCH.replace("k, 1,", "k, grid_0,"),
    )
    assert found.launch is not None
    assert (found.launch.grid[0], found.launch.sizes) == ("grid_0", ())
    assert found.kernel_params == (KernelParam("var_0", "int32_t", CType.I32),)


@pytest.mark.parametrize(
    ("heuristic", "order", "generated"),
    [("pointwise", "a, b", True), ("pointwise", "b, a", False), ("user_autotune", "a, b", False)],
)
def test_names_of_parameters_mean_something_only_in_kernels_of_inductor(
    heuristic: str, order: str, generated: bool
) -> None:
    source = f"@triton_heuristics.{heuristic}(\n  inductor_meta={{'mutated_arg_names': []}}\n)\n"
    source += f"@triton.jit\ndef k({order}, XBLOCK : tl.constexpr):\n  pass\n"
    found = functions(
        "static void call_k(\n    const a_type_& a,\n    const b_type_& b,\n    cudaStream_t stream_\n){\n"
        f"/* async_compile.triton('k', '''{source}''') */\n"
        "    CUdeviceptr var_0 = reinterpret_cast<CUdeviceptr>(a.data_ptr());\n"
        "    CUdeviceptr var_1 = reinterpret_cast<CUdeviceptr>(b.data_ptr());\n"
        "    void* kernel_args_[] = {&var_0, &var_1};\n"
        f"    {LAUNCH}\n}}\n"
    )["call_k"]
    assert [param.name for param in found.kernel_params] == ["a", "b"]
    assert found.generated is generated


@pytest.mark.parametrize(("flag", "overlaps"), [("", False), (", false", False), (", true", True)])
def test_a_kernel_that_may_begin_before_the_last_one_has_ended(flag: str, overlaps: bool) -> None:
    found = made_up(ARGUMENTS, LAUNCH.replace("stream_", f"stream_{flag}"))
    assert found.launch is not None
    assert found.launch.overlaps is overlaps


def test_the_configuration_of_a_launch() -> None:
    found = made_up(
        "uint32_t grid_0 = n / 2;",
        "int64_t global_scratch_7_size[] = {256*grid_0};",
        "int64_t profile_scratch_8_size[] = {static_cast<int64_t>(64)};",
        ARGUMENTS,
        LAUNCH.replace("k, 1,", "k, grid_0,").replace("4, 0,", "8, 1024,"),
        "uint32_t grid_1 = 3;",
    )
    assert found.launch is not None
    assert (found.launch.num_warps, found.launch.shared_bytes) == (8, 1024)
    assert found.launch.grid == ("grid_0", "1", "1")
    assert found.launch.sizes == (("grid_0", "n / 2"),)
    assert found.scratch == {"global_scratch": 256, "profile_scratch": 64}
    assert found.kernel_params == ()


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
    assert made_up(comment, ARGUMENTS, LAUNCH).source == source

from __future__ import annotations

import pytest

from aoti_debug.base.native.frames import (
    StackFrame,
    demangle,
    is_noise,
    operator_python_frames,
    short_name,
    thrower_of,
    without_abort_frames,
    without_compiled_folders,
)


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        ("_ZN10native_ops8read_rowEPKi", "native_ops::read_row(int const*)"),
        ("_Z3fooi.constprop.0", "foo(int) [constprop.0]"),
        ("main", "main"),
        ("cpp_fused_relu_1._omp_fn.0", "cpp_fused_relu_1._omp_fn.0"),
        ("_Zbroken", "_Zbroken"),
    ],
)
def test_demangling(mangled: str, name: str) -> None:
    assert demangle(mangled) == name


@pytest.mark.parametrize(
    ("function", "short"),
    [
        ("native_ops::read_row(int const*)", "native_ops::read_row"),
        ("at::native::(anonymous namespace)::sum_kernel<float, 4>(at::TensorIterator&)", "at::native::sum_kernel"),
        ("std::vector<int, std::allocator<int> > ops::make<int>(long)", "ops::make"),
        ("ops::Row::operator()(int) const", "ops::Row::operator()"),
        ("ops::Row::operator<(ops::Row const&) const", "ops::Row::operator<"),
        ("std::ostream& operator<<(std::ostream&, ops::Row const&)", "operator<<"),
        ("operator new(unsigned long)", "operator new"),
        ("cpp_fused_relu_1._omp_fn.0", "cpp_fused_relu_1"),
        ("ops::scale(float) [isra.0]", "ops::scale"),
        ("ops::Guard::~Guard()", "ops::Guard::~Guard"),
    ],
)
def test_short_names(function: str, short: str) -> None:
    assert short_name(function) == short


def test_a_long_name_is_cut() -> None:
    assert len(short_name("n" * 500)) == 110


LAMBDA = (
    "torch::aot_inductor::AOTInductorModel::run_impl(AtenTensorOpaque**, AtenTensorOpaque**, void*)::"
    "{lambda((auto:1&&)...)#3}::operator()<float*>(float*&&) const"
)


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (StackFrame("ops::f(int)", "/x/libops.so", 0x10, "/src/ops.cpp", 12), "ops::f at /src/ops.cpp:12"),
        (StackFrame("at::native::f()", "/x/libtorch_cpu.so", 0x10), "at::native::f in libtorch_cpu.so"),
        (StackFrame("", "/x/libops.so", 0x1234), "libops.so+0x1234"),
        (StackFrame("", "", 0), "address 0x0, which is no code"),
        (StackFrame("<lambda>", file="/src/ops.py", line=3), "<lambda> at /src/ops.py:3"),
        (
            StackFrame("cpp_fused_0", file="/h/aoti_debug/scratch/12-ab/kernel.cpp", line=30),
            "cpp_fused_0 at kernel.cpp:30",
        ),
        (StackFrame("f", file="/h/scratch/ops/f.py", line=3), "f at /h/scratch/ops/f.py:3"),
        (
            StackFrame("torch::aot_inductor::AOTInductorModel::run_impl(int)", "/t/m.so", 1, "/gone/wrapper.cpp", 40),
            "run_impl at wrapper.cpp:40",
        ),
        (StackFrame("torch::aot_inductor::AOTInductorModel::run_impl(int)", "/t/m.so", 1), "run_impl"),
    ],
)
def test_the_text_of_a_frame(frame: StackFrame, text: str) -> None:
    assert frame.text == text


@pytest.mark.parametrize(
    "frame",
    [
        StackFrame("void aoti_debug::(anonymous namespace)::launch<F>(AotiDebugSite const&, F&&)", "/t/m.so"),
        StackFrame("launch<F>", "/t/m.so", 0, "/x/runtime_shims/aoti_debug.h", 286),
        StackFrame(LAMBDA, "/t/m.so"),
        StackFrame("c10::Dispatcher::callBoxed(c10::OperatorHandle const&) const", "/t/libtorch_cpu.so"),
        StackFrame("c10::impl::make_boxed_from_unboxed_functor<F, false>::call(c10::OperatorKernel*)", "/t/libops.so"),
        StackFrame("at::_ops::add_Tensor::call(at::Tensor const&)", "/t/libtorch_cpu.so"),
        StackFrame("aoti_torch_proxy_executor_call_function", "/t/libtorch_cpu.so"),
        StackFrame("torch::inductor::AOTIModelContainerRunner::run_impl(int)", "/t/libtorch_cpu.so"),
        StackFrame("_PyEval_EvalFrameDefault", "/usr/bin/python3.11"),
        StackFrame("do_call_core", "/usr/bin/python3.11"),
        StackFrame("pybind11::cpp_function::dispatcher(_object*)", "/t/libtorch_python.so"),
        StackFrame("start_thread", "/lib/libc.so.6"),
        StackFrame("", "/lib/x86_64-linux-gnu/libc.so.6", 0x27249),
        StackFrame("", "/usr/lib/libffi.so.8.1.2", 0x6F79),
    ],
)
def test_irrelevant_frames(frame: StackFrame) -> None:
    assert is_noise(frame)


@pytest.mark.parametrize(
    "frame",
    [
        StackFrame("native_ops::act(at::Tensor const&)", "/t/libops.so"),
        StackFrame("at::native::index_select_out(int)", "/t/libtorch_cpu.so"),
        StackFrame("cpp_fused_relu_1._omp_fn.0", "/t/m.so"),
        StackFrame("torch::aot_inductor::AOTInductorModel::run_impl(int)", "/t/m.so"),
        StackFrame("memcpy", "/lib/libc.so.6"),
        StackFrame("", "/t/libops.so", 0x1234),
    ],
)
def test_relevant_frames(frame: StackFrame) -> None:
    assert not is_noise(frame)


def test_folders_of_generated_files_are_left_out_of_a_text() -> None:
    said = "Error at /root/.cache/aoti_debug/scratch/98-f8/kernel.cpp:56, in /home/u/scratch/ops/a.py"
    assert without_compiled_folders(said) == "Error at kernel.cpp:56, in /home/u/scratch/ops/a.py"
    division = "throw_if_div_error, /v/torch/include/torch/csrc/inductor/cpp_prefix.h:827, ZeroDivisionError"
    assert without_compiled_folders(division) == "throw_if_div_error, cpp_prefix.h:827, ZeroDivisionError"


def test_the_frames_of_an_abort_are_left_out() -> None:
    dying = ("", "pthread_kill", "raise", "abort", "", "std::terminate()", "__cxa_throw")
    stack = tuple(
        StackFrame(name, "/lib/libc.so.6" if index < 4 else "/lib/libstdc++.so.6") for index, name in enumerate(dying)
    )
    guilty = StackFrame("ops::Guard::~Guard()", "/t/libops.so")
    assert without_abort_frames((*stack, guilty, guilty)) == (guilty, guilty)
    assert without_abort_frames(stack) == stack


def test_frames_of_an_operator_in_python() -> None:
    paths = (
        "/u/ops.py",
        "/p/torch/_library/custom_ops.py",
        "/u/lib.py",
        "/p/torch/_inductor/package/package.py",
        "/u/main.py",
    )
    stack = [StackFrame("f", file=path, line=1) for path in paths]
    assert [frame.file for frame in operator_python_frames(stack)] == ["/u/ops.py", "/u/lib.py"]


@pytest.mark.parametrize(
    ("functions", "thrower"),
    [
        (
            (
                "abort",
                "std::terminate()",
                "__cxa_throw",
                "torch::inductor::Runner::run_impl(std::vector<int>&)",
                "main",
            ),
            "torch::inductor::Runner::run_impl",
        ),
        (("abort", "_Unwind_RaiseException", "__cxa_throw", "torchCheckFail", "main"), "torchCheckFail"),
        (("_Unwind_RaiseException", "__cxa_throw", "torchCheckFail", "main"), ""),
        (("abort", "std::terminate()", "main"), ""),
        (("abort", "main"), ""),
        (("abort", "std::terminate()", "__cxa_throw"), ""),
    ],
)
def test_an_exception_that_nothing_caught_is_told_with_what_threw_it(functions: tuple[str, ...], thrower: str) -> None:
    assert thrower_of([StackFrame(name) for name in functions]) == thrower

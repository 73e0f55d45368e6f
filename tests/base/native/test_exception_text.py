from __future__ import annotations

from pathlib import Path

import pytest

from aoti_debug.base.native import exception_text

NATIVE = """the operator refuses
and says why
Exception raised from act at /src/ops.cpp:66 (most recent call first):
frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x9d (0x7f2a399a6b8d in /t/libc10.so)
frame #1: c10::detail::torchCheckFail(char const*, unsigned int) + 0x69 (0x7f2a399334ab in /t/libc10.so)
frame #2: native_ops::act(at::Tensor const&) + 0x160 (0x7f2a39a3391c in /t/libops.so)
frame #3: <unknown function> + 0x5c233c4 (0x7f2a290233c4 in /t/libtorch_cpu.so)
frame #4: aoti_torch_proxy_executor_call_function + 0x17 (0x7f2a290bd377 in /t/libtorch_cpu.so)
frame #5: torch::aot_inductor::AOTInductorModel::run_impl(void*) + 0x401 (0x7f2a197c01ed in /t/m.wrapper.so)
"""
PYTHON = """ValueError: the answer is not 42
and there is more to say

At:
  /u/ops.py(14): _raise
  /u/ops.py(31): act
  /p/torch/_library/custom_ops.py(502): wrapped_fn
  /p/torch/export/pt2_archive/_package.py(743): __call__
  /u/main.py(59): <module>
"""


def test_an_exception_of_torch() -> None:
    assert exception_text.message(NATIVE) == "the operator refuses\nand says why"
    assert exception_text.frames(NATIVE) == ("native_ops::act at /src/ops.cpp:66", "run_impl")


def test_an_exception_of_torch_itself() -> None:
    text = NATIVE.replace("from act at", "from check at").replace("native_ops::act", "at::native::add")
    assert exception_text.frames(text) == ("check at /src/ops.cpp:66", "at::native::add in libops.so", "run_impl")


def test_an_exception_of_python() -> None:
    assert exception_text.message(PYTHON) == "ValueError: the answer is not 42\nand there is more to say"
    assert exception_text.frames(PYTHON) == ("_raise at /u/ops.py:14", "act at /u/ops.py:31")


def test_a_text_without_a_stack() -> None:
    text = "index out of range\nAt: the third row"
    assert (exception_text.message(text), exception_text.frames(text)) == (text, ())
    assert (exception_text.message(""), exception_text.frames("")) == ("", ())


@pytest.mark.parametrize(
    ("stderr", "message"),
    [
        (
            "terminate called after throwing an instance of 'std::runtime_error'\n  what():  it is over\n",
            "uncaught std::runtime_error: it is over",
        ),
        ("0.1 before f\ndouble free or corruption (!prev)\n", "double free or corruption (!prev)"),
        ("model: ops.cpp:3: int f(): Assertion `x' failed.\n", "model: ops.cpp:3: int f(): Assertion `x' failed."),
        ("nothing of note\n", ""),
    ],
)
def test_abort_message(tmp_path: Path, stderr: str, message: str) -> None:
    (tmp_path / "stderr.log").write_text(stderr)
    assert exception_text.abort_message(tmp_path) == message


@pytest.mark.parametrize(
    "behind", ["", "\n0.2 FAULT in op: \n", "\nTraceback (most recent call last):\n", "\n[W1123 x] no\n"]
)
def test_shim_exception(tmp_path: Path, behind: str) -> None:
    assert exception_text.shim_exception(tmp_path) == ""
    text = "ValueError: 42\nand more\n\nAt:\n  /m.py(14): act"
    logged = "[E1123 18:36 shim_common.cpp:1341] Exception in aoti_torch: "
    (tmp_path / "stderr.log").write_text(f"0.1 after op\n{logged}{text}\n\n{behind}{logged}more\n")
    assert exception_text.shim_exception(tmp_path) == text

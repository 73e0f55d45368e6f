from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.repro.templates.debugger_commands import Breakpoint, cuda_commands, gdb_commands, variables

GOLDEN = Path(__file__).parent.parent / "golden/debugger"
CPP = Breakpoint("0.3 cpp_fused_relu_1", "cpp_fused_relu_1", {"in_ptr0": "arg_buf3", "out_ptr0": "arg_l_weight_view"})
CUDA = Breakpoint("0.2 lookup_kernel_0", "lookup_kernel", {}, (5, 0, 1), (96, 0, 0))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cpp.gdb", gdb_commands(CPP, batch=False)),
        ("cpp_batch.gdb", gdb_commands(CPP, batch=True)),
        ("cuda.gdb", cuda_commands(CUDA, batch=False)),
        ("cuda_batch.gdb", cuda_commands(CUDA, batch=True)),
        ("cuda_anywhere.gdb", cuda_commands(replace(CUDA, block=None, thread=None), batch=True)),
    ],
)
def test_command_files(golden: Callable[[Path, str], None], name: str, text: str) -> None:
    golden(GOLDEN / name, text)


def test_no_variable_is_a_register_or_two_arguments() -> None:
    arguments = {"in_ptr0": "sp", "in_ptr1": "a.b", "in_ptr2": "a_b", "in_ptr3": "größe"}
    assert variables(arguments) == {
        "in_ptr0": "arg_sp",
        "in_ptr1": "arg_a_b",
        "in_ptr2": "arg_a_b_2",
        "in_ptr3": "arg_gr__e",
    }


def test_a_block_without_a_thread_is_entered_at_its_first() -> None:
    assert "cuda block 5,0,1 thread 0,0,0\n" in cuda_commands(replace(CUDA, thread=None), batch=False)

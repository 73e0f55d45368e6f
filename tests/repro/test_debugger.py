"""`--debugger` without a terminal: gdb runs up to a C++ kernel, then to its end or its fault."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from aoti_debug.package.manifest import Kind, Role
from aoti_debug.repro.templates import cpp_build, verdict
from aoti_debug.repro.templates.accesses import Access
from aoti_debug.repro.templates.debugger import (
    Breakpoint,
    argument_lines,
    cuda_commands,
    gdb_commands,
    kernel_variables,
)
from aoti_debug.repro.templates.memory import LaunchMemory
from tests.repro.planted_triton import row_maxima_repro
from tests.repro.repro_launches import ADD_ONE, LaunchBuilder, cpp_repro, replay, write

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
    assert kernel_variables(arguments) == {
        "in_ptr0": "arg_sp",
        "in_ptr1": "arg_a_b",
        "in_ptr2": "arg_a_b_2",
        "in_ptr3": "arg_gr__e",
    }


def test_a_block_without_a_thread_is_entered_at_its_first() -> None:
    assert "cuda block 5,0,1 thread 0,0,0\n" in cuda_commands(replace(CUDA, thread=None), batch=False)


TITLE = "0.3 cpp_fused_planted_0"
needs_gdb = pytest.mark.skipif(shutil.which("gdb") is None, reason="gdb is not installed")


@pytest.fixture
def mangled_names(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets gdb leave the names of torch's C++ functions as they are: to read them all takes it most of its time."""
    folder = tmp_path_factory.mktemp("config") / "gdb"
    folder.mkdir()
    (folder / "gdbinit").write_text("set demangle-style none\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder.parent))


@needs_gdb
@pytest.mark.usefixtures("mangled_names")
def test_the_arguments_at_the_kernel_and_the_end(tmp_path: Path) -> None:
    folder = cpp_repro(tmp_path, ADD_ONE)
    done = replay(folder, "--debugger")
    rows = re.findall(r"^  (\w+) +(\w+) +(\w+) +(\w+) +(0x[0-9a-f]+) +(.*)$", done.stdout, re.MULTILINE)
    assert [(*row[:4], row[5]) for row in rows] == [
        ("in_ptr0", "arg0_1", "float32", "64", "[0, 1, 2, 3, 4, 5, 6, 7, …]"),
        ("out_ptr0", "buf0", "float32", "64", "[7, 7, 7, 7, 7, 7, 7, 7, …]"),
    ], done
    assert f"cpp_fused_planted_0 (in_ptr0={rows[0][4]}, out_ptr0={rows[1][4]}, ks0=64)" in done.stdout
    assert f"{TITLE}: stopped at the kernel" in done.stdout
    assert "in gdb they are $arg_arg0_1, $arg_buf0\n" in done.stdout
    assert f"{TITLE}: as recorded\n" in done.stdout
    assert done.returncode == 0


@needs_gdb
@pytest.mark.usefixtures("mangled_names")
def test_a_crash_is_shown_with_its_line_and_variables(tmp_path: Path) -> None:
    folder = cpp_repro(tmp_path, "int wild = 16;\n    *(volatile int*)(int64_t)wild = 1;", fault="SIGSEGV")
    done = replay(folder, "--debugger")
    assert "received signal SIGSEGV" in done.stdout, done
    at_fault = done.stdout.partition("the fault:\n")[2]
    assert "*(volatile int*)(int64_t)wild = 1;" in done.stdout
    assert "#0  " in at_fault
    assert "wild = 16" in at_fault
    assert done.returncode == 11


@needs_gdb
def test_an_exception_is_shown_where_it_is_thrown(tmp_path: Path) -> None:
    folder = cpp_repro(tmp_path, 'throw std::runtime_error("index out of bounds");', fault="RuntimeError: index")
    done = replay(folder, "--debugger")
    assert re.search(r"#\d+ .* in cpp_fused_planted_0 \(", done.stdout.partition("the fault:\n")[2]), done
    assert done.returncode == 11


@needs_gdb
@pytest.mark.usefixtures("mangled_names")
def test_a_fault_that_needs_optimisation_keeps_it(tmp_path: Path) -> None:
    body = "\n#ifdef __OPTIMIZE__\n    *(volatile int*)16 = 1;\n#endif\n"
    folder = cpp_repro(tmp_path, body, fault="SIGSEGV")
    script = folder / "repro.py"
    script.write_text(script.read_text().replace("flags=(", 'flags=("-O2", ', 1))
    done = replay(folder, "--debugger")
    assert f"{TITLE}: the fault does not come without optimisation" in done.stdout, done
    assert "received signal SIGSEGV" in done.stdout
    assert done.returncode == 11


def test_no_gdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = cpp_repro(tmp_path, ADD_ONE)
    monkeypatch.setenv("PATH", str(tmp_path))
    done = replay(folder, "--debugger")
    assert done.stderr == f"{TITLE}: gdb was not found on PATH; install it: apt install gdb, dnf install gdb\n"
    assert done.returncode == 1


def test_what_no_debugger_stops_at(tmp_path: Path) -> None:
    saved = tmp_path / "run"
    saved.mkdir()
    launch = LaunchBuilder(saved, "aoti_torch_zero_", Kind.SHIM_INPLACE, "aten.zero_.default")
    folder = write(launch.tensor("a", torch.ones(2), Role.INOUT, after=torch.zeros(2)).build(), tmp_path / "repro")
    done = replay(folder, "--debugger")
    assert "it calls torch's own code, which has no kernel to stop at; gdb --args" in done.stderr
    assert done.returncode == 1


def test_the_interpreter_has_no_debugger(tmp_path: Path) -> None:
    folder = row_maxima_repro(tmp_path)
    done = replay(folder, "--debugger", "--backend", "interpret")
    assert "the back end interpret runs in Python; --backend jit runs under cuda-gdb" in done.stderr
    assert done.returncode == 1
    assert replay(folder, "--debugger", "--evidence", str(tmp_path / "e.json")).returncode == 2


def test_the_first_values_of_a_tensor() -> None:
    strided = torch.arange(60.0).reshape(3, 4, 5).permute(2, 0, 1)
    tensors = {
        "strided": strided,
        "packed": torch.zeros(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
        "empty": torch.ones(3, 0),
        "one": torch.tensor(7),
    }
    memory = LaunchMemory({}, tensors)
    values = [line[line.rindex("[") :] for line in argument_lines(memory, {})[1:]]
    assert values == ["[0, 5, 10, 15, 20, 25, 30, 35, …]", "[…]", "[]", "[7]"]
    assert strided.reshape(-1)[:8].tolist() == [0, 5, 10, 15, 20, 25, 30, 35]


def test_no_more_than_the_first_values_is_copied() -> None:
    huge = torch.empty_strided((1, 1), (1, 1)).expand(1 << 40, 1 << 10)  # to flatten it would take 4 PiB
    assert argument_lines(LaunchMemory({}, {"x": huge}), {})[1].endswith(", …]")


def test_the_block_of_an_option_has_no_remembered_thread(tmp_path: Path) -> None:
    thread = "thread (96,0,0) in block (1,0,0)"
    verdict.remember(tmp_path, [Access("sanitizer", thread=thread, program=(1, 0, 0))])
    assert verdict.stopped_in(tmp_path, (4,), ()) == ((1, 0, 0), (96, 0, 0))
    assert verdict.stopped_in(tmp_path, (1,), ()) == (None, None)
    assert verdict.stopped_in(tmp_path, (4,), ((3, 0, 0),)) == ((3, 0, 0), None)


def test_a_block_outside_of_the_grid(tmp_path: Path) -> None:
    done = replay(row_maxima_repro(tmp_path, device="cuda:0"), "--debugger", "--backend", "jit", "--program", "9,0,0")
    assert re.fullmatch(r"\S+ \S+: --program 9,0,0 is not in the grid of \d+x1x1, counted from 0\n", done.stderr), done
    assert done.returncode == 1


def test_the_program_is_remembered_where_the_folder_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = tmp_path / "private"
    private.mkdir()
    monkeypatch.setattr(cpp_build, "_elsewhere", lambda: private)
    (tmp_path / "build").mkdir()
    (tmp_path / "build").chmod(0o777)
    verdict.remember(tmp_path, [Access("bounds", program=(3, 0, 1))])
    assert (private / "guilty_program.json").exists()
    assert verdict.remembered(tmp_path) == ((3, 0, 1), None)


def test_the_program_that_a_finding_names_is_remembered(tmp_path: Path) -> None:
    assert verdict.remembered(tmp_path) == (None, None)
    verdict.remember(tmp_path, [Access("sanitizer"), Access("bounds", program=(3, 0, 1))])
    assert verdict.remembered(tmp_path) == ((3, 0, 1), None)
    named = Access("sanitizer", thread="thread (96,0,0) in block (5,0,0)", program=(5, 0, 0))
    verdict.remember(tmp_path, [named])
    assert verdict.remembered(tmp_path) == ((5, 0, 0), (96, 0, 0))
    (tmp_path / "build/guilty_program.json").write_text("{}")
    assert verdict.remembered(tmp_path) == (None, None)

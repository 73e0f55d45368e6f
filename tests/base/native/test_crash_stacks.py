from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aoti_debug.base.errors import RunDirError
from aoti_debug.base.native import crash_stacks
from aoti_debug.base.native.crash_stacks import Backtrace, Stack
from aoti_debug.base.native.frames import StackFrame
from aoti_debug.runs.diagnosis.diagnose import diagnose
from aoti_debug.runs.diagnosis.verdict import Proof, Verdict
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir import run_directory
from tests import native_library
from tests.native_library import SOURCE, line_of
from tests.wrong_types import assert_refused

GENERATED = StackFrame("torch::aot_inductor::AOTInductorModel::run_impl(void*)", "/t/m.so", 7)
INTERPRETER = StackFrame("_PyEval_EvalFrameDefault", "/usr/bin/python3.11", 5)


def native(name: str, offset: int = 0) -> StackFrame:
    return StackFrame(f"ops::{name}(int)", "/t/libops.so", offset)


# Which frames are useful


def test_the_innermost_frame_is_always_kept() -> None:
    stack = Stack(1, "SIGSEGV", 16, (StackFrame("", "/lib/libc.so.6", 0x10), native("act"), INTERPRETER, GENERATED))
    assert Backtrace((stack,)).useful() == ("libc.so.6+0x10 (address 0x10)", "ops::act in libops.so", "run_impl")


def test_python_frames_replace_those_of_the_interpreter() -> None:
    stack = Stack(1, "SIGSEGV", None, (native("f"), INTERPRETER, INTERPRETER, GENERATED))
    python = (StackFrame("act", file="/u/ops.py", line=3),)
    assert Backtrace((stack,), python).useful() == ("ops::f in libops.so", "act at /u/ops.py:3", "run_impl")


def test_python_frames_are_left_out_of_a_stack_without_the_interpreter() -> None:
    stack = Stack(1, "SIGSEGV", None, (native("f"), GENERATED))
    python = (StackFrame("act", file="/u/ops.py", line=3),)
    assert Backtrace((stack,), python).useful() == ("ops::f in libops.so", "run_impl")


def test_at_most_six_frames_with_the_outermost_one() -> None:
    frames = tuple(native(f"f{n}", n) for n in range(20))
    lines = Backtrace((Stack(1, "SIGFPE", None, (*frames, GENERATED)),)).useful()
    assert lines == (*(f"ops::f{n} in libops.so" for n in range(5)), "run_impl")


def test_recursion_is_one_line() -> None:
    stack = Stack(1, "SIGSEGV", None, (native("f", 1), *(native("f", 2),) * 99, native("g")))
    assert Backtrace((stack,)).useful() == ("ops::f in libops.so (× 100)", "ops::g in libops.so")


def test_a_stack_of_an_abort_begins_at_its_caller() -> None:
    dying = (StackFrame("raise", "/lib/libc.so.6"), StackFrame("abort", "/lib/libc.so.6"))
    assert Backtrace((Stack(1, "SIGABRT", None, (*dying, native("f"))),)).useful() == ("ops::f in libops.so",)
    crash = Backtrace((Stack(1, "SIGSEGV", None, (*dying, native("f"))),))
    assert crash.useful()[0] == "raise in libc.so.6"


def test_the_stack_of_a_requested_thread() -> None:
    hung = Backtrace((Stack(1, "", None, (native("main"),)), Stack(2, "", None, (native("worker"),))))
    assert hung.useful([2]) == ("ops::worker in libops.so",)
    assert hung.useful([9]) == ("ops::main in libops.so",)
    died = Backtrace((Stack(1, "", None, (native("main"),)), Stack(3, "SIGSEGV", None, (native("crash"),))))
    assert died.useful([1]) == ("ops::crash in libops.so",)


def test_a_backtrace_of_python_frames_only() -> None:
    assert Backtrace((), (StackFrame("act", file="/u/ops.py", line=3),)).useful() == ("act at /u/ops.py:3",)


# The files


def test_a_run_without_stacks(tmp_path: Path) -> None:
    (tmp_path / crash_stacks.PYTHON).touch()
    crash_stacks.preserve(tmp_path)
    assert crash_stacks.read(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def crashed(folder: Path, *lines: str) -> Path:
    head = "thread 7 signal 11 code 1 address 0x10 pc 0x5010 caller 0x9000"
    (folder / crash_stacks.STACKS).write_text("".join(f"{line}\n" for line in (head, *lines)))
    (folder / crash_stacks.MAPS).write_text(
        "5000-6000 r-xp 00001000 fe:00 42   /gone/lib ops.so (deleted)\n"
        "7000-8000 rw-p 00000000 00:00 0\n"
        "9000-a000 r-xp 00000000 00:00 0   [vdso]\n"
    )
    return folder


def test_addresses_of_libraries_that_are_gone(tmp_path: Path) -> None:
    backtrace = crash_stacks.decode(crashed(tmp_path, "frames 7 0x5010 0x5021 0x9011 0xb000"))
    assert backtrace is not None
    (stack,) = backtrace.stacks
    assert (stack.thread, stack.signal, stack.address) == (7, "SIGSEGV", 16)
    assert [(frame.library, frame.offset) for frame in stack.frames] == [
        *(("/gone/lib ops.so", 0x1010), ("/gone/lib ops.so", 0x1020), ("[vdso]", 0x9010), ("", 0xAFFF)),
    ]


@pytest.mark.parametrize("frames", [(), ("frames 7",)])
def test_a_stack_that_could_not_be_unwound(tmp_path: Path, frames: tuple[str, ...]) -> None:
    backtrace = crash_stacks.decode(crashed(tmp_path, *frames))
    assert backtrace is not None
    assert [frame.offset for frame in backtrace.stacks[0].frames] == [0x1010, 0x8FFF]


def test_files_truncated_by_a_full_disk(tmp_path: Path) -> None:
    whole = crashed(tmp_path, "frames 7 0x5010 0x5021 0x")
    (whole / crash_stacks.STACKS).write_text((whole / crash_stacks.STACKS).read_text().removesuffix("\n"))
    (whole / crash_stacks.MAPS).write_text((whole / crash_stacks.MAPS).read_text()[:90])
    backtrace = crash_stacks.decode(whole)
    assert backtrace is not None
    assert [frame.offset for frame in backtrace.stacks[0].frames] == [0x1010, 0x8FFF]


def test_preserving_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    run = crashed(tmp_path, "frames 7 0x5010")
    monkeypatch.setattr(Path, "write_bytes", full)
    crash_stacks.preserve(run)
    assert sorted(path.name for path in run.iterdir()) == [crash_stacks.MAPS, crash_stacks.STACKS]
    assert crash_stacks.decode(run) is not None


def test_preserved_stacks_equal_the_decoded_ones(tmp_path: Path) -> None:
    before = crash_stacks.decode(crashed(tmp_path, "frames 7 0x5010 0x5021"))
    crash_stacks.preserve(tmp_path)
    (tmp_path / crash_stacks.STACKS).unlink()
    assert crash_stacks.read(tmp_path) == before


@pytest.mark.parametrize(
    "text", ['{"format": 2}', "{", '{"format": 1, "stacks": [{}], "python": []}', "[]", "[" * 200_000]
)
def test_a_file_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    (tmp_path / crash_stacks.NAME).write_text(text)
    with pytest.raises(RunDirError, match=r"backtrace\.json") as caught:
        crash_stacks.read(tmp_path)
    assert caught.value.hint


def test_wrong_types_are_damage(tmp_path: Path) -> None:
    crash_stacks.preserve(crashed(tmp_path, "frames 7 0x5010"))
    path = tmp_path / crash_stacks.NAME
    data = json.loads(path.read_text())
    data["python"] = [data["stacks"][0]["frames"][0] | {"file": "/u/ops.py", "line": 3}]

    def read(changed: object) -> Backtrace | None:
        path.write_text(json.dumps(changed))
        return crash_stacks.read(tmp_path)

    assert_refused(read, data, RunDirError, "backtrace.json is damaged", unread=("format",))


def test_the_stack_of_python(tmp_path: Path) -> None:
    (tmp_path / crash_stacks.PYTHON).write_text(
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x7f (most recent call first):\n"
        '  File "/u/ops.py", line 19 in <lambda>\n'
        '  File "/p/torch/_ops.py", line 8 in __call__\n'
        '  File "/p/torch/_inductor/package/package.py", line 9 in __call__\n'
        '  File "/u/main.py", line 1 in <module>\n'
    )
    backtrace = crash_stacks.decode(tmp_path)
    assert backtrace is not None
    assert backtrace.useful() == ("<lambda> at /u/ops.py:19",)


@pytest.mark.parametrize("calling", [0, 1, 2])
def test_the_stack_of_python_is_that_of_the_only_thread_in_a_call(tmp_path: Path, calling: int) -> None:
    call = '  File "/p/torch/_inductor/package/package.py", line 9 in __call__\n'
    (tmp_path / crash_stacks.PYTHON).write_text(
        'Stack (most recent call first):\n  File "/u/server.py", line 7 in wait\n'
        + f'Stack (most recent call first):\n  File "/u/ops.py", line 19 in act\n{call}' * calling
    )
    backtrace = crash_stacks.decode(tmp_path)
    shown = {0: ("wait at /u/server.py:7",), 1: ("act at /u/ops.py:19",)}
    assert (() if backtrace is None else backtrace.useful()) == shown.get(calling, ())


# Real crashes


def verdict_of(package: Path, base: Path, proof: Proof = Proof.CERTAIN, **options: Any) -> Verdict:
    result = runner.run(RunOptions(package, out=base, **options))
    assert result.verdict is not None
    assert result.verdict.launch is not None
    assert result.verdict.launch.kernel == "native::act.default"
    assert result.verdict.proof is proof
    return result.verdict


def at(function: str, text: str) -> str:
    return f"native_ops::{function} at {SOURCE}:{line_of(text)}"


DEREFERENCE = (at("read_row", "int read_row("), at("dereference", "void dereference("))


@pytest.mark.parametrize(
    ("action", "what", "frames"),
    [
        (
            "read",
            "SIGSEGV (Segmentation fault)",
            (f"{DEREFERENCE[0]} (address 0x10)", DEREFERENCE[1], at("act", "dereference();")),
        ),
        ("worker", "SIGSEGV (Segmentation fault)", (f"{DEREFERENCE[0]} (address 0x10)", DEREFERENCE[1])),
        (
            "call",
            "SIGSEGV (Segmentation fault)",
            ("address 0x0, which is no code", at("call_nothing", "nothing();")),
        ),
        ("divide", "SIGFPE (Floating point exception)", (at("divide", "int divide("), at("act", "divide(0);"))),
        (
            "destroy",
            "SIGABRT (Aborted): uncaught std::runtime_error: thrown by a destructor",
            (at("Guard::~Guard", "~Guard()"), at("destroy", "Guard guard;"), at("act", "destroy();")),
        ),
        ("check", "the operator refuses", (at("act", "TORCH_CHECK("), "run_impl")),
    ],
)
def test_stacks_of_failures_in_a_native_operator(
    native_package: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    action: str,
    what: str,
    frames: tuple[str, ...],
) -> None:
    monkeypatch.setenv("NATIVE_OPS", action)
    is_elsewhere = action == "worker"  # nothing says that the thread works for the launch
    verdict = verdict_of(native_package, tmp_path / "runs", Proof.LIKELY if is_elsewhere else Proof.CERTAIN)
    assert ("came in another thread" in verdict.why) is is_elsewhere
    assert verdict.what == what
    assert verdict.frames[: len(frames)] == frames
    if action in ("read", "divide", "destroy"):
        assert verdict.frames[-1].startswith("run_impl at ")
    assert len(list((tmp_path / "runs").iterdir())) == 2  # the run, and `latest`


def test_a_stack_overflow(native_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NATIVE_OPS", "recurse")
    frames = verdict_of(native_package, tmp_path).frames
    assert frames[0].startswith("native_ops::recurse at ")
    assert frames[-1].startswith(at("recurse", "return recurse(") + " (× ")


def test_the_stack_of_a_hanging_operator(native_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NATIVE_OPS", "spin")
    verdict = verdict_of(native_package, tmp_path, stall=2)
    assert verdict.what == "no end: no progress for 2 s"
    assert verdict.frames[0].startswith(f"native_ops::spin at {SOURCE}:")
    assert verdict.frames[1] == at("act", "spin();")
    kept = json.loads((run_directory.find(base=tmp_path) / crash_stacks.NAME).read_text())
    assert {stack["signal"] for stack in kept["stacks"]} == {""}


EMBEDDED = """
import sys, torch
torch.ops.load_library(sys.argv[2])
torch._inductor.aoti_load_package(sys.argv[1])(torch.ones(2, 4))
"""


def test_a_host_process_without_a_parent_of_ours(native_package: Path, tmp_path: Path) -> None:
    library = native_library.compiled()
    command = [sys.executable, "-c", EMBEDDED, str(native_package), str(library)]
    variables = {"AOTI_DEBUG_DIR": str(tmp_path), "AOTI_DEBUG_BACKTRACE": "1", "NATIVE_OPS": "read"}
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGSEGV, done.stderr
    verdict = diagnose(run_directory.open_run(base=tmp_path))
    assert verdict is not None
    assert verdict.what == "SIGSEGV (Segmentation fault)"
    assert verdict.proof is Proof.CERTAIN
    assert verdict.frames[0] == f"{DEREFERENCE[0]} (address 0x10)"


def test_backtraces_can_be_disabled(native_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NATIVE_OPS", "read")
    monkeypatch.setenv("AOTI_DEBUG_BACKTRACE", "0")
    assert verdict_of(native_package, tmp_path).frames == ()


def test_frames_of_a_python_operator_are_kept_before_those_that_it_has_called() -> None:
    called = [native(f"gloo::step{number}") for number in range(5)]
    stack = Stack(1, "", None, (native("wait"), *called, INTERPRETER, GENERATED))
    own = [StackFrame(name, file="/u/ops.py", line=3) for name in ("all_reduce", "collective", "stay")]
    found = crash_stacks.useful(stack, own)
    assert len(found) == 6
    assert [line.split()[0] for line in found[2:5]] == ["all_reduce", "collective", "stay"]
    assert found[5] == "run_impl"


# What the threads of a process that hung were doing


def test_threads_in_launches_come_first_and_equal_ones_are_counted() -> None:
    lock, rows = StackFrame("pthread_mutex_lock", "/lib/libc.so.6"), StackFrame("rows", "/t/o.so", 0, "/u/rows.cpp", 12)
    header = StackFrame("std::mutex::lock", "/t/o.so", 0, "/usr/include/c++/12/bits/std_mutex.h", 100)
    idle = (StackFrame("wait", "/lib/libgomp.so.1"),)
    found = Backtrace(
        (
            Stack(4, "", None, idle, "waits for a futex"),
            Stack(5, "", None, (lock, header, rows), "waits for a futex; thread 9 may hold it"),
            Stack(6, "", None, idle, "waits for a futex"),
            Stack(7, "", None, (rows,), "runs, and waits for nothing"),
            Stack(8, "", None, (rows,), ""),  # the system did not tell
        )
    )
    assert found.waits({5: "0.1"}) == (
        "thread 5, in 0.1, waits for a futex, in pthread_mutex_lock in libc.so.6, called by rows at /u/rows.cpp:12; "
        "thread 9 may hold it",
        "2 other threads, each: waits for a futex, in wait in libgomp.so.1",
        "thread 7 runs, and waits for nothing, in rows at /u/rows.cpp:12",
    )


def test_a_thread_that_waits_in_python_is_where_python_is() -> None:
    wait = StackFrame("sem_wait", "/lib/libc.so.6")
    stacks = tuple(Stack(thread, "", None, (wait, INTERPRETER, GENERATED), "waits for a futex") for thread in (1, 2))
    found = Backtrace(stacks, (StackFrame("get", file="/u/queue.py", line=171),))
    assert found.waits({1: "0.3"}) == (
        "thread 1, in 0.3, waits for a futex, in sem_wait in libc.so.6, called by get at /u/queue.py:171",
        "thread 2 waits for a futex, in sem_wait in libc.so.6",  # whose Python frames are not known
    )

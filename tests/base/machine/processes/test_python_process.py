"""Python processes, forked and new: both must look the same to what they execute."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from aoti_debug.base.errors import TargetError
from aoti_debug.base.machine import torch_settings
from aoti_debug.base.machine.processes import child_process, python_process
from aoti_debug.base.machine.processes.child_process import Child, FinishedProcess
from aoti_debug.base.machine.processes.fork_client import ForkServer, ForkServerError
from aoti_debug.base.machine.processes.python_process import DESCRIPTOR, PARENT, PythonCommand

MODULE = """
import os, sys

def main():
{body}

if __name__ == "__main__":
    sys.exit(main())
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of modules that a process finds; it is the working directory, too."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(params=["forked", "new"])
def way(request: pytest.FixtureRequest, module: Path) -> Iterator[str]:
    """Processes are forked in one half of the tests, and new in the other."""
    if request.param == "new":
        yield "new"
        return
    with python_process.forking_from(["json"]) as server:
        yield "forked"
        assert server.failure == ""


start = functools.partial(python_process.start, after="json")


def write(body: str, name: str = "some_module") -> PythonCommand:
    Path(f"{name}.py").write_text(MODULE.format(body=textwrap.indent(textwrap.dedent(body).strip(), "    ")))
    return PythonCommand(name)


def finish(
    command: PythonCommand, stderr: int = subprocess.PIPE, variables: dict[str, str] | None = None
) -> FinishedProcess:
    environment = {**os.environ, **(variables or {})}
    with start(command, environment, stdout=subprocess.PIPE, stderr=stderr) as child:
        return child_process.finished(child, 60)


def test_output_and_exit_code(way: str) -> None:
    done = finish(write("print('out'); print('err', file=sys.stderr); return 3"))
    assert done == FinishedProcess(3, "out\n", "err\n")


def test_both_streams_in_one(way: str) -> None:
    done = finish(write("print('out', flush=True); print('err', file=sys.stderr)"), stderr=subprocess.STDOUT)
    assert done == FinishedProcess(0, "out\nerr\n", "")


def test_an_exception_and_a_signal(way: str) -> None:
    done = finish(write("raise ValueError('no')"))
    assert (done.code, done.stderr.splitlines()[-1]) == (1, "ValueError: no")
    assert finish(write("os.abort()", "other_module")).code == -signal.SIGABRT


def test_exit_handlers_run_and_open_files_are_written(way: str) -> None:
    command = write("""
        import atexit, ctypes, threading, time
        atexit.register(print, "python")
        global LOG
        LOG = open("log.txt", "w")
        LOG.write("not flushed")
        global TEXT
        TEXT = ctypes.create_string_buffer(b"library")
        ctypes.CDLL(None).__cxa_atexit(ctypes.CDLL(None).puts, TEXT, None)
        threading.Thread(target=lambda: (time.sleep(0.1), print("thread"))).start()
        """)
    assert finish(command).stdout == "thread\npython\nlibrary\n"
    assert Path("log.txt").read_text() == "not flushed"


def test_a_script_sees_itself_and_its_folder(way: str, module: Path) -> None:
    (module / "folder").mkdir()
    (module / "folder" / "beside.py").write_text("NAME = 'beside'\n")
    script = module / "folder" / "script.py"
    script.write_text("import sys, beside\nprint(__name__, __file__, sys.argv, beside.NAME)\nsys.exit('failed')\n")
    done = finish(PythonCommand(script=str(script), arguments=("--x", "1")))
    assert done.stdout == f"__main__ {script} {[str(script), '--x', '1']} beside\n"
    assert (done.code, done.stderr) == (1, "failed\n")


def test_environment_and_working_directory(way: str, module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (module / "elsewhere").mkdir()
    command = write("print(os.environ.get('AOTI_DEBUG_LEVEL'), os.getcwd(), sys.stdin.read() == '')")
    monkeypatch.chdir(module / "elsewhere")
    (module / "elsewhere" / "some_module.py").write_text((module / "some_module.py").read_text())
    done = finish(command, variables={"AOTI_DEBUG_LEVEL": "2"})
    assert done.stdout == f"2 {module / 'elsewhere'} True\n"


def test_an_inherited_descriptor_and_the_parent(way: str) -> None:
    command = write("os.write(int(sys.argv[1]), b'hello'); print(os.getppid() == int(sys.argv[2]))")
    reader, writer = os.pipe()
    with start(
        PythonCommand(command.module, arguments=(DESCRIPTOR, PARENT)),
        os.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        inherited=writer,
    ) as child:
        os.close(writer)
        assert child_process.finished(child, 60).stdout == "True\n"
    assert (os.read(reader, 10), os.read(reader, 10)) == (b"hello", b"")
    os.close(reader)


def test_the_end_of_a_with_kills_it_and_what_it_started(way: str, module: Path) -> None:
    command = write("""
        import subprocess, time
        sleeping = subprocess.Popen(["sleep", "600"])
        print(sleeping.pid, flush=True)
        time.sleep(600)
        """)
    with start(command, os.environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        grandchild = int(child.stdout.readline())
        assert child.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.01)
        with pytest.raises(subprocess.TimeoutExpired):
            child.communicate(0.01)
    assert child.poll() == -signal.SIGKILL
    assert _is_gone(child.pid)
    assert _is_gone(grandchild)


def test_several_at_once(way: str) -> None:
    command = write("import time; time.sleep(0.05); print(sys.argv[1])")
    commands = [PythonCommand(command.module, arguments=(str(number),)) for number in range(8)]
    with ThreadPoolExecutor(4) as pool:
        assert [done.stdout for done in pool.map(finish, commands)] == [f"{number}\n" for number in range(8)]


def test_a_fork_has_the_modules_imported(module: Path) -> None:
    write("pass", "imported_once")
    write("pass", "of_the_user")
    command = write("print('imported_once' in sys.modules, 'of_the_user' in sys.modules)")
    with python_process.forking_from(["json", "imported_once"], ["of_the_user"]):
        assert finish(command).stdout == "True True\n"
    assert finish(command).stdout == "False False\n"


def test_exit_handlers_of_what_the_server_preloads_are_left_out_and_those_of_the_users_modules_are_not(
    module: Path,
) -> None:
    for name in ("preloaded", "of_the_user"):
        Path(f"{name}.py").write_text(
            "import ctypes, weakref\n"
            f"TEXT, LIBC = ctypes.create_string_buffer(b'library {name}'), ctypes.CDLL(None)\n"
            "LIBC.__cxa_atexit(LIBC.puts, TEXT, None)\n"
            f"weakref.finalize(TEXT, print, 'finaliser {name}')\n"
        )
    command = write("import preloaded, of_the_user; return 7")
    with python_process.forking_from(["json", "preloaded"], ["of_the_user"]) as server:
        assert finish(command) == FinishedProcess(7, "finaliser of_the_user\nlibrary of_the_user\n", "")
        assert server.failure == ""


def test_what_a_library_has_left_in_a_stream_of_cpp_is_written(module: Path) -> None:
    Path("say.cpp").write_text(
        "#include <iostream>\n"
        'extern "C" void say() { std::ios::sync_with_stdio(false); std::cout << "out"; std::clog << "log"; }\n'
    )
    subprocess.run(["g++", "-shared", "-fPIC", "-o", "libsay.so", "say.cpp"], check=True)
    Path("preloaded.py").write_text("import ctypes\nctypes.CDLL('./libsay.so')\n")
    with python_process.forking_from(["json", "preloaded"]) as server:
        assert finish(write("import ctypes; ctypes.CDLL('./libsay.so').say()")) == FinishedProcess(0, "out", "log")
        assert server.failure == ""


def test_a_module_that_cannot_be_imported_is_left_to_the_process(module: Path) -> None:
    (module / "broken.py").write_text("raise RuntimeError('broken')\n")
    with python_process.forking_from(["broken", "json"]) as server:
        assert finish(write("import broken")).stderr.endswith("RuntimeError: broken\n")
        assert server.failure == ""


def test_a_users_module_that_cannot_be_imported_is_imported_by_new_processes(module: Path) -> None:
    (module / "broken.py").write_text("import os\nprint(os.getpid())\nraise RuntimeError('broken')\n")
    with python_process.forking_from(["json"], ["broken"]) as server:
        done = finish(write("import broken"))
        assert len(done.stdout.splitlines()) == 1
        assert done.stderr.endswith("RuntimeError: broken\n")
        assert server.failure == "the module broken cannot be imported: RuntimeError: broken"


def test_variables_that_a_users_module_sets_stay(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("setting.py").write_text("import os\nos.environ['BY_MODULE'] = 'yes'\ndel os.environ['TO_REMOVE']\n")
    command = write("import setting; print(os.environ.get('BY_MODULE'), 'TO_REMOVE' in os.environ)")
    monkeypatch.setenv("TO_REMOVE", "1")
    assert finish(command).stdout == "yes False\n"
    with python_process.forking_from(["json"], ["setting"]) as server:
        assert finish(command).stdout == "yes False\n"
        assert server.failure == ""


def test_a_variable_that_a_process_is_given_is_not_what_a_users_module_has_set(
    module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "TORCHINDUCTOR_CACHE_DIR"
    monkeypatch.delenv(name, raising=False)
    Path("compiling.py").write_text(f"import os\nos.environ.setdefault('{name}', 'by the module')\n")
    command = write(f"import compiling; print(os.environ['{name}'])")
    for server in (contextlib.nullcontext(), python_process.forking_from(["json"], ["compiling"])):
        with server:
            assert finish(command).stdout == "by the module\n"
            assert finish(command, variables={name: "given"}).stdout == "given\n"


def test_what_a_users_module_prints_is_printed_by_every_process(module: Path) -> None:
    Path("talking.py").write_text("import sys\nprint('hello')\nprint('there', file=sys.stderr)\n")
    command = write("import talking; print('main')")
    with python_process.forking_from(["json"], ["talking"]):
        for _ in range(2):
            assert finish(command) == FinishedProcess(0, "hello\nmain\n", "there\n")


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "10000 None\n"),
        ({"GOMP_SPINCOUNT": "7"}, "7 None\n"),
        ({"OMP_WAIT_POLICY": "active"}, "None active\n"),
    ],
)
def test_threads_that_wait_soon_sleep(
    module: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str
) -> None:
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    command = write("print(os.environ.get('GOMP_SPINCOUNT'), os.environ.get('OMP_WAIT_POLICY'))")
    assert finish(command, variables=variables).stdout == expected
    with python_process.forking_from(["json"]):
        assert finish(command, variables=variables).stdout == expected


@pytest.mark.parametrize("name", ["_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR", *torch_settings.environment({})])
def test_what_is_read_late_needs_no_new_process(module: Path, name: str) -> None:
    write("pass", "imported_once")
    command = write("print('imported_once' in sys.modules)")
    with python_process.forking_from(["json", "imported_once"]):
        assert finish(command).stdout == "True\n"
        assert finish(command, variables={name: "1"}).stdout == "True\n"


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "LD_PRELOAD", "CUDA_VISIBLE_DEVICES", "PYTHONPATH"])
def test_another_environment_needs_a_new_process(module: Path, name: str) -> None:
    write("pass", "imported_once")
    command = write(f"print('imported_once' in sys.modules, os.environ.get('{name}', '').split(':')[0])")
    with python_process.forking_from(["json", "imported_once"]):
        assert finish(command, variables={name: "1"}).stdout == "False 1\n"
        assert finish(command).stdout.startswith("True ")


def test_a_module_that_starts_threads_is_not_forked(module: Path) -> None:
    Path("threads.py").write_text(
        "import os, threading, time\n"
        "if os.environ.get('AOTI_DEBUG_THREADS'):\n"
        "    threading.Thread(target=time.sleep, args=(600,)).start()\n"
    )
    began = time.monotonic()
    server = ForkServer(
        ["json"], ["threads"], python_process.environment({**os.environ, "AOTI_DEBUG_THREADS": "1"}), ()
    )
    with contextlib.closing(server), pytest.raises(ForkServerError):
        start_from(server)
    assert server.failure == "the module threads starts 1 thread when it is imported"
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("how", ["torch has asked for the devices", "the driver is loaded"])
def test_a_module_that_initialises_cuda_is_not_forked(module: Path, how: str) -> None:
    """A torch of the test's own and a library of the driver's name stand for the real ones."""
    Path("torch.py").write_text(
        "class cuda:\n    bad = False\n    _is_in_bad_fork = classmethod(lambda cls: cls.bad)\n"
    )
    shutil.copy(_mapped("libm.so"), "libcuda.so.1")
    asks = "import torch\ntorch.cuda.bad = True\n"
    loads = f"import ctypes\nctypes.CDLL('{module}/libcuda.so.1')\n"
    Path("uses_cuda.py").write_text(asks if how.startswith("torch") else loads)
    variables = python_process.environment({**os.environ, "PYTHONPATH": str(module)})
    server = ForkServer(["json", "torch"], ["uses_cuda"], variables, ())
    with contextlib.closing(server), pytest.raises(ForkServerError):
        start_from(server)
    assert server.failure == "the module uses_cuda initialises CUDA when it is imported"


def start_from(server: ForkServer) -> Child:
    return server.start(write("pass"), os.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _mapped(name: str) -> str:
    """The path of a library of this process."""
    return next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if f"/{name}" in line)


def test_a_server_that_dies_is_replaced_by_new_processes(module: Path) -> None:
    with python_process.forking_from(["json"]) as server:
        command = write("print(os.getppid())")
        before = int(finish(command).stdout)
        assert before != os.getpid()
        os.kill(before, signal.SIGKILL)
        assert finish(command).stdout == f"{os.getpid()}\n"
        assert server.failure == "it ended: SIGKILL"


def test_a_process_dies_with_its_server(module: Path) -> None:
    command = write("import time; print(os.getppid(), flush=True); time.sleep(600)")
    with (
        python_process.forking_from(["json"]),
        start(command, os.environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child,
    ):
        assert child.stdout is not None
        os.kill(int(child.stdout.readline()), signal.SIGKILL)
        assert child.wait(60) == -signal.SIGKILL
        assert _is_gone(child.pid)


def test_the_server_and_its_processes_end_with_this_process(module: Path) -> None:
    write("import time; print(os.getppid(), os.getpid(), flush=True); time.sleep(600)")
    code = """
        import os, signal, subprocess
        from aoti_debug.base.machine.processes import python_process
        with python_process.forking_from(["json"]):
            child = python_process.start(
                python_process.PythonCommand("some_module"), os.environ, stdout=1, stderr=2, after="json")
            child.wait()
        """
    with Child(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        environment=python_process.environment(os.environ),
    ) as tool:
        assert tool.stdout is not None
        server, child = map(int, tool.stdout.readline().split())
        os.kill(tool.pid, signal.SIGKILL)
        assert _is_gone(server)
        assert _is_gone(child)


def test_a_server_that_cannot_be_started(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny() -> None:
        raise PermissionError(1, "denied")

    monkeypatch.setattr(socket, "socketpair", deny)
    with python_process.forking_from(["json"]) as server:
        assert finish(write("print(os.getppid())")).stdout == f"{os.getpid()}\n"
        assert server.failure == "it cannot be started: denied"


def test_a_server_within_another_is_that_one(module: Path) -> None:
    command = write("print(os.getppid())")
    with python_process.forking_from(["json"]) as outer:
        with python_process.forking_from(["json"], ["some_module"]) as inner:
            assert inner is outer
            of_inner = finish(command).stdout
        assert finish(command).stdout == of_inner
        with python_process.forking_from(["json", "decimal"]) as other:
            assert other is not outer
            assert finish(command).stdout != of_inner
        assert finish(command).stdout == of_inner


def test_a_server_ends_with_the_last_that_uses_it(module: Path) -> None:
    command = write("print(os.getppid())")
    first, second = python_process.forking_from(["json"]), python_process.forking_from(["json"])
    server = first.__enter__()
    assert second.__enter__() is server
    pid = finish(command).stdout
    first.__exit__(None, None, None)
    assert finish(command).stdout == pid
    second.__exit__(None, None, None)
    assert _is_gone(int(pid))
    assert finish(command).stdout == f"{os.getpid()}\n"


def test_a_server_without_the_module_that_takes_long_is_of_no_use(module: Path) -> None:
    with python_process.forking_from(["decimal"]) as server:
        assert finish(write("print(os.getppid())")).stdout == f"{os.getpid()}\n"
        assert server.failure == ""


def test_a_system_that_denies_forks(module: Path) -> None:
    Path("no_forks.py").write_text("import os\ndef fork():\n    raise BlockingIOError(11, 'denied')\nos.fork = fork\n")
    with python_process.forking_from(["json", "no_forks"]) as server:
        assert finish(write("print(os.getppid())")).stdout == f"{os.getpid()}\n"
        assert server.failure == "the system does not let it fork"


def _is_gone(pid: int) -> bool:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            if "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text():
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


def test_run_to_end(module: Path) -> None:
    command = write("print('to the log', flush=True); return 3")
    assert python_process.run_to_end(command, module / "log.txt", seconds=60) == 3
    assert (module / "log.txt").read_text() == "to the log\n"


def test_what_does_not_end_is_killed(module: Path) -> None:
    command = write("import time; print('begun', flush=True); time.sleep(600)")
    assert python_process.run_to_end(command, module / "log.txt", seconds=1.5) == -signal.SIGKILL
    assert (module / "log.txt").read_text() == "begun\n"


def test_a_process_that_cannot_be_started(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(module))  # no server fits: it is a new process
    monkeypatch.setattr(sys, "executable", str(module / "no_python"))
    with pytest.raises(TargetError, match="a process of some_module cannot be started: No such file") as caught:
        python_process.run_to_end(write("pass"), module / "log.txt", seconds=60)
    assert caught.value.hint == "aoti-debug doctor checks this machine"


ANSWERING = """
    import json, pathlib
    question, answer = map(pathlib.Path, sys.argv[1:])
    asked = json.loads(question.read_text())
    print("asked for", asked["number"])
    answer.write_text(json.dumps({"number": asked["number"] + 1})[: asked["length"]])
    return asked["status"]
"""


@dataclass(frozen=True)
class Asked:
    number: int
    length: int | None = None
    status: int = 0


@dataclass(frozen=True)
class Answered:
    number: int


def test_a_process_is_asked(module: Path) -> None:
    worker = write(ANSWERING).module
    assert python_process.ask(worker, Asked(3), Answered, module, "sum", seconds=60) == (Answered(4), 0)
    assert (module / "sum.log").read_text() == "asked for 3\n"
    assert sorted(path.name for path in module.glob("sum*")) == ["sum.json", "sum.log"]
    assert python_process.ask(worker, Asked(1, status=2), Answered, module, "sum", seconds=60) == (Answered(2), 2)


def test_an_answer_that_is_missing_or_cut_off_is_none(module: Path) -> None:
    worker = write(ANSWERING).module
    assert python_process.ask(worker, Asked(3, length=5), Answered, module, "sum", seconds=60) == (None, 0)
    python_process.ask(worker, Asked(3), Answered, module, "sum", seconds=60)
    write("return 7")
    assert python_process.ask(worker, Asked(3), Answered, module, "sum", seconds=60) == (None, 7)

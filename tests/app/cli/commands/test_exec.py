"""`aoti-debug exec`, in processes of its own: what a script sees, and what is recorded of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest

from aoti_debug.app.cli import main
from aoti_debug.runs.diagnosis.diagnose import diagnose
from aoti_debug.runs.rundir import ranks_directory
from aoti_debug.runs.rundir.run_directory import open_run
from aoti_debug.runs.rundir.run_json import ExitKind
from tests import stripped_package, terminal
from tests.paths import ROOT
from tests.schema import DOCS, problems
from tests.shell_children import is_dead

SEEN = """
import json, os, sys
import __main__
print(json.dumps({
    "argv": sys.argv, "name": __name__, "file": __file__, "path": sys.path[0], "cwd": os.getcwd(),
    "main": vars(__main__) is globals(), "PYTHONPATH": os.environ.get("PYTHONPATH"), "stdin": sys.stdin.read(),
}))
match sys.argv[1:]:
    case ["raise"]: raise ValueError("of the script")
    case ["kill"]: os.kill(os.getpid(), 15)
    case ["exit", code]: sys.exit(int(code))
"""

COMPILES = """
import sys
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        y = x.sin().relu()
        return y.softmax(-1)

if __name__ == "__main__":
    x = torch.linspace(-1, 1, 32).reshape(4, 8)
    program = torch.export.export(Model(), (x,))
    from tests.wrapper_templates import share
    share()
    path = torch._inductor.aoti_compile_and_package(program, package_path="model.pt2")
    print(torch._inductor.aoti_load_package(path)(x).sum().item())
    sys.exit(3)
"""

LOADS = """
import torch
from torch._inductor.package import load_package
x = torch.linspace(-1, 1, 32).reshape(4, 8)
models = [load_package("model.pt2") for _ in range(3)]
print(*(model(x).sum().item() for model in models))
"""

POOLED = """
import multiprocessing
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x.cos()

def call():
    print(torch._inductor.aoti_load_package("pooled.pt2")(torch.zeros(8)).sum().item(), flush=True)

if __name__ == "__main__":
    program = torch.export.export(Model(), (torch.zeros(8),))
    from tests.wrapper_templates import share
    share()
    torch._inductor.aoti_compile_and_package(program, package_path="pooled.pt2")
    child = multiprocessing.get_context("spawn").Process(target=call)
    child.start()
    child.join()
"""

STARTS = """
import subprocess, sys
import torch
torch._inductor.aoti_load_package("model.pt2")(torch.ones(4, 8))
subprocess.run([sys.executable, "loads.py"], check=True)
"""

RANKS = """
import os, subprocess, sys
ranks = []
for rank in (1, 0):
    of_rank = {"RANK": str(rank), "LOCAL_RANK": str(1 - rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    ranks.append(subprocess.Popen([sys.executable, "rank.py"], env={**os.environ, **of_rank}, stdout=subprocess.PIPE))
    ranks[-1].stdout.readline()  # it has called the model
for rank in ranks:
    rank.communicate()
"""

RANK = """
import os, torch
model = torch._inductor.aoti_load_package("model.pt2")
for _ in range(1 + int(os.environ["RANK"])):
    model(torch.ones(4, 8))
print("called", flush=True)
"""

CRASHES = """
import os
import torch
from tests import faulty_ops
x = torch.linspace(-1, 1, 8).reshape(2, 4)
faulty = "faulty.pt2"
if not os.path.exists(faulty):
    program = torch.export.export(faulty_ops.Model().eval(), (x,))
    from tests.wrapper_templates import share
    share()
    faulty = torch._inductor.aoti_compile_and_package(program, package_path=faulty)
healthy = torch._inductor.aoti_load_package("model.pt2")
model = torch._inductor.aoti_load_package(faulty)
healthy(torch.ones(4, 8))
print("before", flush=True)
model(x)
print("after")
"""

GRAPH = """
import torch

@torch.compile(mode="max-autotune", options=None)
def f(x):
    return x.sin().relu()

x = torch.linspace(-1, 1, 32).reshape(4, 8)
assert torch.allclose(f(x), x.sin().relu())
assert torch.equal(torch.compile(torch.cos, backend="eager")(x), x.cos())
"""


STARTS_ONE_THAT_HANGS = """
import subprocess, sys
subprocess.run([sys.executable, "crashes.py"])
"""

DEVICE_ERROR = """
import torch

class DeviceError(RuntimeError):
    error_code = 700

torch._inductor.aoti_load_package("model.pt2")(torch.linspace(-1, 1, 32).reshape(4, 8))
raise DeviceError("an illegal memory access was encountered")
"""


def environment(**variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AOTI_DEBUG_")}
    return {**kept, "PYTHONPATH": str(ROOT), **variables}


def executed(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "aoti_debug", "exec", *words],
        cwd=folder,
        env=environment(**variables),
        input="what is read\n",
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "seen.py"
    path.write_text(SEEN)
    return path


@pytest.mark.parametrize("before", [(), ("--level", "0"), ("-m",)])
def test_a_script_sees_what_it_sees_without(script: Path, before: Sequence[str]) -> None:
    target = "seen" if before == ("-m",) else "seen.py"
    words = ["-m", target] if before == ("-m",) else [target]
    arguments = ["--level", "-m", "--out=there", "exit"]
    plain = subprocess.run(
        [sys.executable, *words, *arguments],
        cwd=script.parent,
        env=environment(),
        input="what is read\n",
        capture_output=True,
        text=True,
        check=False,
    )
    debugged = executed(script.parent, *before, target, *arguments)
    assert json.loads(debugged.stdout) == json.loads(plain.stdout)
    assert debugged.returncode == 0
    notes = debugged.stderr.splitlines()
    if "--level" not in before:
        assert notes.pop().startswith("note: nothing was recorded: ")
    behind = (
        "note: --level, --out behind seen.py: the script gets what stands there; options of aoti-debug come before "
    )
    assert notes == ([] if before else [f"{behind}seen.py"])
    assert not (script.parent / "aoti-debug/runs").exists()


@pytest.mark.parametrize(("arguments", "code"), [(("exit", "3"), 3), (("raise",), 1), (("kill",), 143)])
def test_how_a_script_ends(script: Path, arguments: Sequence[str], code: int) -> None:
    done = executed(script.parent, "seen.py", *arguments)
    assert done.returncode == code
    assert ("ValueError: of the script" in done.stderr) == (arguments == ("raise",))
    assert "exec" not in done.stderr.replace(str(script.parent), "")
    ended = f"it ended with exit code {code}, and what it wrote to stderr may say why"
    said = f"in this process; {ended}; graphs of torch.compile"
    assert said in " ".join(done.stderr.split())


def test_a_users_own_sitecustomize_and_no_python_path(script: Path) -> None:
    (script.parent / "sitecustomize.py").write_text("import sys\nsys.argv_of_users = __file__\n")
    script.write_text("import os, sys\nprint(sys.argv_of_users, os.environ['PYTHONPATH'])\n")
    search = os.pathsep.join([str(script.parent), str(ROOT)])
    done = executed(script.parent, "seen.py", PYTHONPATH=search)
    assert done.stdout.split() == [str(script.parent / "sitecustomize.py"), search]


def test_stderr_of_a_script_is_a_terminal_if_it_is_one(script: Path) -> None:
    script.write_text(
        "import os, sys\nprint(sys.stderr.isatty(), os.get_terminal_size(2).columns, 'é\\tb', file=sys.stderr)\n"
    )
    lines = terminal.on_terminal("exec", str(script), columns=93)
    assert lines[0] == "True 93 é\tb"
    assert lines[1].startswith("note: nothing was recorded")


def test_a_signal_is_passed_on(script: Path) -> None:
    script.write_text(
        textwrap.dedent("""
            import signal, sys, time
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
            print("ready", flush=True)
            while True:
                time.sleep(0.1)  # a signal that comes just before a sleep is handled after it
        """)
    )
    command = [sys.executable, "-m", "aoti_debug", "exec", "seen.py"]
    with subprocess.Popen(
        command, cwd=script.parent, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 5


def test_pytest_says_what_it_says_without(script: Path) -> None:
    """It warns of plugins that were imported before it, such as that of aoti-debug."""
    script.with_name("test_seen.py").write_text("def test_nothing():\n    pass\n")
    done = executed(script.parent, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_seen.py")
    assert done.returncode == 0
    assert "1 passed" in done.stdout
    assert "Warning" not in done.stdout


@pytest.mark.parametrize("command", ["run", "build", "diff", "show", "memory", "bundle"])
def test_a_script_given_to_another_command(
    script: Path, command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(script.parent)
    assert main.run([command, "seen.py"]) == 3
    assert capsys.readouterr().err.splitlines() == [
        f"error: seen.py is a Python script: {command} takes none",
        "hint: aoti-debug triage seen.py",
    ]


def test_wrong_usage(script: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(script.parent)
    assert main.run(["seen.py"]) == 2
    assert "perhaps: aoti-debug triage seen.py" in capsys.readouterr().err
    assert main.run(["exec", "other.py"]) == 2
    assert "other.py does not exist" in capsys.readouterr().err
    Path("model.pt2").touch()
    assert main.run(["exec", "model.pt2"]) == 2
    assert "hint: aoti-debug triage model.pt2" in capsys.readouterr().err


@pytest.mark.slow
def test_a_package_that_only_another_process_loads_has_model_lines(tmp_path: Path) -> None:
    (tmp_path / "pooled.py").write_text(POOLED)
    done = executed(tmp_path, "pooled.py")
    assert (done.returncode, done.stdout) == (0, "8.0\n")
    run = open_run(base=tmp_path / "aoti-debug/runs")
    (site,) = run.manifest.sites
    assert {(Path(line.file).name, line.line) for line in site.provenance.source} == {("pooled.py", 7)}
    assert [path.name for path in (run.path / "packages").iterdir()] == [run.required_package.resolve().name]


@pytest.mark.slow
def test_packages_that_are_compiled_loaded_and_crash(tmp_path: Path) -> None:
    for name, text in (("compiles", COMPILES), ("loads", LOADS), ("crashes", CRASHES)):
        (tmp_path / f"{name}.py").write_text(text)
    base = tmp_path / "aoti-debug/runs"

    compiled = executed(tmp_path, "--filter", "cpp_*", "compiles.py")
    assert compiled.returncode == 3
    assert float(compiled.stdout) == pytest.approx(4)
    run = open_run(base=base)
    assert run.state is ExitKind.CLEAN
    assert run.info.exit.detail == "the script ended with exit code 3"
    assert run.info.command == ("aoti-debug", "exec", "--filter", "cpp_*", "compiles.py")
    places = {(Path(line.file).name, line.line) for site in run.manifest.sites for line in site.provenance.source}
    assert places <= {("compiles.py", 7), ("compiles.py", 8)}
    assert places
    assert run.launches
    assert run.required_package.is_file()
    assert run.is_made_here
    assert "instrumenting model.pt2" in compiled.stderr

    loaded = executed(tmp_path, "--level", "hash", "loads.py")
    assert (loaded.returncode, len(loaded.stdout.split())) == (0, 3)
    run = open_run(base=base)
    assert run.level == 4
    assert len(list(run.path.glob("process-*"))) == 2
    assert loaded.stderr.count("also: 1 launch of model-") == 2
    (tmp_path / "starts.py").write_text(STARTS)
    started = executed(tmp_path, "starts.py")
    assert started.stderr.count("model.pt2 was instrumented before") == 2
    assert (started.returncode, started.stdout) == (0, loaded.stdout)
    run = open_run(base=base)
    assert len(list(run.path.glob("process-*"))) == 3
    assert any(site.provenance.source for site in run.manifest.sites)  # of the process that compiled it

    crashed = executed(tmp_path, "--flight", "4", "--json", "found.json", "crashes.py", FAULTY_OPS="segv")
    assert (crashed.returncode, crashed.stdout) == (1, "before\n")
    assert "FAULT invalid memory access in faulty::act.default" in crashed.stderr
    run = open_run(base=base)
    verdict = diagnose(run)
    assert verdict is not None
    assert [launch.kernel for launch in verdict.suspects] == ["faulty::act.default"]
    assert run.required_package.name.startswith("faulty-")
    (other,) = run.path.glob("process-*")
    assert open_run(other).required_package.name.startswith("model-")
    assert all(site.provenance.source for site in run.manifest.sites)

    found = json.loads((tmp_path / "found.json").read_text())
    assert problems(found, json.loads((DOCS / "exec.schema.json").read_text())) == []
    assert [one["path"] for one in found["runs"]] == [str(run.path), str(other)]
    assert (found["exit_code"], found["runs"][0]["finding"]["kind"]) == (1, "fault")
    assert found["failed_call"]["run"] == str(run.path)
    assert found["next"][0].startswith("aoti-debug triage ")

    raised = executed(tmp_path, "crashes.py", FAULTY_OPS="raise")
    assert raised.returncode == 1
    assert "FAULT ValueError: the answer is not 42" in raised.stderr
    assert "Traceback" in raised.stderr

    (tmp_path / "hangs.py").write_text(STARTS_ONE_THAT_HANGS)
    for name in ("crashes.py", "hangs.py"):
        hung = executed(tmp_path, "--stall", "2", name, FAULTY_OPS="hang")
        assert (hung.returncode, hung.stdout) == (1, "before\n")
        assert "HANG faulty::act.default did not end: no progress for 2 s" in hung.stderr
        run = open_run(base=base)
        assert run.state is ExitKind.TIMEOUT
        assert run.journal is not None
        assert is_dead(run.journal.header.pid)

    (tmp_path / "device.py").write_text(DEVICE_ERROR)
    device = executed(tmp_path, "device.py")
    assert device.returncode == 1
    run = open_run(base=base)
    assert (run.info.exit.kind, run.info.exit.exception, run.info.exit.code) == (ExitKind.FAULT, "DeviceError", 700)
    assert not (run.path / "error.json").exists()

    (tmp_path / "graph.py").write_text(GRAPH)
    graph = executed(tmp_path, "--torch-compile", "graph.py")
    assert graph.returncode == 0, graph.stderr
    run = open_run(base=base)
    assert [launch.kernel for launch in run.launches] == ["cpp_fused_relu_sin_0"]
    assert run.info.command == ("aoti-debug", "exec", "--torch-compile", "graph.py")
    assert (run.path / "compiled/latest/graph0/program.pt2").is_file()

    (tmp_path / "ranks.py").write_text(RANKS)
    (tmp_path / "rank.py").write_text(RANK)
    ended = executed(tmp_path, "ranks.py")
    assert ended.returncode == 0, ended.stderr
    ranks = ranks_directory.read(base / "latest")
    runs = {number: open_run(path) for number, path in ranks.ranks.items()}
    assert {number: len(one.timeline.calls) for number, one in runs.items()} == {0: 1, 1: 2}  # rank 1 came first
    assert [one.info.rank.number for one in runs.values() if one.info.rank is not None] == [0, 1]
    assert "2 ranks, 2 finished" in ended.stderr

    stripped_package.stripped(tmp_path / "model.pt2", tmp_path / "stripped.pt2")
    (tmp_path / "stripped.pt2").replace(tmp_path / "model.pt2")
    stripped = executed(tmp_path, "loads.py")
    assert (stripped.returncode, stripped.stdout) == (0, loaded.stdout)
    assert stripped.stderr.count("aoti-debug: model.pt2: no wrapper source in the package: ") == 1
    run = open_run(base=base)
    assert [launch.key.call for launch in run.launches] == [0, 1, 2]  # of three loads: one library
    assert run.required_package.name.startswith("model-")


def test_a_script_that_calls_nothing_is_killed_in_time(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text("import time\ntime.sleep(600)\n")
    killed = executed(tmp_path, "--timeout", "0.5", "sleeps.py")
    assert killed.returncode == 1
    assert "HANG the script did not end: it was killed after 0.5 s; nothing was recorded" in killed.stderr


def test_json_without_a_run_and_where_it_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "seen.py").write_text("print('seen')")
    done = executed(tmp_path, "--json", "found.json", "seen.py")
    assert (done.returncode, done.stdout) == (0, "seen\n")
    found = json.loads((tmp_path / "found.json").read_text())
    assert problems(found, json.loads((DOCS / "exec.schema.json").read_text())) == []
    assert (found["runs"], found["failed_call"], found["exit_code"]) == ([], None, 0)
    for words, error in (
        (("--json", "none/found.json", "seen.py"), "error: none is no directory"),
        (("--level", "0", "--json", "found.json", "seen.py"), "error: --json needs a level above 0"),
    ):
        refused = executed(tmp_path, *words)
        assert (refused.returncode, refused.stdout, refused.stderr.splitlines()[0]) == (2, "", error)

"""Inspectors: Python functions that are called on the tensors of launches while a package runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from aoti_debug.app.cli import main
from aoti_debug.base.errors import UsageError
from aoti_debug.runs.run import inspector
from aoti_debug.runs.rundir.run_directory import open_run

INSPECTORS = """
import torch

def show(tensor, launch):
    assert isinstance(tensor, torch.Tensor)
    print(launch, launch.phase, launch.role, tuple(tensor.shape), launch.source)

def throw(tensor, launch):
    raise ValueError("no good")

def change(tensor, launch):
    if launch.phase == "after":
        tensor.add_(1)

def write(tensor, launch):
    if launch.phase == "after":
        tensor.numpy()[:] = 3
"""


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AOTI_DEBUG_DIR", raising=False)
    (tmp_path / "my.py").write_text(INSPECTORS)
    return tmp_path / "my.py"


def test_it_is_called_on_every_argument(faulty_package: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main.run(["run", str(faulty_package), "--inspect", "my.py:show", "--filter", "faulty*"]) == 0
    run = open_run()
    launch = run.launch("0.2")
    line = launch.site.provenance.source[0]
    expected = [
        f"0.2 {launch.kernel} {name} {phase} (2, 16) {line.file}:{line.line}"
        for name, phase in zip([a.name for a in launch.args], ("before in", "after out"), strict=True)
    ]
    assert capfd.readouterr().out.splitlines()[:2] == expected
    assert {"--inspect", "my.py:show"} <= set(run.info.command)


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        ("throw", "raised ValueError: no good, in 0.2 faulty::act.default"),
        ("change", "has changed the tensor in 0.2 faulty::act.default"),
        ("write", "has changed the tensor in 0.2 faulty::act.default"),
    ],
)
def test_what_ends_the_run(
    faulty_package: Path, capfd: pytest.CaptureFixture[str], function: str, problem: str
) -> None:
    assert main.run(["run", str(faulty_package), "--inspect", f"my.py:{function}", "--filter", "faulty*"]) == 1
    out, err = capfd.readouterr()
    assert f"STOPPED the inspector my.py:{function} {problem}" in out
    assert open_run().state.value == "stopped"
    assert ('raise ValueError("no good")' in err) == (function == "throw")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("my.py", "--inspect my.py is not FILE.py:FUNCTION"),
        ("nosuch.py:f", "--inspect: nosuch.py does not exist"),
        ("my.py:nosuch", "--inspect: my.py has no function nosuch"),
        ("broken.py:f", "--inspect broken.py:f fails: ModuleNotFoundError: No module named 'nosuch'"),
    ],
)
def test_functions_that_cannot_be_loaded(
    faulty_package: Path, capfd: pytest.CaptureFixture[str], name: str, problem: str
) -> None:
    Path("broken.py").write_text("import nosuch\n")
    with pytest.raises(UsageError, match=problem.replace("(", "\\(")):
        inspector.user_function(name).load()
    assert main.run(["run", str(faulty_package), "--inspect", name]) == 2
    assert capfd.readouterr().err.splitlines()[0] == f"error: {problem}"


def test_from_python(faulty_package: Path) -> None:
    code = f"""
import torch, aoti_debug
from tests import faulty_ops
from aoti_debug.runs.run.inspector import InspectorError

seen = []
def f(tensor, launch):
    seen.append((str(launch), tensor.data_ptr()))
x = torch.linspace(-1, 1, 8).reshape(2, 4)
with aoti_debug.inspect({str(faulty_package)!r}, f, filters=("faulty*",)) as model:
    model(x)
    model(x)
print([launch.split()[0] for launch, _ in seen])

def throw(tensor, launch):
    raise ValueError("no good")
with aoti_debug.inspect({str(faulty_package)!r}, throw) as model:
    try:
        model(x)
    except InspectorError as error:
        print(type(error.__cause__).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    first, second = done.stdout.splitlines()
    assert first == "['0.2', '0.2', '1.2', '1.2']"
    assert second.startswith("ValueError the inspector throw raised ValueError: no good, in 0.0 ")


def test_an_inspected_tensor_is_given_back() -> None:
    """Nothing holds it after the call."""
    import ctypes

    import torch

    from tests.factories import make_manifest

    seen = []
    called = inspector.Inspector(lambda tensor, _: seen.append(tuple(tensor.shape)), make_manifest(), "f")
    tensor = torch.zeros(5)
    storage = tensor.untyped_storage()._cdata
    before = torch._C._storage_Use_Count(storage)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    handle = pointer(torch._C._aoti.unsafe_alloc_void_ptr_from_tensor(tensor.detach()), None)
    told = inspector._Inspection(kernel=b"k", argument=b"x", tensor=handle, site=9)
    assert called._called(ctypes.pointer(told)) == 0
    assert seen == [(5,)]
    assert torch._C._storage_Use_Count(storage) == before

"""Processes of a copy of the package that nobody has compiled."""

from __future__ import annotations

import encodings
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aoti_debug.base.machine import bytecode_cache
from tests.paths import PACKAGE

USE = "from aoti_debug.base.machine import bytecode_cache; bytecode_cache.use(); import sys, aoti_debug.base.wording"
STATE = f"{USE}; print(sys.pycache_prefix, sys.dont_write_bytecode)"
COMPILED = pytest.mark.skipif(
    not Path(str(encodings.__spec__ and encodings.__spec__.cached)).exists(),
    reason="this Python has no bytecode of its own library",
)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder with the package, without bytecode."""
    root = tmp_path / "copy"
    ignored = shutil.ignore_patterns("__pycache__", "*.h", "*.cpp", "*.cu", "*.ptx", "assets")
    shutil.copytree(PACKAGE, root / PACKAGE.name, ignore=ignored)
    return root


def python(copy: Path, *words: str, **variables: str) -> str:
    """What an interpreter prints that was told nothing, or by the words or variables."""
    told = {k: v for k, v in os.environ.items() if k not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")}
    environment = {**told, "PYTHONPATH": str(copy), "XDG_CACHE_HOME": str(copy / "cache"), **variables}
    command = [sys.executable, *words]
    done = subprocess.run(command, env=environment, cwd=copy, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def kept(copy: Path) -> list[str]:
    """Names of modules whose bytecode is in the cache."""
    return sorted(path.name.partition(".")[0] for path in (copy / "cache").rglob("*.pyc"))


def beside_sources(copy: Path) -> Iterator[Path]:
    return (path for path in copy.rglob("*.pyc") if copy / "cache" not in path.parents)


def put_torch(copy: Path) -> None:
    """Something that Python finds in place of torch, without bytecode."""
    (copy / "torch").mkdir()
    (copy / "torch" / "__init__.py").touch()


def test_what_python_does_not_keep_is_kept_in_the_cache(copy: Path) -> None:
    folder, _, never_writes = python(copy, "-B", "-c", STATE).partition(" ")
    assert (Path(folder).parent, never_writes) == (copy / "cache" / "aoti_debug" / bytecode_cache.KIND, "False")
    assert "wording" in kept(copy)
    assert not any(beside_sources(copy))
    code = f"{USE}; import importlib.util; print(importlib.util.cache_from_source(aoti_debug.base.wording.__file__))"
    bytecode = Path(python(copy, "-B", "-c", code))
    before = bytecode.stat().st_mtime_ns
    assert python(copy, "-B", "-c", STATE) == f"{folder} False"
    assert bytecode.stat().st_mtime_ns == before


def test_python_may_not_write_beside_the_sources(copy: Path) -> None:
    for folder in [path for path in (copy / PACKAGE.name).rglob("*") if path.is_dir()] + [copy / PACKAGE.name]:
        (folder / "__pycache__").touch()
    assert python(copy, "-c", STATE).endswith(" False")
    assert "wording" in kept(copy)


@COMPILED
@pytest.mark.parametrize("words", [[], ["-B"]])
def test_python_keeps_it_itself(copy: Path, words: list[str]) -> None:
    put_torch(copy)
    python(copy, "-c", f"{USE}; import torch")
    assert python(copy, *words, "-c", STATE) == f"None {words == ['-B']}"
    assert kept(copy) == []


@COMPILED
def test_torch_alone_was_never_compiled(copy: Path) -> None:
    put_torch(copy)
    assert python(copy, "-c", STATE) == "None False"
    assert python(copy, "-B", "-c", STATE).endswith(" False")
    assert "wording" in kept(copy)
    python(copy, "-c", "import torch")
    assert python(copy, "-B", "-c", STATE) == "None True"


def test_the_place_that_python_was_told_is_respected(copy: Path) -> None:
    assert python(copy, "-B", "-c", STATE, PYTHONPYCACHEPREFIX="/nonexistent") == "/nonexistent True"
    assert kept(copy) == []


def test_a_cache_that_others_may_write_to_is_not_used(copy: Path, tmp_path: Path) -> None:
    root = copy / "cache" / "aoti_debug"
    root.mkdir(parents=True)
    root.chmod(0o777)
    (tmp_path / "tmp").mkdir()
    folder = python(copy, "-B", "-c", STATE, TMPDIR=str(tmp_path / "tmp")).partition(" ")[0]
    assert folder.startswith(f"{tmp_path}/tmp/aoti_debug-{os.getuid()}/")
    assert kept(copy) == []


def test_no_place_for_the_cache(copy: Path) -> None:
    (copy / "cache").touch()
    code = f"import tempfile; tempfile.tempdir = '{copy}/cache'; {STATE}"
    assert python(copy, "-B", "-c", code) == "None True"


def test_another_installation_has_a_folder_of_its_own(copy: Path) -> None:
    root = copy / "cache" / "aoti_debug" / bytecode_cache.KIND
    root.mkdir(parents=True)
    root.parent.chmod(0o700)
    (root / "unused").mkdir()
    os.utime(root / "unused", (0, 0))
    found = []
    for number in range(6):
        (copy / PACKAGE.name / f"installed_{number}.py").touch()
        found.append(Path(python(copy, "-B", "-c", STATE).partition(" ")[0]))
    assert len(set(found)) == 6
    assert set(root.iterdir()) == set(found[-4:])


def test_the_command_line_and_its_processes_use_it(copy: Path) -> None:
    told = {"PYTHONDONTWRITEBYTECODE": "1"}
    assert python(copy, "-m", "aoti_debug", "--help", **told).startswith("Usage: aoti-debug")
    assert {"main", "core", "wording"} <= set(kept(copy))
    (copy / "lent.py").write_text("import sys\ndef main():\n    print(sys.pycache_prefix, sys.dont_write_bytecode)\n")
    (copy / "script.py").write_text("import beside\n")
    (copy / "beside.py").write_text("import sys\nprint(sys.pycache_prefix, sys.dont_write_bytecode)\n")
    (copy / "starting.py").write_text(f"""
import contextlib, os, subprocess
from aoti_debug.base.machine.fork_server import python_process
from aoti_debug.base.machine.processes import child_process

def finish(command):
    streams = {{"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}}
    with python_process.start(command, os.environ, **streams, after="json") as child:
        return child_process.finished(child, 60).stdout.strip()

for scope in (contextlib.nullcontext(), python_process.forking_from(["json"])):
    with scope:
        print(finish(python_process.PythonCommand("lent")))
        print(finish(python_process.PythonCommand(script={str(copy / "script.py")!r})))
""")
    new_module, new_script, module, script = python(copy, "starting.py", **told).splitlines()
    folder = new_module.partition(" ")[0]
    assert (new_module, new_script) == (f"{folder} False", "None True")
    assert (module, script) == (f"{folder} False", f"{folder} True")
    assert {"lent", "server"} <= set(kept(copy))
    assert "beside" not in kept(copy)
    assert not any(beside_sources(copy))

"""Options and fixtures of all tests.

It imports no torch: the process that hands out the tests needs none.
"""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aoti_debug.base.machine.processes import python_process
from aoti_debug.instrument.builder import build as builder
from aoti_debug.instrument.frontend.exported_program import WORKER
from aoti_debug.runs.run.protocol import PRELOADED
from aoti_debug.runs.rundir.run_directory import RunDir
from tests import order, quick_exit, shared_imports
from tests.built_model import Built, FromPackage, importable
from tests.once import once
from tests.paths import ROOT, TESTS
from tests.session_models import SessionModels

if TYPE_CHECKING:
    from tests.wrong_model import Wrong

COLLECTED_AFTER = 20_000  # new objects
LOWERING = ("torch._inductor.compile_fx", "torch._inductor.package", WORKER)
NVIDIA_DRIVER = Path("/dev/nvidiactl")
WITHOUT_TWIN = frozenset({"array_ref", "blocks", "planned", "profiled", "shimmed"})  # no test compares their outputs
WITHOUT_GPU = (*PRELOADED, *LOWERING, "tests.lowered_once")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--whole-corpus", action="store_true", help="triage all of the corpus, not one case of each kind")
    parser.addoption("--update-golden", action="store_true", help="write golden files instead of comparing with them")


def pytest_configure(config: pytest.Config) -> None:
    """Prepares the process and its environment.

    What a shell runs in its background ignores SIGINT; tests send SIGINT to their children. What tests make
    is remembered as made here in a directory of the session, which its workers share. Hundreds of processes start: they
    compile our modules once, also where the environment says that Python keeps no bytecode. They have more threads than
    there are cores, so that a thread of OpenMP that waits for others leaves its core to them: by default it would spin.
    While tests are collected, Python's cycle collector is off: it would visit all modules again and again.
    """
    is_worker, has_workers = hasattr(config, "workerinput"), bool(config.getoption("numprocesses", None))
    if is_worker or not has_workers:  # else it collects no tests
        gc.disable()
    if is_worker:
        quick_exit.leave_at_exit()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    sys.dont_write_bytecode = False
    if not is_worker:
        cleanups = ExitStack()
        config.add_cleanup(cleanups.close)
        state = tempfile.mkdtemp(prefix="aoti-debug-state-")
        os.environ["XDG_STATE_HOME"] = state
        cleanups.callback(shutil.rmtree, state, ignore_errors=True)
        if has_workers and not NVIDIA_DRIVER.exists():
            search = [*map(str, config.getini("pythonpath")), os.environ.get("PYTHONPATH", "")]
            variables = python_process.environment({**os.environ, "PYTHONPATH": os.pathsep.join(search)})
            cleanups.enter_context(shared_imports.shared(WITHOUT_GPU, variables))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Lets each worker begin with other files, so that each compiles a part of them and reads what others compiled."""
    report = yield
    if collector.path == TESTS:
        sizes = [sum(1 for _ in node.path.rglob("*.py")) for node in report.result]
        worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
        first = order.beginning(sizes, worker / _workers())
        report.result = [*report.result[first:], *report.result[:first]]
    return report


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """Puts the longest files first, for every worker, in the same order in all workers."""
    files = {path: path.relative_to(TESTS).as_posix() for path in {item.path for item in items}}
    items.sort(key=lambda item: files[item.path])
    yield
    items[:] = order.dealt(items, lambda item: files[item.path], _workers())


def _workers() -> int:
    return int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))


def pytest_collection_finish() -> None:
    """Lets the cycle collector visit what the tests make, and not what was collected.

    Until the interpreter ends, when it collects everything: Triton complains of what is left.
    """
    gc.freeze()
    atexit.register(gc.unfreeze)
    gc.set_threshold(COLLECTED_AFTER)
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def fork_server(pytestconfig: pytest.Config) -> Iterator[None]:
    """Forks the processes that lower and run models from one that has imported what they need, once a session.

    It has also lowered a small program (lowered_once.py). Where tests are spread over processes, the servers of all of
    them share this (shared_imports.py). All folders with modules for children are on the search path
    from the start: it forks no process with another one. With a GPU, torch's compiler asks for the devices when it is
    imported, which no fork survives: the server notices that of the modules of users, and does not fork.
    """
    import torch

    importable(ROOT)
    read_late = ("PYTEST_CURRENT_TEST", "FAULTY_OPS", "NATIVE_OPS", "CXX", "PATH", "XDG_CACHE_HOME", "COLUMNS")
    modules, checked = (PRELOADED, LOWERING) if torch.cuda.is_available() else (WITHOUT_GPU, ())
    with python_process.forking_from(modules, checked, read_late=read_late) as server:
        if shared_imports.SOCKET in os.environ:
            server.connect(shared_imports.connection())
        yield


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Compares a text with a golden file, or writes the file under --update-golden."""

    def check(path: Path, text: str) -> None:
        if request.config.getoption("--update-golden"):
            path.write_text(text)
        assert path.read_text() == text

    return check


@pytest.fixture(scope="session")
def session_models(tmp_path_factory: pytest.TempPathFactory) -> SessionModels:
    """The models of models.py."""
    from tests import models

    def configs(name: str) -> Mapping[str, Any]:
        return models.CASES[name].configs

    return SessionModels(tmp_path_factory, "tests.models", models.program, configs, WITHOUT_TWIN)


@pytest.fixture(scope="session")
def built(session_models: SessionModels) -> Callable[[str], Built]:
    """Builds a model of models.py, once a session."""
    return session_models.build


@pytest.fixture(scope="session")
def from_package(session_models: SessionModels) -> Callable[[str], FromPackage]:
    """Compiles a model of models.py and builds from its package, once a session."""
    return session_models.from_package


@pytest.fixture(scope="session")
def saved(session_models: SessionModels) -> Callable[[str], RunDir]:
    """A run of a model of models.py at level 1, once a session."""
    return session_models.saved


@pytest.fixture(scope="session")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Wrong:
    """A model with a wrong kernel, and the same without it."""
    from tests import wrong_model

    return once(tmp_path_factory, "wrong", wrong_model.build)


@pytest.fixture(scope="session")
def faulty_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The instrumented package of faulty_ops.Model."""

    def make(folder: Path) -> Path:
        import torch

        from tests import faulty_ops

        program = torch.export.export(faulty_ops.Model().eval(), (torch.linspace(-1, 1, 8).reshape(2, 4),))
        torch.export.save(program, folder / "model.pt2")
        return builder.build(folder / "model.pt2", output=folder / "faulty.pt2", imports=("tests.faulty_ops",))

    return once(tmp_path_factory, "faulty", make)


@pytest.fixture(scope="session")
def native_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The instrumented package of native_library.py."""
    from tests import native_library

    return once(tmp_path_factory, "native", native_library.package)

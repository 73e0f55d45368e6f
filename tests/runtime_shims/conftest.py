from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.runtime_shims import journal_decoder, runtime_library
from tests.runtime_shims.journal_decoder import Journal
from tests.runtime_shims.runtime_library import Runtime

VARIABLES = (
    *("LEVEL", "FILTER", "DIR", "RUN", "PHASE", "MAX_BYTES", "MAX_FILES", "MAX_TENSOR_BYTES", "KEEP_FREE_BYTES"),
    *("JOURNAL_BYTES", "CRUMB_EVERY", "LAUNCH", "PRINT", "BACKTRACE"),
    *("FLIGHT", "FLIGHT_BYTES", "GUARDS", "POISON", "WATCH", "ON_HIT", "SUBSTITUTE", "SUMMARIES", "WEIGHTS"),
)


@pytest.fixture(scope="session")
def compiler() -> None:
    """Skips what compiles where nothing can."""
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler")


@pytest.fixture(scope="session")
def library(compiler: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runtime and the harness as a shared library."""
    return runtime_library.build(tmp_path_factory.mktemp("runtime"))


@pytest.fixture(scope="session")
def device_library(library: Path) -> Path:
    """The same with a fake device."""
    return runtime_library.build(library.parent, runtime_library.HERE / "fake_device.cpp")


@pytest.fixture
def load(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Runtime]]:
    """`load(LEVEL=2, PHASE="both")` gives a fresh runtime in that environment; its run goes to tmp_path / "run"."""
    for name in VARIABLES:
        monkeypatch.delenv(f"AOTI_DEBUG_{name}", raising=False)
    monkeypatch.delenv("AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER", raising=False)
    monkeypatch.delenv("AOT_INDUCTOR_FILTERED_KERNELS_TO_PRINT", raising=False)
    numbers = count()
    (tmp_path / "run").mkdir()
    monkeypatch.setenv("AOTI_DEBUG_RUN", str(tmp_path / "run"))
    monkeypatch.setenv("AOTI_DEBUG_KEEP_FREE_BYTES", "0")
    monkeypatch.setenv("AOTI_DEBUG_BACKTRACE", "0")  # the signals of this process belong to pytest

    def load_(library: Path = library, **variables: object) -> Runtime:
        for name, value in variables.items():
            if value is None:
                monkeypatch.delenv(f"AOTI_DEBUG_{name}", raising=False)
            else:
                monkeypatch.setenv(f"AOTI_DEBUG_{name}", str(value))
        return Runtime(library, tmp_path / f"copy{next(numbers)}.so")

    yield load_
    for name in ("crumbs.bin", "flight.bin"):
        for link in (path for path in tmp_path.rglob(name) if path.is_symlink()):
            Path(os.readlink(link)).unlink(missing_ok=True)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def journal(run: Path) -> Callable[[], Journal]:
    return lambda: journal_decoder.decode(run / "journal.bin")

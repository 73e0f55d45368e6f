"""Options and fixtures of all tests. Its presence puts tests/ on the import path: `factories` is found from every folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest_plugins = ("built_models",)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files instead of comparing with them")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Compares a text with a golden file, or writes the file under --update-golden."""

    def check(path: Path, text: str) -> None:
        if request.config.getoption("--update-golden"):
            path.write_text(text)
        assert path.read_text() == text

    return check


@pytest.fixture(scope="session")
def faulty_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The instrumented package of faulty_ops.Model."""
    import faulty_ops
    import torch

    import aoti_debug

    folder = tmp_path_factory.mktemp("faulty")
    program = torch.export.export(faulty_ops.Model().eval(), (torch.linspace(-1, 1, 8).reshape(2, 4),))
    torch.export.save(program, folder / "model.pt2")
    return aoti_debug.build(folder / "model.pt2", output=folder / "faulty.pt2", imports=("faulty_ops",))

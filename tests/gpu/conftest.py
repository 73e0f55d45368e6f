"""Models of cuda_models.py, each compiled once, however many processes the tests are spread over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from aoti_debug.runs.rundir.run_directory import RunDir
from tests.built_model import Built, FromPackage, build_model
from tests.once import once
from tests.session_models import SessionModels

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def cuda_session_models(tmp_path_factory: pytest.TempPathFactory) -> SessionModels:
    """The cases of cuda_models.py."""
    from tests.gpu import cuda_models

    return SessionModels(
        tmp_path_factory,
        "tests.gpu.cuda_models",
        lambda name: cuda_models.case(name).export(),
        lambda name: cuda_models.case(name).inductor_configs,
    )


@pytest.fixture(scope="session")
def build(cuda_session_models: SessionModels) -> Callable[[str], Built]:
    """Builds a case of cuda_models.py, once a session."""
    return cuda_session_models.build


@pytest.fixture(scope="session")
def saved(cuda_session_models: SessionModels) -> Callable[[str], RunDir]:
    """A run of a case at level 1, once a session."""
    return cuda_session_models.saved


@pytest.fixture(scope="session")
def from_package(cuda_session_models: SessionModels) -> Callable[[str], FromPackage]:
    """Compiles a case of cuda_models.py and builds from its package, once a session."""
    return cuda_session_models.from_package


@pytest.fixture(scope="session")
def hanging(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """A model with a kernel that waits for ever if its second input is 0."""
    import torch

    from tests.gpu import hanging_ops

    def make(folder: Path) -> Built:
        example = (torch.rand(4, 256, device="cuda"), torch.ones(1, dtype=torch.int32, device="cuda"))
        with torch.no_grad():
            program = torch.export.export(hanging_ops.Model(), example, strict=False)
        return build_model(program, folder, {}, "tests.gpu.hanging_ops")

    return once(tmp_path_factory, "cuda-hanging", make)

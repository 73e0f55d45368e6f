"""Loading through torch's C++ loader, of which a test's own takes the place."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from aoti_debug.runs.run import cpp_loader
from aoti_debug.runs.run.cpp_loader import LoadedModel

Pair = namedtuple("Pair", ["left", "right"])


class Loader:
    """Takes `(x, Pair), {"a": …, "b": …}` and returns `{"sum": …}`."""

    def __init__(self) -> None:
        tensor = torch.zeros(1)
        arguments = ((tensor, Pair(tensor, 3)), {"a": tensor, "b": tensor})
        self.specs = [pytree.tree_structure(arguments), pytree.tree_structure({"sum": tensor})]
        self.given: list[float] = []

    def get_call_spec(self) -> list[str]:
        return [pytree.treespec_dumps(spec) for spec in self.specs]

    def boxed_run(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        self.given = [tensor.item() for tensor in tensors]
        return [torch.stack(tensors).sum()]


pytree._register_namedtuple(Pair, serialized_type_name=f"{__name__}.Pair")


def number(value: float) -> torch.Tensor:
    return torch.tensor(value)


def test_arguments_arrive_in_the_order_of_the_export() -> None:
    loader = Loader()
    model = LoadedModel(loader)
    result = model(number(1), Pair(number(2), 3), b=number(4), a=number(3))
    assert loader.given == [1, 2, 3, 4]
    assert result == {"sum": number(10)}
    assert model.in_spec == loader.get_call_spec()[0]


def test_other_keyword_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="keyword"):
        LoadedModel(Loader())(number(1), Pair(number(2), 3), a=number(3), c=number(4))


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], list[str]]:
    """Makes the loader fail until torch's compiler is imported, or always; what happened is told in order."""

    def attempts(helps: bool) -> list[str]:
        told: list[str] = []

        def load(*_: Any) -> Loader:
            told.append("load")
            if not helps or "import" not in told:
                raise RuntimeError("Could not find schema for prims::op")
            return Loader()

        monkeypatch.delitem(sys.modules, cpp_loader._COMPILER, raising=False)
        monkeypatch.setattr(importlib, "import_module", lambda name: told.append("import"))
        monkeypatch.setattr(torch._C._aoti, "AOTIModelPackageLoader", load)
        return told

    return attempts


def test_the_compiler_is_imported_only_if_the_package_needs_it(attempts: Callable[[bool], list[str]]) -> None:
    told = attempts(True)
    assert isinstance(cpp_loader.load(Path("m.pt2"), "model"), LoadedModel)
    assert told == ["load", "import", "load"]


def test_an_error_that_stays_is_the_loaders(attempts: Callable[[bool], list[str]]) -> None:
    told = attempts(False)
    with pytest.raises(RuntimeError, match="prims::op"):
        cpp_loader.load(Path("m.pt2"), "model")
    assert told == ["load", "import", "load"]


@pytest.mark.slow
def test_a_package_is_loaded_and_called_without_the_compiler(faulty_package: Path) -> None:
    code = f"""
import sys, torch
from tests import faulty_ops
from pathlib import Path
from aoti_debug.runs.run import cpp_loader as loaded_model
with torch.no_grad():
    loaded_model.load(Path({str(faulty_package)!r}), "model")
sys.exit(any(name.split(".")[:2] == ["torch", "_inductor"] for name in sys.modules) or "sympy" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

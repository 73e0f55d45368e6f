from __future__ import annotations

import importlib
import subprocess
import sys
import zipfile
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.torch_version import TorchVersion
from torch.utils import _pytree as pytree

from aoti_debug.package.pt2 import archive
from aoti_debug.runs.run import load_model
from tests import archives


def test_a_package_gets_an_empty_source_beside_its_library(tmp_path: Path) -> None:
    library = f"{archive.AOTINDUCTOR}one/c1.wrapper.so"
    path = archives.write(
        tmp_path / "m.pt2", {library: b"\x7fELF", f"{archive.AOTINDUCTOR}two/c2.wrapper.so": b"\x7fELF"}
    )
    before = path.read_bytes()
    (tmp_path / "work").mkdir()
    copy = load_model.with_empty_source(archive.inspect(path), "one", tmp_path / "work")
    copied, original = archive.inspect(copy), archive.inspect(path)
    assert set(copied.members) - set(original.members) == {f"{archive.AOTINDUCTOR}one/c1.wrapper.cpp"}
    assert copied.read(f"{archive.AOTINDUCTOR}one/c1.wrapper.cpp") == b""
    assert copied.read(library) == original.read(library)
    assert path.read_bytes() == before
    assert zipfile.ZipFile(copy).testzip() is None


LIBRARY = f"{archive.AOTINDUCTOR}model/c1.wrapper.so"
SOURCE = f"{archive.AOTINDUCTOR}model/c1.wrapper.cpp"
KERNEL = f"{archive.AOTINDUCTOR}model/kernel.cpp"
OTHER = f"{archive.AOTINDUCTOR}other/c1.cpp"


@pytest.mark.parametrize(
    ("version", "members", "loaded"),
    [
        ("2.11.0+cu130", (LIBRARY,), {LIBRARY, SOURCE}),
        ("2.12.1", (LIBRARY,), {LIBRARY, SOURCE}),
        ("2.13.0+cpu", (LIBRARY,), {LIBRARY}),
        ("2.15.0", (LIBRARY,), {LIBRARY}),
        ("2.11.0", (LIBRARY, SOURCE), {LIBRARY, SOURCE}),
        ("2.11.0", (LIBRARY, KERNEL), {LIBRARY, KERNEL}),
        ("2.11.0", (LIBRARY, OTHER), {LIBRARY, SOURCE, OTHER}),
    ],
)
def test_a_package_without_any_source_gets_one_where_torch_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, members: tuple[str, ...], loaded: set[str]
) -> None:
    path = archives.write(tmp_path / "m.pt2", dict.fromkeys(members, b"\x7fELF"))
    monkeypatch.setattr(torch, "__version__", TorchVersion(version))
    paths: list[Path] = []

    def load(path: Path, model: str, *, single_threaded: bool) -> str:
        paths.append(path)
        assert not single_threaded
        assert loaded <= set(archive.inspect(path).members)
        assert (SOURCE in archive.inspect(path).members) == (SOURCE in loaded)
        return model

    monkeypatch.setattr(load_model, "load_file", load)
    loaded_as: object = load_model.load(archive.inspect(path), "model", "cpu")
    assert loaded_as == "model"
    assert (paths == [path]) == (loaded == set(members))
    assert all(used == path or not used.exists() for used in paths)


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
    model = load_model.LoadedModel(loader)
    result = model(number(1), Pair(number(2), 3), b=number(4), a=number(3))
    assert loader.given == [1, 2, 3, 4]
    assert result == {"sum": number(10)}
    assert model.in_spec == loader.get_call_spec()[0]


def test_other_keyword_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="keyword"):
        load_model.LoadedModel(Loader())(number(1), Pair(number(2), 3), a=number(3), c=number(4))


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

        monkeypatch.delitem(sys.modules, load_model._COMPILER, raising=False)
        monkeypatch.setattr(importlib, "import_module", lambda name: told.append("import"))
        monkeypatch.setattr(torch._C._aoti, "AOTIModelPackageLoader", load)
        return told

    return attempts


def test_the_compiler_is_imported_only_if_the_package_needs_it(attempts: Callable[[bool], list[str]]) -> None:
    told = attempts(True)
    assert isinstance(load_model.load_file(Path("m.pt2"), "model"), load_model.LoadedModel)
    assert told == ["load", "import", "load"]


def test_an_error_that_stays_is_the_loaders(attempts: Callable[[bool], list[str]]) -> None:
    told = attempts(False)
    with pytest.raises(RuntimeError, match="prims::op"):
        load_model.load_file(Path("m.pt2"), "model")
    assert told == ["load", "import", "load"]


@pytest.mark.slow
def test_a_package_is_loaded_and_called_without_the_compiler(faulty_package: Path) -> None:
    code = f"""
import sys, torch
from tests import faulty_ops
from pathlib import Path
from aoti_debug.runs.run import load_model
with torch.no_grad():
    load_model.load_file(Path({str(faulty_package)!r}), "model")
sys.exit(any(name.split(".")[:2] == ["torch", "_inductor"] for name in sys.modules) or "sympy" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

"""Replacements in the process of a script."""

from __future__ import annotations

import importlib
import inspect
import io
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from aoti_debug.app.execute import replacements


class Loader:
    def __init__(self, model_package_path: str, model_name: str, runners: int = 1) -> None:
        self.loaded = (model_package_path, model_name, runners)

    @staticmethod
    def load_metadata_from_package(path: str, name: str) -> str:
        return f"{path} {name}"


class Runner:
    def __init__(self, model_so_path: str, num_models: int) -> None:
        self.loaded = (model_so_path, num_models)


class Packages:
    def __init__(self) -> None:
        self.remembered: list[Any] = []

    def recorded(self, path: str, model: str) -> str:
        return f"recorded {path} {model}"

    def remember_program(self, *what: Any) -> None:
        self.remembered.append(what)


def test_a_module_is_changed_when_it_has_been_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_once.py").write_text("VALUE = 1\ndef f() -> int:\n    return VALUE\n")
    monkeypatch.syspath_prepend(tmp_path)

    def change(module: ModuleType) -> None:
        vars(module)["VALUE"] += 1

    monkeypatch.setattr(sys, "meta_path", [replacements.AfterImport({"imported_once": change}), *sys.meta_path])
    module = importlib.import_module("imported_once")
    monkeypatch.delitem(sys.modules, "imported_once")
    assert module.f() == 2
    assert "return VALUE" in inspect.getsource(module.f)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("imported_never")


def test_loaders(capsys: pytest.CaptureFixture[str]) -> None:
    aoti = SimpleNamespace(AOTIModelPackageLoader=Loader, AOTIModelContainerRunnerCpu=Runner)
    replacements._replace_loaders(SimpleNamespace(_C=SimpleNamespace(_aoti=aoti)), Packages)  # type: ignore[arg-type]
    loader = aoti.AOTIModelPackageLoader("a.pt2", "model", 2)
    assert loader.loaded == ("recorded a.pt2 model", "model", 2)
    assert isinstance(loader, Loader)
    assert aoti.AOTIModelPackageLoader.load_metadata_from_package("a", "b") == "a b"
    assert not capsys.readouterr().err
    assert aoti.AOTIModelContainerRunnerCpu("a.so", 1).loaded == ("a.so", 1)
    aoti.AOTIModelContainerRunnerCpu("a.so", num_models=1)
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "aoti-debug: a.so is not recorded: it is a library, and only packages (.pt2) are replaced"


def test_the_compiler_keeps_the_program() -> None:
    packages = Packages()
    buffer = io.BytesIO()

    def compile_(exported_program: str, *, package_path: Any, inductor_configs: Any = None) -> Any:
        return package_path

    inductor = SimpleNamespace(aoti_compile_and_package=compile_)
    replacements._replace_compiler(inductor, lambda: packages)  # type: ignore[arg-type, return-value]
    assert inductor.aoti_compile_and_package("program", package_path="a.pt2", inductor_configs={"a": 1}) == "a.pt2"
    assert inductor.aoti_compile_and_package(exported_program="program", package_path=buffer) is buffer
    assert packages.remembered == [("a.pt2", "program", {"a": 1}), (buffer, "program", {})]

"""Replacements in the process of a script."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aoti_debug.app.execute import bare_libraries, replacements
from aoti_debug.app.execute.kept_inputs import PackageUse


class Loader:
    def __init__(self, model_package_path: str, model_name: str, runners: int = 1) -> None:
        self.loaded = (model_package_path, model_name, runners)

    def run(self, inputs: list[int], stream: int = 0) -> list[int]:
        return [*inputs, stream]

    def load_constants(self, constants: dict[str, int], *, use_inactive: bool) -> tuple[dict[str, int], bool]:
        return constants, use_inactive

    @staticmethod
    def load_metadata_from_package(path: str, name: str) -> str:
        return f"{path} {name}"


class Runner:
    def __init__(self, *arguments: Any) -> None:
        self.loaded = arguments

    def run(self, inputs: list[int]) -> list[int]:
        return inputs

    def swap_constant_buffer(self) -> str:
        return "swapped"


class AOTIModelContainerRunnerCuda(Runner):
    pass


class Use(PackageUse):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.seen: list[Any] = []

    def loaded(self, loader: Any) -> None:
        self.seen.append(loader)

    def change(self, work: Callable[[], Any]) -> Any:
        self.seen.append("change")
        return super().change(work)

    def call(self, run: Callable[..., Any], inputs: Any, *arguments: Any, **keywords: Any) -> Any:
        self.seen.append(inputs)
        return super().call(run, inputs, *arguments, **keywords)


class Packages:
    def __init__(self) -> None:
        self.remembered: list[Any] = []
        self.uses: list[Use] = []

    def use(self, path: str, model: str) -> Use:
        self.uses.append(Use(f"recorded {path} {model}"))
        return self.uses[-1]

    def remember_program(self, *what: Any) -> None:
        self.remembered.append(what)


def test_loaders(capsys: pytest.CaptureFixture[str]) -> None:
    packages = Packages()
    aoti = SimpleNamespace(AOTIModelPackageLoader=Loader, AOTIModelContainerRunnerXpu=Runner)
    vars(aoti).update(replacements.loaders(aoti, lambda: packages))
    loader = aoti.AOTIModelPackageLoader("a.pt2", "model", 2)
    assert loader.loaded == ("recorded a.pt2 model", "model", 2)
    assert isinstance(loader, Loader)
    assert aoti.AOTIModelPackageLoader.load_metadata_from_package("a", "b") == "a b"
    assert loader.run([1], stream=3) == [1, 3]
    assert loader.load_constants({"w": 1}, use_inactive=True) == ({"w": 1}, True)
    assert packages.uses[0].seen == ["change", loader, [1], "change"]
    assert not hasattr(loader, "boxed_run")
    assert not capsys.readouterr().err
    for _ in range(2):
        assert aoti.AOTIModelContainerRunnerXpu("a.so", 1).loaded == ("a.so", 1)
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "aoti-debug: a.so is not recorded: its device is neither a CPU nor a CUDA GPU"


def test_runners_of_bare_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    packages = Packages()
    aoti = SimpleNamespace(
        AOTIModelPackageLoader=Loader,
        AOTIModelContainerRunnerCpu=Runner,
        AOTIModelContainerRunnerCuda=AOTIModelContainerRunnerCuda,
    )
    vars(aoti).update(replacements.loaders(aoti, lambda: packages))
    monkeypatch.setattr(bare_libraries, "unpacked", lambda package: Path("libraries/1") / package)
    runner = aoti.AOTIModelContainerRunnerCpu("a.so", 1)
    assert runner.loaded == ("libraries/1/recorded a.so model", 1)
    assert (runner.run([1]), runner.swap_constant_buffer()) == ([1], "swapped")
    assert packages.uses[0].seen == ["change", runner, [1], "change"]
    for given, expected in (
        ((2,), (2, "cuda", "libraries/1")),
        ((2, "cuda:1"), (2, "cuda:1", "libraries/1")),
        ((2, "cuda:1", "binaries"), (2, "cuda:1", "libraries/1")),
        ((2, "cuda:1", "binaries", True), (2, "cuda:1", "libraries/1", True)),
    ):
        assert aoti.AOTIModelContainerRunnerCuda("a.so", *given).loaded[1:] == expected
    monkeypatch.setattr(packages, "use", lambda path, _: Use(path))
    assert aoti.AOTIModelContainerRunnerCuda("a.so", 2, "cuda:1").loaded == ("a.so", 2, "cuda:1")


def test_the_compilers_keep_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    packages = Packages()
    buffer = io.BytesIO()

    def compile_(exported_program: str, *, package_path: Any, inductor_configs: Any = None) -> Any:
        return package_path

    def aot_compile(gm: str, args: Any, kwargs: Any = None, *, options: Any = None) -> Any:
        return options["path"]

    inductor = SimpleNamespace(aoti_compile_and_package=compile_, aot_compile=aot_compile)
    vars(inductor).update(replacements.compilers(inductor, lambda: packages))
    assert inductor.aoti_compile_and_package("program", package_path="a.pt2", inductor_configs={"a": 1}) == "a.pt2"
    assert inductor.aoti_compile_and_package(exported_program="program", package_path=buffer) is buffer
    monkeypatch.setattr(bare_libraries, "exported", lambda *what: what)
    assert inductor.aot_compile("graph", (1,), {"a": 2}, options={"path": "a.so"}) == "a.so"
    assert [(compiled, program(), configs) for compiled, program, configs in packages.remembered] == [
        ("a.pt2", "program", {"a": 1}),
        (buffer, "program", {}),
        ("a.so", ("graph", (1,), {"a": 2}), {"path": "a.so"}),
    ]


def test_what_is_replaced_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    aoti = SimpleNamespace(AOTIModelPackageLoader=Loader, AOTIModelContainerRunnerCpu=Runner)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(_C=SimpleNamespace(_aoti=aoti)))
    monkeypatch.setitem(
        sys.modules, "torch._inductor", SimpleNamespace(aoti_compile_and_package=None, aot_compile=None)
    )
    finders = list(sys.meta_path)
    replaced = replacements.Replacements(Packages)
    replaced.install()
    assert aoti.AOTIModelPackageLoader is not Loader
    aoti.AOTIModelContainerRunnerCpu = None
    replaced.remove()
    assert vars(aoti) == {"AOTIModelPackageLoader": Loader, "AOTIModelContainerRunnerCpu": None}
    assert sys.meta_path == finders

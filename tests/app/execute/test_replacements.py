"""Replacements in the process of a script."""

from __future__ import annotations

import io
import sys
import traceback
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

    def update_constant_buffer(self, tensor_map: dict[str, Any], *flags: bool) -> None:
        pass

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

    def free_inactive_constant_buffer(self) -> str:
        return "freed"


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

    def weights_changed(self, method: str, tensors: Any, *, inactive: bool, in_place: bool) -> None:
        self.seen.append((method, tensors, inactive, in_place))

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
    loader.update_constant_buffer({"v": 2}, False, True, True)
    changes = [("load_constants", {"w": 1}, True, False), ("update_constant_buffer", {"v": 2}, False, True)]
    assert packages.uses[0].seen == ["change", loader, [1], "change", changes[0], "change", changes[1]]
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
    swapped: Any = ("swap_constant_buffer", {}, False, False)
    assert packages.uses[0].seen == ["change", runner, [1], "change", swapped]
    assert runner.free_inactive_constant_buffer() == "freed"
    assert packages.uses[0].seen[-1] == ("free_inactive_constant_buffer", {}, False, False)
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


def test_an_exception_is_as_without_the_replacements() -> None:
    """It is the same object, with the frames of the caller and of torch alone."""

    def fails(*_: Any, **__: Any) -> Any:
        raise error

    class Failing(Loader):
        run = load_constants = fails

    packages = SimpleNamespace(use=lambda path, _: PackageUse(path))
    inductor = SimpleNamespace(aoti_compile_and_package=fails, aot_compile=fails)
    vars(inductor).update(replacements.compilers(inductor, lambda: packages))
    aoti = SimpleNamespace(AOTIModelPackageLoader=Failing)
    vars(aoti).update(replacements.loaders(aoti, lambda: packages))
    loader = aoti.AOTIModelPackageLoader("a.pt2", "model")
    calls: tuple[Callable[[], Any], ...] = (
        lambda: inductor.aoti_compile_and_package("program"),
        lambda: inductor.aot_compile("graph", ()),
        lambda: loader.run([1]),
        lambda: loader.load_constants({}, use_inactive=False),
    )
    for call in calls:
        error = RuntimeError("of torch")
        with pytest.raises(RuntimeError) as raised:
            call()
        assert raised.value is error
        names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
        assert names[:2] == ["test_an_exception_is_as_without_the_replacements", "<lambda>"]
        assert names[2:] == ["fails"] or (sys.version_info < (3, 11) and names[2:] == ["unseen", "fails"])
        assert (error.__cause__, error.__suppress_context__) == (None, False)


def test_what_was_instrumented_cannot_be_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    class Choosy(Loader):
        def __init__(self, path: str, *arguments: Any) -> None:
            if path != "a.pt2":
                raise RuntimeError(f"no {path}\nframes")
            super().__init__(path, *arguments)

    aoti = SimpleNamespace(AOTIModelPackageLoader=Choosy)
    vars(aoti).update(replacements.loaders(aoti, Packages))
    loader = aoti.AOTIModelPackageLoader("a.pt2", "model")
    assert loader.loaded == ("a.pt2", "model", 1)
    assert loader.run([1]) == [1, 0]
    assert capsys.readouterr().err.splitlines() == [
        "aoti-debug: a.pt2 is not recorded: what was instrumented cannot be loaded: no recorded a.pt2 model"
    ]
    with pytest.raises(RuntimeError, match=r"no b\.pt2") as raised:  # as without aoti-debug
        aoti.AOTIModelPackageLoader("b.pt2", "model")
    assert raised.value.__context__ is None
    assert not capsys.readouterr().err  # its own error says it


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

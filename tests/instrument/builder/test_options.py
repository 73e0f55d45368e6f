from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import aoti_debug
from aoti_debug.base.errors import AotiDebugError, ArtifactError, UsageError
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.instrument.builder import options as build_options
from aoti_debug.instrument.builder.options import BuildOptions, BuildSettings, check, options_of
from aoti_debug.package.pt2 import archive
from aoti_debug.package.recording_settings import SiteFilter
from aoti_debug.package.weights_file import WeightsPlace
from tests import archives


def test_a_comma_separates_patterns() -> None:
    chosen = BuildOptions("m.pt2", filters=("cpp_*,!nothing", "triton_*"), modules=("encoder",)).site_filter
    assert chosen == SiteFilter(("cpp_*", "!nothing", "triton_*"), ("encoder",))


TWO = {
    f"{archives.MODEL.replace('model', name)}c1.wrapper.so": b"\x7fELF" for name in ("large", "small")
} | archives.FRAME


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, members in {
        "program": archives.PROGRAM,
        "package": archives.PACKAGE,
        "sources": archives.SOURCES,
        "two": TWO,
    }.items():
        archives.write(tmp_path / f"{name}.pt2", members)
    return tmp_path


def options(program: object, **fields: Any) -> BuildOptions:
    return BuildOptions(program, **fields)


@pytest.mark.usefixtures("files")
def test_an_exported_program() -> None:
    checked = check(options("program.pt2"))
    assert checked.program == archive.inspect("program.pt2")
    assert (checked.compiled, checked.model, checked.against, checked.exported) == (None, "", None, None)
    assert checked.output == Path("program.instrumented.pt2")


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("name", ["package", "sources"])
def test_a_compiled_package_and_its_program(name: str) -> None:
    checked = check(options(f"{name}.pt2", exported=Path("program.pt2")))
    assert checked.compiled == checked.program == archive.inspect(f"{name}.pt2")
    assert checked.model == "model"
    assert checked.exported == archive.inspect("program.pt2")


@pytest.mark.usefixtures("files")
def test_a_program_in_memory() -> None:
    program = object()
    checked = check(options(program, against=Path("package.pt2")))
    assert checked.program is program
    assert checked.compiled is None
    assert (checked.against, checked.model) == (archive.inspect("package.pt2"), "model")
    assert checked.output == Path("model.instrumented.pt2")


@pytest.mark.usefixtures("files")
def test_the_model_is_of_the_package_that_is_compared_with() -> None:
    assert check(options("program.pt2", against=Path("two.pt2"), model="small")).model == "small"
    assert check(options("two.pt2", model="large")).model == "large"


@pytest.mark.parametrize(
    ("program", "fields", "error", "message"),
    [
        ("package", {"against": "package"}, UsageError, "package.pt2 is compiled already: its kernels are its own"),
        ("program", {"exported": "program"}, UsageError, "program.pt2 is an exported program itself"),
        (None, {"exported": "program"}, UsageError, "the program is an exported program itself"),
        ("program", {"model": "x"}, UsageError, "an exported program holds one model"),
        ("package", {"inductor_configs": {"a": 1}}, UsageError, "package.pt2 is compiled already: --inductor-config"),
        ("package", {"inputs": "package", "random_inputs": 1}, UsageError, "--inputs and --random-inputs are two sets"),
        ("package", {"exported": "sources"}, ArtifactError, "sources.pt2 is an AOTInductor package of C++ sources; an"),
        ("program", {"against": "program"}, ArtifactError, "program.pt2 is an exported program; a compiled AOTInduct"),
        ("two", {}, UsageError, "two.pt2 holds 2 models"),
        ("program", {"against": "two"}, UsageError, "two.pt2 holds 2 models"),
        ("program", {"against": "two", "model": "x"}, UsageError, "two.pt2 holds no model 'x'"),
    ],
)
def test_options_that_do_not_go_together(
    files: Path, program: str | None, fields: dict[str, Any], error: type[AotiDebugError], message: str
) -> None:
    paths = {name: Path(f"{value}.pt2") for name, value in fields.items() if name in ("against", "exported", "inputs")}
    with pytest.raises(AotiDebugError) as caught:
        check(options(object() if program is None else f"{program}.pt2", **(fields | paths)))
    assert type(caught.value) is error
    assert str(caught.value).startswith(message)
    assert len(list(files.iterdir())) == 4


@pytest.mark.usefixtures("files")
def test_a_program_with_its_package_is_told_to_be_swapped() -> None:
    with pytest.raises(UsageError) as caught:
        check(options("program.pt2", exported=Path("package.pt2")))
    assert caught.value.hint == "swap the files: package.pt2 --exported program.pt2"


@pytest.mark.parametrize(("name", "limit", "place"), [("program", 7, "by-reference"), ("program", 8, "inside")])
def test_large_weights_stay_in_the_program_s_file(
    files: Path, monkeypatch: pytest.MonkeyPatch, name: str, limit: int, place: str
) -> None:
    monkeypatch.setattr(build_options, "bytes_of_weights", lambda _: 8)
    monkeypatch.setattr(build_options, "LARGE", limit)
    assert BuildOptions(files / f"{name}.pt2").for_this_machine().weights.value == place
    frozen = BuildOptions(files / f"{name}.pt2", inductor_configs={"freezing": True})
    assert frozen.for_this_machine().weights is WeightsPlace.INSIDE


def test_weights_of_a_package_stay_inside(files: Path) -> None:
    assert BuildOptions(files / "package.pt2").for_this_machine().weights is WeightsPlace.INSIDE


def test_weights_can_be_left_in_the_file_of_a_program_only(files: Path) -> None:
    with pytest.raises(UsageError, match=r"package\.pt2 is no file of an exported program") as caught:
        check(BuildOptions(files / "package.pt2", weights=WeightsPlace.BY_REFERENCE))
    assert caught.value.hint == "pass --weights inside"
    with pytest.raises(UsageError, match="a plain package has its weights inside"):
        check(BuildOptions(files / "program.pt2", weights=WeightsPlace.BY_REFERENCE, plain=files / "plain.pt2"))


def test_without_settings_the_options_are_the_defaults() -> None:
    assert options_of("m.pt2", {}) == BuildOptions(program="m.pt2")


def test_each_setting_reaches_its_option() -> None:
    settings: BuildSettings = {
        "level": "hash",
        "filters": ["triton_*"],
        "modules": ["layers.*"],
        "lines": ["m.py:3"],
        "output": "out.pt2",
        "inputs": "in.pt",
        "inductor_configs": {"max_autotune": True},
        "imports": ["ops"],
        "libraries": ["ops.so"],
        "keep_sources": "sources",
        "model": "a",
        "random_inputs": 7,
        "exported": "e.pt2",
        "progress": lambda stage, seconds: None,
        "timeout": 60.0,
        "trusted": True,
    }
    assert settings.keys() == BuildSettings.__annotations__.keys()
    assert options_of("m.pt2", settings) == BuildOptions(
        program="m.pt2",
        level=4,
        filters=("triton_*",),
        modules=("layers.*",),
        lines=("m.py:3",),
        output=Path("out.pt2"),
        inputs=Path("in.pt"),
        inductor_configs={"max_autotune": True},
        user_code=UserCode(("ops",), (Path("ops.so"),), trusted=True),
        keep_sources=Path("sources"),
        timeout=60.0,
        model="a",
        random_inputs=7,
        exported=Path("e.pt2"),
    )


def test_every_setting_is_described() -> None:
    text = BuildSettings.__doc__ or ""
    assert [name for name in BuildSettings.__annotations__ if name not in text] == []


def test_an_unknown_setting_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"^build\(\) got an unexpected keyword argument 'filter'$"):
        aoti_debug.build("m.pt2", filter="triton_*")  # type: ignore[call-arg]


def test_a_wrong_level_is_an_error() -> None:
    with pytest.raises(UsageError, match="level"):
        aoti_debug.build("m.pt2", level=9)

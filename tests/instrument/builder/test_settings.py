"""The keyword arguments of `aoti_debug.build`."""

from __future__ import annotations

from pathlib import Path

import pytest

import aoti_debug
from aoti_debug.base.errors import UsageError
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.instrument.builder.options import BuildOptions
from aoti_debug.instrument.builder.settings import BuildSettings, options_of


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

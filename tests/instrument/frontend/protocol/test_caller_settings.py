"""What a build takes over from the process that asks for it."""

from __future__ import annotations

import pytest
import torch
from torch._inductor import config

from aoti_debug.base.machine import torch_settings
from aoti_debug.base.machine.files import json_data
from aoti_debug.instrument.frontend.protocol.caller_settings import (
    CallerSettings,
    NotSendableError,
    applied,
    capture,
    has_setting,
    key,
    with_assigned,
)


def test_settings_are_captured_and_applied() -> None:
    chosen = CallerSettings({"max_autotune": True}, {"cpu": "float16"}, {"float32_matmul_precision": "high"})
    before = capture()
    with applied(chosen), config.patch(max_autotune=True):
        captured = capture()
    assert captured.inductor.items() >= {"max_autotune": True}.items()
    assert captured.autocast == {"cpu": "float16"}
    assert captured.torch["float32_matmul_precision"] == "high"
    assert capture() == before


@pytest.mark.parametrize("has_gradients", [True, False])
def test_gradients_are_on_where_they_were(has_gradients: bool) -> None:
    with torch.set_grad_enabled(has_gradients):
        captured = capture()
    with torch.set_grad_enabled(not has_gradients), applied(captured):
        assert torch.is_grad_enabled() is has_gradients


def test_a_pass_cannot_be_sent() -> None:
    def change(_graph: torch.fx.Graph) -> None:
        pass

    with config.patch(post_grad_custom_pre_pass=change), pytest.raises(NotSendableError, match="custom_pre_pass is <"):
        capture()


def test_what_a_build_is_given_comes_first() -> None:
    with config.patch(max_autotune=True, max_fusion_size=3):
        assert with_assigned({"max_fusion_size": 5}).items() >= {"max_autotune": True, "max_fusion_size": 5}.items()


def test_what_an_instrumented_package_cannot_have_is_left_out() -> None:
    with config.patch({"aot_inductor.allow_stack_allocation": True, "max_autotune": True}):
        taken = with_assigned({})
    assert taken["max_autotune"]
    assert "aot_inductor.allow_stack_allocation" not in taken


def test_the_place_of_the_package_of_torch_is_left_out() -> None:
    with config.patch({"aot_inductor.output_path": "/tmp/model.so"}):
        assert "aot_inductor.output_path" not in with_assigned({})


def test_what_is_not_taken_over_is_said() -> None:
    with (
        config.patch(post_grad_custom_pre_pass=len),
        pytest.warns(UserWarning, match="custom_pre_pass is <built-in function len>, which the build does"),
    ):
        assert with_assigned({"max_autotune": True}) == {"max_autotune": True}


def test_the_key_changes_with_the_settings() -> None:
    before = key()
    with config.patch(max_autotune=True):
        assert key() != before
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert key() != before
    with torch_settings.applied({"default_dtype": "float64"}):
        assert key() != before
    with torch.no_grad():
        assert key() != before
    assert key() == before


def test_settings_travel_as_json() -> None:
    chosen = CallerSettings({"max_autotune": True}, {"cuda": "bfloat16"}, {"num_threads": 3})
    assert json_data.parse(CallerSettings, json_data.to_text(chosen)) == chosen


def test_settings_of_inductor_that_exist() -> None:
    assert has_setting("aot_inductor.package_cpp_only")
    assert has_setting("max_autotune")
    assert not has_setting("aot_inductor.no_such_setting")
    assert not has_setting("no_such_owner.package_cpp_only")

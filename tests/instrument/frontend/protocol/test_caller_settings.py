"""What a build takes over from the process that asks for it."""

from __future__ import annotations

import pytest
import torch
from torch._inductor import config

from aoti_debug.base.machine.files import json_data
from aoti_debug.instrument.frontend.protocol.caller_settings import (
    CallerSettings,
    NotSendableError,
    applied,
    capture,
)


def test_settings_are_captured_and_applied() -> None:
    chosen = CallerSettings("high", {"max_autotune": True}, {"cpu": "float16"}, "warn")
    before = capture()
    with applied(chosen), config.patch(max_autotune=True):
        captured = capture()
    assert captured.inductor.items() >= {"max_autotune": True}.items()
    assert (captured.autocast, captured.matmul_precision, captured.deterministic) == (
        {"cpu": "float16"},
        "high",
        "warn",
    )
    assert capture() == before


def test_a_pass_cannot_be_sent() -> None:
    def change(_graph: torch.fx.Graph) -> None:
        pass

    with config.patch(post_grad_custom_pre_pass=change), pytest.raises(NotSendableError, match="custom_pre_pass is <"):
        capture()


def test_settings_travel_as_json() -> None:
    chosen = CallerSettings("medium", {"max_autotune": True}, {"cuda": "bfloat16"}, "error")
    assert json_data.parse(CallerSettings, json_data.to_text(chosen)) == chosen

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from aoti_debug.base.errors import ToolchainError
from aoti_debug.instrument.frontend.protocol import messages
from aoti_debug.instrument.frontend.protocol.messages import (
    Answer,
    Failure,
    LeftOut,
    Request,
    TritonConfig,
    TunedChoice,
)
from aoti_debug.package.manifest import OperatorSchema, Parameter, Promise
from tests.wrong_types import assert_refused

ANSWER = Answer(
    torch_version="2.13.0",
    shim_operators=("aten.addmm.default",),
    schemas={
        "aten.mm.default": OperatorSchema("aten.mm.default", (Parameter("self", "Tensor"),), 1, text="aten::mm()")
    },
    wrapper_opt="O1",
    without_inputs="",
    times={"lower": 1.5},
    triton_configs={"triton_poi_fused_0": TritonConfig((("XBLOCK", "128"), ("num_stages", "1")), 8, 16)},
    custom_shims={"mylib::op": ("AOTITorchError aoti_torch_cpu_op()",)},
    operator_stacks={"mylib::op.default": "File"},
    promises=(Promise("buf0", "cpu", "float32", ("s0", "4"), ("4", "1")),),
    without_promises="some",
)
FAILURE = Failure("load", "", "RuntimeError", "no such operator", "--import MODULE")


def request(folder: Path) -> Request:
    configs = {"max_autotune": True, "depth": {"a": [1, None, 2.5]}}
    candidate = TunedChoice("triton_poi_fused_0", "XBLOCK: 128, num_warps: 4, num_stages: 1")
    left_out = LeftOut(("aten.silu.default",), ("aten.relu.default",), (candidate,), "applied.json")
    return Request("model.pt2", str(folder), configs, ("ops",), ("/lib/ops.so",), "in.pt", True, 7, left_out)


def answer(folder: Path, data: Any) -> Answer | Failure | None:
    (folder / messages.ANSWER).write_text(data if isinstance(data, str) else json.dumps(data))
    return messages.read_answer(folder)


def test_a_request_crosses_the_border(tmp_path: Path) -> None:
    asked = request(tmp_path)
    path = messages.write_request(asked)
    assert messages.read_request(path) == asked

    def read(data: Any) -> Request:
        path.write_text(json.dumps(data))
        return messages.read_request(path)

    data = json.loads(path.read_text())
    data["configs"] = {}
    may_be_empty = ["left_out", "caller"]  # they may be null, and each of their values missing
    assert_refused(read, data, ToolchainError, unread=may_be_empty)
    assert_refused(lambda inner: read({**data, "left_out": inner}), data["left_out"], ToolchainError)


@pytest.mark.parametrize("told", [ANSWER, FAILURE])
def test_an_answer_crosses_the_border(tmp_path: Path, told: Answer | Failure) -> None:
    assert messages.read_answer(tmp_path) is None
    messages.write_answer(tmp_path, told)
    assert messages.read_answer(tmp_path) == told
    assert [path.name for path in tmp_path.iterdir()] == [messages.ANSWER]
    assert_refused(lambda data: answer(tmp_path, data), json.loads(json.dumps(asdict(told))), ToolchainError)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "[" * 200_000])
def test_a_damaged_answer(tmp_path: Path, text: str) -> None:
    with pytest.raises(ToolchainError, match=r"answer\.json is damaged") as caught:
        answer(tmp_path, text)
    assert caught.value.hint

"""Issue texts: the whole of one, and scripts that make the inputs again."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from aoti_debug.compare.fx_repro.issue_text import issue_script, issue_text
from aoti_debug.compare.fx_repro.module_text import without_folder
from aoti_debug.compare.protocol.request import InputTensor
from tests.compare.fx_repro.test_module_text import everything

GOLDEN = Path(__file__).parent / "golden"
RANDOM = InputTensor(dtype="float32", shape=(4, 3), strides=(3, 1))
VERSIONS = {"torch": "2.13.0", "Python": "3.11.7"}


def inputs_of(*tensors: InputTensor) -> tuple[torch.Tensor, ...]:
    """The inputs that the script makes."""
    names: dict[str, Any] = {}
    given = {f"x{number}": tensor for number, tensor in enumerate(tensors)}
    exec(issue_script(everything(), given, "cpu"), names)
    made = names["make_inputs"]()
    assert isinstance(made, tuple)
    return made


def test_the_whole_text_names_no_folder(golden: Callable[[Path, str], None]) -> None:
    observed = ["mul: DIFFERS: 3 of 12 elements", "FileNotFoundError: '/home/u/secret/table.bin'"]
    text = issue_text(everything(without_folder), {"x": RANDOM}, VERSIONS, "cpu", observed)
    golden(GOLDEN / "issue.md.txt", text)
    assert "/home/u" not in text
    assert "'table.bin'" in text
    assert "# model.py:23 in forward\n" in text


def test_small_inputs_are_in_the_text() -> None:
    value = torch.tensor([[1, -2], [3, 4]], dtype=torch.int16)
    data = base64.b64encode(value.numpy().tobytes()).decode()
    (made,) = inputs_of(InputTensor(dtype="int16", shape=(2, 2), strides=(2, 1), data=data))
    assert torch.equal(made, value)
    recorded = InputTensor(dtype="int16", shape=(2, 2), strides=(2, 1), data=data)
    assert "attached" not in issue_text(everything(), {"x": recorded}, {}, "cpu", [])


def test_an_expanded_input_has_its_shape() -> None:
    (made,) = inputs_of(InputTensor(dtype="float32", shape=(3, 4), strides=(0, 1)))
    assert made.shape == (3, 4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "uint8", "uint16", "bool", "complex64"])
def test_others_are_random_within_their_range_and_have_the_layout(dtype: str) -> None:
    (made,) = inputs_of(InputTensor(dtype=dtype, shape=(8, 5), strides=(1, 8), smallest=2, largest=4))
    assert (made.dtype, made.stride()) == (getattr(torch, dtype), (1, 8))
    if "int" in dtype:
        assert set(made.flatten().tolist()) == {2, 3, 4}

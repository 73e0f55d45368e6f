"""The settings of torch that a process hands on to those that compute for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from aoti_debug.base.machine import torch_settings
from aoti_debug.base.machine.processes.child_process import sharing_torch_settings
from aoti_debug.base.machine.torch_settings import applied, capture, described, kept, statements

CHANGES: dict[str, torch_settings.Value] = {
    "deterministic_algorithms": "warn",
    "utils.deterministic.fill_uninitialized_memory": False,
    "default_dtype": "float64",
    "num_threads": 3,
    "flush_denormal": True,
    "backends.cuda.matmul.allow_fp16_accumulation": True,
    "backends.cudnn.benchmark": True,
    "backends.cudnn.conv.fp32_precision": "ieee",
    "backends.mkldnn.enabled": False,
    "backends.mkldnn.deterministic": True,
    "backends.cuda.math_sdp": False,
}


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Begins with torch's defaults, and leaves the settings of this process as they were."""
    before = capture()
    torch_settings.apply({})
    yield
    torch_settings.apply(before)
    assert capture() == before


def test_a_new_process_has_torchs_defaults() -> None:
    code = "import json; from aoti_debug.base.machine import torch_settings as s; print(json.dumps(s.capture()))"
    found = json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
    assert set(found) == {"num_threads"}


@pytest.mark.parametrize("name", CHANGES)
def test_each_is_captured_and_applied(name: str) -> None:
    before = capture()
    with applied({"num_threads": torch.get_num_threads(), name: CHANGES[name]}):
        assert capture() == {**before, name: CHANGES[name]}
    assert capture() == before


def test_what_is_not_given_goes_back_to_the_default() -> None:
    with applied(CHANGES), applied({"default_dtype": "float16"}):
        assert torch.get_default_dtype() == torch.float16
        assert torch.backends.mkldnn.enabled
        assert torch.get_num_threads() == 3


def test_the_statements_do_the_same() -> None:
    lines = statements({**CHANGES, "of.a.newer.version": 1})
    assert len(lines) == len(CHANGES)
    exec("\n".join(["import torch", *lines]), {})
    assert capture() == CHANGES


def test_the_precision_of_products() -> None:
    torch.set_float32_matmul_precision("high")
    found = capture()
    assert (found["float32_matmul_precision"], found["backends.cuda.matmul.fp32_precision"]) == ("high", "tf32")
    assert statements({**found, "num_threads": 2}) == [
        "torch.set_float32_matmul_precision('high')",
        "torch.set_num_threads(2)",
    ]
    assert "float32_matmul_precision high" in described(found)
    assert not any("fp32_precision" in text for text in described(found))
    torch_settings.apply({})
    assert torch.get_float32_matmul_precision() == "highest"
    torch_settings.apply(found)
    assert capture() == found


def test_a_general_setting_alone_sets_those_that_take_its_value_over() -> None:
    before = capture()
    with torch_settings.applied({"float32_matmul_precision": "high"}):
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
        assert torch.backends.mkldnn.matmul.fp32_precision == "tf32"
    assert capture() == before


def test_where_torch_does_not_tell_the_precision_of_products_the_backends_say_it() -> None:
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    found = capture()
    assert "float32_matmul_precision" not in found
    assert "backends.cuda.matmul.fp32_precision tf32" in described(found)
    torch.backends.cuda.matmul.fp32_precision = "none"
    torch_settings.apply(found)
    assert torch.backends.cuda.matmul.fp32_precision == "tf32"


def allows_tensor_float() -> bool:
    return bool(torch.backends.cudnn.allow_tf32)


def test_both_interfaces_to_the_precision_of_cudnn_are_set() -> None:
    torch.backends.cudnn.allow_tf32 = False
    found = capture()
    assert found["backends.cudnn.allow_tf32"] is False
    assert statements({**found, "num_threads": 2}) == [
        "torch.set_num_threads(2)",
        "torch.backends.cudnn.allow_tf32 = False",
    ]
    torch_settings.apply({})
    assert allows_tensor_float()
    assert torch.backends.cudnn.conv.fp32_precision == "tf32"
    torch_settings.apply(found)
    assert not allows_tensor_float()
    assert capture() == found
    torch.backends.cudnn.conv.fp32_precision = "ieee"
    torch.backends.cudnn.rnn.fp32_precision = "ieee"
    other = capture()
    torch_settings.apply(found)
    torch_settings.apply(other)
    assert not allows_tensor_float()
    assert capture() == other


def test_what_torch_does_not_tell_of_cudnn_is_that_of_its_operators() -> None:
    torch.backends.cudnn.conv.fp32_precision = "ieee"
    with pytest.raises(RuntimeError, match="mix of the legacy and new APIs"):
        allows_tensor_float()
    found = capture()
    assert "backends.cudnn.allow_tf32" not in found
    torch_settings.apply({})
    assert allows_tensor_float()
    torch_settings.apply(found)
    assert torch.backends.cudnn.conv.fp32_precision == "ieee"


def test_they_are_handed_to_other_processes() -> None:
    code = (
        "import json; from aoti_debug.base.machine import torch_settings as s, user_code; user_code.load((), ()); "
        "print(json.dumps(s.capture()))"
    )
    torch_settings.take_over()  # nothing was handed to this process
    with applied(CHANGES), sharing_torch_settings():
        ran = subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, capture_output=True, text=True)
    assert json.loads(ran.stdout) == CHANGES


def test_they_are_kept_in_a_folder(tmp_path: Path) -> None:
    process = os.getpid()
    assert kept(tmp_path / "calls", process) is None
    torch_settings.keep(tmp_path / "calls")
    found = capture()
    with applied(CHANGES):
        torch_settings.keep(tmp_path / "calls")
    assert kept(tmp_path / "calls", process) == found


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_threads", 0),
        ("num_threads", True),
        ("num_threads", 10**6),
        ("default_dtype", "os"),
        ("backends.cudnn.enabled", "yes"),
        ("float32_matmul_precision", ["high"]),
    ],
)
def test_values_that_cannot_be(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        torch_settings.check({"of.a.newer.version": {}, name: value})


def test_in_words() -> None:
    assert described(None) == []
    assert described({"num_threads": 1, "flush_denormal": True}) == ["1 thread", "flush_denormal True"]

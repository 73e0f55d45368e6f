from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aoti_debug.package.manifest import Kernel, Kind, ProxyArgument
from aoti_debug.runs.diagnosis.special_values import infinite_constants, intended_signs
from aoti_debug.runs.rundir.run_directory import RunDir
from tests.triage import kernel_sources as sources
from tests.triage.recorder import Recorder

ONE = torch.ones(1)


def signs_of(run: RunDir, argument: str) -> set[int]:
    (launch,) = run.launches
    result = launch.argument(argument)
    assert result is not None
    return set(intended_signs(launch, result, run.manifest))


@pytest.mark.parametrize("kernel", [sources.TRITON_MASKED_FILL, sources.CPP_MASKED_FILL], ids=lambda k: k.language)
def test_a_constant_explains_its_sign_in_the_result_that_it_goes_into(tmp_path: Path, kernel: Kernel) -> None:
    recorder = Recorder(tmp_path, kernels=(kernel,))
    recorder.launch(kernel.name, {"mask": ONE.bool(), "x": ONE}, {"buf0": ONE, "buf1": ONE})
    run = recorder.run()
    assert signs_of(run, "buf0") == {-1}
    assert signs_of(run, "buf1") == set()


def test_a_kernel_that_is_not_understood_is_given_all_constants_of_its_source(tmp_path: Path) -> None:
    kernel = Kernel("k", "triton", 'x = float("-inf") if (\n', "0" * 64)
    recorder = Recorder(tmp_path, kernels=(kernel,))
    recorder.launch("k", {"x": ONE}, {"buf0": ONE})
    assert signs_of(recorder.run(), "buf0") == {-1}


def test_numbers_of_an_operator_s_call(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.launch("aoti_torch_cpu_masked_fill", {"x": ONE}, {"buf0": ONE}, numbers={"value": -float("inf"), "dim": 1})
    assert signs_of(recorder.run(), "buf0") == {-1}


@pytest.mark.parametrize(
    ("text", "signs"),
    [('{"as_float": -Infinity}', {-1}), ('{"as_float": "inf"}', {1}), ('-"-inf"', {1}), ("{}", set())],
)
def test_numbers_behind_the_proxy_executor(tmp_path: Path, text: str, signs: set[int]) -> None:
    recorder = Recorder(tmp_path)
    operands = (ProxyArgument("value", False, text), ProxyArgument("name", False, '{"as_string": "information"}'))
    recorder.launch("mylib::fill", {"x": ONE}, {"buf0": ONE}, kind=Kind.PROXY, operands=operands)
    assert signs_of(recorder.run(), "buf0") == signs


def test_an_attention_may_give_the_logarithm_of_an_empty_sum(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    op = "aten._scaled_dot_product_flash_attention_for_cpu.default"
    recorder.launch("aoti_torch_cpu__scaled_dot_product", {"q": ONE}, {"buf0": ONE, "lse": ONE}, op=op)
    assert signs_of(recorder.run(), "lse") == {-1, 1}


def test_constants_anywhere_in_a_source() -> None:
    assert infinite_constants(sources.CPP_MASKED_FILL) == {-1}
    assert infinite_constants(sources.TRITON_PADDED) == {-1}
    assert infinite_constants(sources.CPP_DIV) == frozenset()


@pytest.mark.parametrize(
    ("language", "source", "signs"),
    [
        ("triton", 'float("inf")', {1}),
        ("triton", "-float('inf')", {-1}),
        ("triton", '-float("-inf")', {1}),
        ("triton", 'float("+inf"), float("-inf")', {1, -1}),
        ("triton", "float('information')", set()),
        ("cpp", "- std::numeric_limits<float>::infinity()", {-1}),
        ("cpp", "std::numeric_limits<double>::infinity()", {1}),
        ("cpp", "std::numeric_limits<double>::max()", set()),
    ],
)
def test_signs_of_constants(language: str, source: str, signs: set[int]) -> None:
    assert infinite_constants(Kernel("k", language, source, "0" * 64)) == signs

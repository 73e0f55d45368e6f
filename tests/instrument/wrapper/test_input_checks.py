"""Signatures from the checks of generated wrappers: torch 2.13 on the CPU, torch 2.11 with CUDA."""

from __future__ import annotations

import json

import pytest
import torch
from torch.utils import _pytree as pytree

from aoti_debug.instrument.wrapper import input_checks
from aoti_debug.package.inputs.signature import Dim, Leaf


def check(position: int, name: str, dtype: str, lines: str, device: int = 0) -> str:
    return f"""AOTI_NOINLINE static void check_input_{position}(
    AtenTensorHandle* input_handles
) {{
    ConstantHandle {name} = ConstantHandle(input_handles[{position}]);
    int32_t {name}_expected_dtype = aoti_torch_dtype_{dtype}();
    auto {name}_size = {name}.sizes();
{lines}
    int32_t {name}_expected_device_type = {device};
}}
"""


END = "static bool _check_aoti_runtime_check_inputs_env() {\n}\n\nAOTI_NOINLINE static void __check_inputs_outputs(\n"
FIXED = """
    if (8 != arg0_1_size[0]) {
    if (32 != arg0_1_size[1]) {
    if (32 != arg0_1_stride[0]) {
    if (1 != arg0_1_stride[1]) {
"""
DYNAMIC = """
    if (arg1_1_size[0] < 2) {
    if (arg1_1_size[0] > 64) {
    if (16 != arg1_1_size[1]) {
    if (16 != arg1_1_stride[0]) {
    if (1 != arg1_1_stride[1]) {
"""
UNBOUNDED = """
    if (arg2_1_size[0] < 1) {
    if (arg2_1_size[0] > 9223372036854775807) {
    if (arg2_1_size[1] > 2147483647) {
    if (1 != arg2_1_stride[1]) {
"""
RUN = """void AOTInductorModel::run_impl(
    auto arg1_1_size = arg1_1.sizes();
    int64_t s77 = arg1_1_size[0];
"""


def test_fixed_and_dynamic_sizes() -> None:
    wrapper = (
        check(0, "arg0_1", "float32", FIXED, device=1)
        + check(1, "arg1_1", "bfloat16", DYNAMIC)
        + check(2, "arg2_1", "int64", UNBOUNDED)
        + check(3, "arg3_1", "bool", "")
        + END
        + RUN
    )
    assert input_checks.signature(wrapper, ("arg0_1", "arg1_1", "arg2_1", "arg3_1"), "cuda").leaves == (
        Leaf("", "torch.float32", "cuda", (Dim(8, 8), Dim(32, 32)), (32, 1)),
        Leaf("", "torch.bfloat16", "cpu", (Dim(0, 64, "s77"), Dim(16, 16)), (16, 1)),
        Leaf("", "torch.int64", "cpu", (Dim(1, -1), Dim(0, -1)), None),
        Leaf("", "torch.bool", "cpu", (), ()),
    )


def test_a_least_size_of_two_also_stands_where_the_program_admits_one() -> None:
    three = DYNAMIC.replace("< 2", "< 3")
    (two,) = input_checks.signature(check(0, "arg1_1", "int64", DYNAMIC) + END, ("arg1_1",), "cpu").leaves
    (more,) = input_checks.signature(check(0, "arg1_1", "int64", three) + END, ("arg1_1",), "cpu").leaves
    assert (two.shape[0].admits(1), two.shape[0].admits(65), more.shape[0].admits(2)) == (True, False, False)


def test_symbols_and_strides_that_run_impl_asserts() -> None:
    asserted = 'assert_size_stride(arg2_1, {s77, 2L*s77}, {2L*s77, 1L}, "input");'
    (leaf,) = input_checks.signature(check(0, "arg2_1", "int64", UNBOUNDED) + END + asserted, ("arg2_1",), "cpu").leaves
    assert leaf == Leaf("", "torch.int64", "cpu", (Dim(1, -1, "s77"), Dim(0, -1, "2*s77")), ("2*s77", 1))


def test_nothing_is_known_of_an_input_without_a_check() -> None:
    (leaf,) = input_checks.signature(END, ("x",), "cpu").leaves
    assert (leaf, str(leaf)) == (Leaf("", "", "cpu", (), ()), "of unknown value")


def test_the_inputs_of_keywords_have_their_names() -> None:
    spec = pytree.treespec_dumps(pytree.tree_structure(((1,), {"index": 2, "more": [3]})))
    wrapper = "".join(check(position, name, "int64", "") for position, name in enumerate("abc"))
    recovered = input_checks.signature(f'{wrapper}{END}    in_spec_ = R"({spec})";\n', ("a", "b", "c"), "cpu")
    assert [leaf.name for leaf in recovered.leaves] == ["", "index", "more_0"]


@pytest.mark.parametrize(
    ("values", "kept", "others"), [((1, (2,)), True, 0), ((1,), False, 0), ((1, None, 2, "fast"), True, 2)]
)
def test_the_structure_is_kept_where_it_fits(values: tuple[object, ...], kept: bool, others: int) -> None:
    spec = pytree.treespec_dumps(pytree.tree_structure((values, {})))
    assert json.loads(spec)
    wrapper = check(0, "a", "int64", "") + check(1, "b", "int64", "") + END + f'    in_spec_ = R"({spec})";\n'
    recovered = input_checks.signature(wrapper, ("a", "b"), "cpu")
    assert (recovered.in_spec, recovered.others, recovered.count) == (
        spec if kept else "",
        others,
        2 + others,
    )


def test_every_dtype_is_one_of_torch() -> None:
    for name in ("float16", "float8_e4m3fn", "uint8", "complex64"):
        (leaf,) = input_checks.signature(check(0, "a", name, "") + END, ("a",), "cpu").leaves
        assert isinstance(getattr(torch, leaf.dtype.removeprefix("torch.")), torch.dtype)


@pytest.mark.parametrize(
    "spec", ['[1, {"type": null, "children_spec": [3]}]', "[1, {}]", "[1]", "nothing", "[" * 200_000]
)
def test_a_damaged_structure_is_none(spec: str) -> None:
    wrapper = check(0, "a", "int64", "") + END + f'    in_spec_ = R"({spec})";\n'
    recovered = input_checks.signature(wrapper, ("a",), "cpu")
    assert (recovered.in_spec, recovered.others) == ("", 0)

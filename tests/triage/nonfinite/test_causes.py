from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aoti_debug.package.manifest import Kernel
from aoti_debug.runs.diagnosis.special_values import Special
from aoti_debug.runs.kernel_source import result_slices
from aoti_debug.runs.kernel_source.placement import LaunchTensors
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.triage.nonfinite import causes
from aoti_debug.triage.nonfinite.causes import Cause, KernelStatements, domain_error, find_cause
from tests.triage import kernel_sources as sources
from tests.triage.recorder import Recorder

NAN, INF = float("nan"), float("inf")


def values(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def cause(
    kernel: Kernel,
    reads: dict[str, torch.Tensor],
    result: tuple[str, torch.Tensor],
    element: int,
    special: Special = Special.NAN,
    dtypes: dict[str, str] | None = None,
    numbers: dict[str, float] | None = None,
) -> Cause | None:
    """The cause of a kernel's result at an element. All is float32 except `dtypes`."""
    name, after = result
    kinds = {**dict.fromkeys((*reads, name), "float32"), **(dtypes or {})}
    pointers = frozenset(kinds)
    result_slice = result_slices.kernel_slices(kernel, pointers)[name]
    source = KernelStatements(result_slices.statements(kernel, pointers), result_slice.operations, kinds, numbers or {})
    return find_cause(source, LaunchTensors(reads, {name: after}), name, element, special)


@pytest.mark.parametrize("kernel", [sources.TRITON_DIV, sources.CPP_DIV], ids=lambda k: k.language)
@pytest.mark.parametrize(
    ("above", "below", "special", "sentence"),
    [
        (0, 0, Special.NAN, "0 / 0 is NaN"),
        (INF, INF, Special.NAN, "inf / inf is NaN"),
        (1.5, 0, Special.PLUS_INF, "1.5 / 0 is +Inf"),
        (-1.5, 0, Special.MINUS_INF, "-1.5 / 0 is -Inf"),
        (1e38, 1e-3, Special.PLUS_INF, "1e+38 / 0.001 = 1e+41, beyond the largest float32 (3.40282e+38)"),
    ],
)
def test_quotients(kernel: Kernel, above: float, below: float, special: Special, sentence: str) -> None:
    reads = {"in_ptr0": values(1, above, 3), "in_ptr1": values(2, below, 4)}
    after = (reads["in_ptr0"] / reads["in_ptr1"]).float().double()
    proven = cause(kernel, reads, ("out_ptr0", after), 1, special)
    assert proven is not None
    assert proven.sentences[0].startswith(f"{sentence}: `")
    assert proven.operation == "div"
    assert float(proven.read["in_ptr0"]) == above


def test_a_sentence_names_the_line_of_the_kernel() -> None:
    reads = {"in_ptr0": values(0, 1), "in_ptr1": values(0, 1)}
    proven = cause(sources.TRITON_DIV, reads, ("out_ptr0", values(NAN, 1)), 0)
    assert proven is not None
    line = sources.TRITON_DIV.source.splitlines().index("    tmp2 = (tmp0 / tmp1)") + 1
    assert proven.sentences == (f"0 / 0 is NaN: `tmp2 = tmp0 / tmp1` (line {line} of the kernel)",)


def test_no_cause_if_the_recorded_result_differs() -> None:
    reads = {"in_ptr0": values(0, 1), "in_ptr1": values(0, 1)}
    assert cause(sources.TRITON_DIV, reads, ("out_ptr0", values(NAN, 7)), 0) is None


@pytest.mark.parametrize(
    ("function", "operand", "special", "sentence"),
    [
        ("tl_math.log(tmp0)", -2.0, Special.NAN, "log(-2) is the logarithm of a negative number"),
        ("tl_math.log(tmp0)", 0.0, Special.MINUS_INF, "log(0) is the logarithm of zero"),
        ("libdevice.log1p(tmp0)", -1.0, Special.MINUS_INF, "log1p(-1) is the logarithm of zero"),
        ("libdevice.sqrt(tmp0)", -4.0, Special.NAN, "sqrt(-4) is the square root of a negative number"),
        ("libdevice.rsqrt(tmp0)", 0.0, Special.PLUS_INF, "rsqrt(0) is +Inf"),
        ("libdevice.pow(tmp0, 0.5)", -4.0, Special.NAN, "pow(-4, 0.5) is a fractional power of a negative number"),
        (
            "tl_math.exp(tmp0)",
            100.0,
            Special.PLUS_INF,
            "exp(100) = 2.68812e+43, beyond the largest float32 (3.40282e+38)",
        ),
        ("tl_math.exp(tmp0)", 1000.0, Special.PLUS_INF, "exp(1000) is +Inf"),
        ("tmp0 - tmp0", INF, Special.NAN, "inf - inf is NaN"),
        ("tmp0 * 0.0", -INF, Special.NAN, "-inf * 0 is NaN"),
        ("tmp0 * tmp0", 1e20, Special.PLUS_INF, "1e+20 * 1e+20 = 1e+40, beyond the largest float32 (3.40282e+38)"),
    ],
)
def test_functions(function: str, operand: float, special: Special, sentence: str) -> None:
    body = f"tmp0 = tl.load(in_ptr0 + (x0), xmask)\ntmp1 = {function}\ntl.store(out_ptr0 + (x0), tmp1, xmask)"
    kernel = sources.triton("k", "in_ptr0, out_ptr0", body)
    after = {Special.NAN: NAN, Special.PLUS_INF: INF, Special.MINUS_INF: -INF}[special]
    proven = cause(kernel, {"in_ptr0": values(operand)}, ("out_ptr0", values(after)), 0, special)
    assert proven is not None
    assert proven.sentences[0].startswith(f"{sentence}: `")


@pytest.mark.parametrize("mask", ["tmp0.template cast<float,1>()", "inductor_vec_mask_cast<float,1>(tmp0)"])
def test_a_mask_of_vectors_in_the_words_of_each_torch(mask: str) -> None:
    body = f"""
auto tmp0 = at::vec::VecMask<float,1>::from(in_ptr0 + static_cast<int64_t>(x0), static_cast<int64_t>(16));
auto tmp1 = at::vec::Vectorized<float>::loadu(in_ptr1 + static_cast<int64_t>(x0), static_cast<int64_t>(16));
auto tmp2 = at::vec::Vectorized<float>(-std::numeric_limits<float>::infinity());
auto tmp3 = decltype(tmp2)::blendv(tmp1, tmp2, {mask});
auto tmp4 = tmp3 - tmp3;
tmp4.store(out_ptr0 + static_cast<int64_t>(x0));
"""
    kernel = sources.cpp("k", "const bool* in_ptr0, const float* in_ptr1, float* out_ptr0", body)
    reads = {"in_ptr0": torch.tensor([False, True]), "in_ptr1": values(1, 2)}
    proven = cause(kernel, reads, ("out_ptr0", values(0, NAN)), 1, dtypes={"in_ptr0": "bool"})
    assert proven is not None
    assert proven.sentences[0].startswith("-inf - -inf is NaN: `auto tmp4 = tmp3 - tmp3`")


@pytest.mark.parametrize(
    "factor",
    [
        "int64_t(tmp1 - tmp1)",
        "int64_t(static_cast<std::make_unsigned_t<int64_t>>(tmp1) - static_cast<std::make_unsigned_t<int64_t>>(tmp1))",
    ],
)
def test_scalar_arithmetic_in_the_words_of_each_torch(factor: str) -> None:
    body = f"""
auto tmp0 = in_ptr0[static_cast<int64_t>(x0)];
auto tmp1 = in_ptr1[static_cast<int64_t>(x0)];
auto tmp2 = {factor};
auto tmp3 = c10::convert<float>(tmp2);
auto tmp4 = float(tmp0 * tmp3);
out_ptr0[static_cast<int64_t>(x0)] = tmp4;
"""
    kernel = sources.cpp("k", "const float* in_ptr0, const int64_t* in_ptr1, float* out_ptr0", body)
    reads = {"in_ptr0": values(1, INF), "in_ptr1": torch.tensor([1, 2])}
    proven = cause(kernel, reads, ("out_ptr0", values(0, NAN)), 1, dtypes={"in_ptr1": "int64"})
    assert proven is not None
    assert proven.sentences[0].startswith("inf * 0 is NaN: `auto tmp4 = float(tmp0 * tmp3)`")


def test_a_product_that_fits_float32_and_not_float16() -> None:
    reads = {"in_ptr0": values(2, 300)}
    dtypes = {"in_ptr0": "float16", "out_ptr0": "float16"}
    proven = cause(sources.TRITON_HALF, reads, ("out_ptr0", values(4, INF)), 1, Special.PLUS_INF, dtypes)
    assert proven is not None
    assert proven.sentences[0].startswith("300 * 300 = 90000, beyond the largest float16 (65504): `tl.store(")
    assert proven.operation == "mul"


def test_float8_e4m3fn_has_nan_for_what_is_too_large() -> None:
    dtypes = {"in_ptr0": "float32", "out_ptr0": "float8_e4m3fn"}
    proven = cause(sources.TRITON_HALF, {"in_ptr0": values(2, 30)}, ("out_ptr0", values(4, NAN)), 1, dtypes=dtypes)
    assert proven is not None
    assert proven.sentences[0].startswith(
        "30 * 30 = 900, beyond the largest float8_e4m3fn (448), which has no infinity: `tl.store("
    )


def test_a_sum_that_float16_cannot_hold() -> None:
    rows = torch.ones(3, 32, dtype=torch.float64)
    rows[1] = 10
    after = torch.tensor([9600.0, INF, 9600.0], dtype=torch.float64)
    dtypes = {"in_ptr0": "float16", "out_ptr0": "float16"}
    proven = cause(sources.CPP_SUM_HALF, {"in_ptr0": rows}, ("out_ptr0", after), 1, Special.PLUS_INF, dtypes)
    assert proven is not None
    assert proven.sentences[0].startswith("the sum of 32 elements is 96000, beyond the largest float16 (65504): `")
    assert proven.read["in_ptr0"].shape == (32,)


@pytest.mark.parametrize("kernel", [sources.TRITON_SOFTMAX, sources.TRITON_ONLINE_SOFTMAX], ids=lambda k: k.name)
def test_a_softmax_of_a_fully_masked_row(kernel: Kernel) -> None:
    rows = torch.randn(4, 8, generator=torch.Generator().manual_seed(0)).double()
    rows[2] = -INF
    after = torch.softmax(rows.float(), -1).double()
    proven = cause(kernel, {"in_ptr0": rows}, ("out_ptr2", after), 17)
    assert proven is not None
    assert proven.sentences[0].startswith(
        "all 8 elements of a row are -Inf, and softmax computes -Inf - -Inf from them: `"
    )
    assert proven.operation == "softmax"


def test_rows_that_are_all_masked_are_not_taken_for_one() -> None:
    rows = torch.full((40, 8), -INF, dtype=torch.float64)
    proven = cause(sources.TRITON_SOFTMAX, {"in_ptr0": rows}, ("out_ptr2", rows * NAN), 17)
    assert proven is not None
    assert proven.sentences[0].startswith("all 8 elements of a row are -Inf")
    assert proven.read["in_ptr0"].shape == (8,)


def test_a_softmax_of_a_row_with_an_infinity() -> None:
    rows = torch.zeros(2, 8, dtype=torch.float64)
    rows[0, 3] = INF
    proven = cause(sources.TRITON_SOFTMAX, {"in_ptr0": rows}, ("out_ptr2", torch.softmax(rows, -1)), 0)
    assert proven is not None
    assert proven.sentences[0].startswith("inf - inf is NaN: `")


def test_an_infinity_that_was_computed_in_the_kernel_is_explained_too() -> None:
    body = """
tmp0 = tl.load(in_ptr0 + (x0), xmask)
tmp1 = tl_math.exp(tmp0)
tmp2 = tmp1 - tmp1
tl.store(out_ptr0 + (x0), tmp2, xmask)
"""
    kernel = sources.triton("k", "in_ptr0, out_ptr0", body)
    proven = cause(kernel, {"in_ptr0": values(0, 100)}, ("out_ptr0", values(0, NAN)), 1)
    assert proven is not None
    first, second = proven.sentences
    assert first.startswith("inf - inf is NaN: `")
    assert second.startswith(
        "the +Inf in it comes from exp(100) = 2.68812e+43, beyond the largest float32 (3.40282e+38): `"
    )


def test_broadcast_inputs_and_reduced_ones() -> None:
    body = """
tmp0 = tl.load(in_ptr0 + (x0), xmask)
tmp1 = tl.load(in_ptr1 + (x1), xmask, eviction_policy='evict_last')
tmp2 = tmp0 / tmp1
tl.store(out_ptr0 + (x0), tmp2, xmask)
"""
    kernel = sources.triton("k", "in_ptr0, in_ptr1, out_ptr0", body)
    above, below = torch.tensor([[1.0, 0.0, 2.0], [3.0, 0.0, 4.0]]).double(), torch.tensor([2.0, 0.0, 4.0]).double()
    proven = cause(kernel, {"in_ptr0": above, "in_ptr1": below}, ("out_ptr0", above / below), 4)
    assert proven is not None
    assert proven.sentences[0].startswith("0 / 0 is NaN")


def test_elements_that_the_model_masks_are_not_explained() -> None:
    reads = {"in_ptr0": values(1, 2, NAN)}
    assert cause(sources.TRITON_PADDED, reads, ("out_ptr0", values(1, 2, NAN)), 2) is None


def test_scalar_arguments_of_a_kernel() -> None:
    body = """
tmp0 = tl.load(in_ptr0 + (x0), xmask) * alpha
tl.store(out_ptr0 + (x0), tmp0, xmask)
"""
    kernel = sources.triton("k", "in_ptr0, out_ptr0, alpha", body)
    proven = cause(kernel, {"in_ptr0": values(1, INF)}, ("out_ptr0", values(0, NAN)), 1, numbers={"alpha": 0.0})
    assert proven is not None
    assert proven.sentences[0].startswith("inf * 0 is NaN")


@pytest.mark.parametrize(
    ("dtype", "allowed", "refused"),
    [
        ("float32", 5e-4, 2e-3),
        ("float16", 9e-3, 2e-2),
        ("bfloat16", 4e-2, 8e-2),
        ("float8_e4m3fn", 0.15, 0.3),
        ("float8_e5m2", 0.25, 0.5),
    ],
)
def test_what_was_recorded_may_be_rounded_as_its_dtype_is(dtype: str, allowed: float, refused: float) -> None:
    special, wrong = (Special.NAN, NAN) if dtype == "float8_e4m3fn" else (Special.PLUS_INF, INF)
    for error, proven in ((allowed, True), (refused, False)):
        after = values(16 * (1 + error), wrong)
        found = cause(
            sources.TRITON_HALF,
            {"in_ptr0": values(4, 1e25)},
            ("out_ptr0", after),
            1,
            special,
            {"in_ptr0": "float32", "out_ptr0": dtype},
        )
        assert (found is not None) is proven


@pytest.mark.parametrize(("recorded", "proven"), [(448, True), (-448, True), (440, False), (0, False)])
def test_float8_e4m3fn_may_hold_its_largest_number_for_what_is_too_large(recorded: float, proven: bool) -> None:
    """Some conversions saturate, others give NaN."""
    dtypes = {"in_ptr0": "float32", "out_ptr0": "float8_e4m3fn"}
    reads = {"in_ptr0": values(2, 30, 30)}
    found = cause(sources.TRITON_HALF, reads, ("out_ptr0", values(4, NAN, recorded)), 1, dtypes=dtypes)
    assert (found is not None) is proven


def test_a_value_that_was_read_and_does_not_fit() -> None:
    body = "tmp0 = tl.load(in_ptr0 + (x0), xmask)\ntl.store(out_ptr0 + (x0), tmp0, xmask)"
    kernel = sources.triton("k", "in_ptr0, out_ptr0", body)
    dtypes = {"in_ptr0": "float32", "out_ptr0": "float16"}
    reads = {"in_ptr0": values(2, 70000)}
    proven = cause(kernel, reads, ("out_ptr0", values(2, INF)), 1, Special.PLUS_INF, dtypes)
    assert proven is not None
    assert proven.sentences[0].startswith("70000, beyond the largest float16 (65504): `tl.store(")


def test_a_sum_of_infinities() -> None:
    rows = torch.ones(2, 8, dtype=torch.float64)
    rows[1, :3] = values(INF, -INF, INF)
    dtypes = {"in_ptr0": "float16", "out_ptr0": "float16"}
    proven = cause(sources.CPP_SUM_HALF, {"in_ptr0": rows}, ("out_ptr0", rows.sum(1) * 300), 1, dtypes=dtypes)
    assert proven is not None
    assert proven.sentences[0].startswith("the sum of 8 elements, 2 +Inf and 1 -Inf among them: `")


def test_sums_none_of_which_is_finite() -> None:
    rows = torch.full((2, 32), 10.0, dtype=torch.float64)
    dtypes = {"in_ptr0": "float16", "out_ptr0": "float16"}
    proven = cause(sources.CPP_SUM_HALF, {"in_ptr0": rows}, ("out_ptr0", values(INF, INF)), 1, Special.PLUS_INF, dtypes)
    assert proven is not None
    assert proven.sentences[0].startswith("the sum of 32 elements is 96000, beyond the largest float16 (65504): `")


@pytest.mark.parametrize(
    ("name", "operands", "exact", "reason"),
    [
        ("log", (-0.5,), NAN, "is the logarithm of a negative number"),
        ("log2", (0.0,), -INF, "is the logarithm of zero"),
        ("log", (INF,), INF, ""),
        ("log1p", (-1.5,), NAN, "is the logarithm of a negative number"),
        ("log1p", (-1.0,), -INF, "is the logarithm of zero"),
        ("log1p", (-0.5,), NAN, "is NaN"),
        ("log1p", (INF,), INF, "is +Inf"),
        ("sqrt", (-0.5,), NAN, "is the square root of a negative number"),
        ("rsqrt", (-0.5,), NAN, "is the square root of a negative number"),
        ("rsqrt", (0.0,), INF, "is +Inf"),
        ("sqrt", (NAN,), NAN, "is NaN"),
        ("exp", (-0.5,), NAN, "is NaN"),
        ("pow", (-0.5, 0.5), NAN, "is a fractional power of a negative number"),
        ("pow", (-0.5, -INF), INF, "is +Inf"),
        ("pow", (0.0, NAN), NAN, "is NaN"),
        ("pow", (0.5, NAN), NAN, "is NaN"),
        ("mul", (-1.0, INF), -INF, "is -Inf"),
    ],
)
def test_reasons_for_which_an_operation_is_not_finite(
    name: str, operands: tuple[float, ...], exact: float, reason: str
) -> None:
    assert domain_error(name, operands, exact) == reason


def launch(base: Path, op: str, params: tuple[str, ...], dtype: torch.dtype, numbers: dict[str, float]) -> Launch:
    """A launch of an operator whose arguments have the names of its parameters."""
    one = torch.ones(1)
    recorder = Recorder(base)
    names = {name: name for name in (*params, "out")}
    recorder.launch("k", dict.fromkeys(params, one), {"out": one.to(dtype)}, params=names, numbers=numbers, op=op)
    (only,) = recorder.run().launches
    return only


def product_reason(
    base: Path,
    op: str,
    before: dict[str, list[object]],
    shape: tuple[int, ...],
    element: int,
    special: Special = Special.NAN,
    dtype: torch.dtype = torch.float16,
    **numbers: float,
) -> str:
    """The reason why an element of a result of that shape is not finite."""
    tensors = {name: torch.tensor(value, dtype=torch.float64) for name, value in before.items()}
    called = launch(base, op, tuple(before), dtype, numbers)
    result = called.argument("out")
    assert result is not None
    return causes.product_cause(called, result, LaunchTensors(tensors, {"out": torch.zeros(shape)}), element, special)


A, B = [[1, 1, 1], [1, INF, 2]], [[1, 1], [1, 0], [1, 3]]


@pytest.mark.parametrize(
    ("op", "before", "shape", "element", "text"),
    [
        ("aten.mm.out", {"self": A, "mat2": B}, (2, 2), 3, "term 1 of the sum of products is +Inf * 0"),
        ("aten.mm.out", {"self": A, "mat2": B}, (2, 2), 2, ""),
        ("aten.mm.out", {"self": A, "mat2": B}, (2, 2), 1, ""),
        ("aten.mv.out", {"self": A, "vec": [3, 0, 0]}, (2,), 1, "term 1 of the sum of products is +Inf * 0"),
        (
            "aten.bmm.out",
            {"self": [[[1, 1, 1]] * 2, A], "mat2": [[[1, 1]] * 3, B]},
            (2, 2, 2),
            7,
            "term 1 of the sum of products is +Inf * 0",
        ),
        ("aten.bmm.out", {"self": [[[1, 1, 1]] * 2, A], "mat2": [[[1, 1]] * 3, B]}, (2, 2, 2), 3, ""),
        (
            "aten.mm.out",
            {"self": [[-INF, 1]], "mat2": [[0], [1]]},
            (1, 1),
            0,
            "term 0 of the sum of products is -Inf * 0",
        ),
        ("aten.mm.out", {"self": [[NAN, 1]], "mat2": [[0], [1]]}, (1, 1), 0, ""),
        ("aten.mm.out", {"self": [[0, 1]], "mat2": [[NAN], [1]]}, (1, 1), 0, ""),
        (
            "aten.mm.out",
            {"self": [[INF, -INF]], "mat2": [[1], [1]]},
            (1, 1),
            0,
            "the sum of products adds +Inf and -Inf",
        ),
        ("aten.mm.out", {"self": [[INF, INF]], "mat2": [[1], [1]]}, (1, 1), 0, ""),
        ("aten.mm.out", {"self": [[-INF, -INF]], "mat2": [[1], [1]]}, (1, 1), 0, ""),
        ("aten.mm.out", {"self": [[INF]]}, (1, 1), 0, ""),
        ("aten.mm.out", {"self": [[INF, 1]], "mat2": [[0]]}, (1, 1), 0, ""),
        ("aten.mul.out", {"self": [[INF]], "mat2": [[0]]}, (1, 1), 0, ""),
        ("", {"self": [[INF]], "mat2": [[0]]}, (1, 1), 0, ""),
    ],
)
def test_products_that_are_nan(
    tmp_path: Path, op: str, before: dict[str, list[object]], shape: tuple[int, ...], element: int, text: str
) -> None:
    assert product_reason(tmp_path, op, before, shape, element) == text


@pytest.mark.parametrize(
    ("bias", "numbers", "special", "total"),
    [
        (20000, {}, Special.PLUS_INF, "60000"),
        (30000, {}, Special.PLUS_INF, "70000"),
        (0, {"alpha": 2.0}, Special.PLUS_INF, "80000"),
        (0, {"alpha": -2.0}, Special.MINUS_INF, "-80000"),
        (10000, {"beta": 2.0}, Special.PLUS_INF, "60000"),
        (10000, {"beta": 3.0}, Special.PLUS_INF, "70000"),
        (30000, {}, Special.NAN, "70000"),
        (INF, {}, Special.PLUS_INF, "inf"),
    ],
)
def test_sums_beyond_the_largest_number(
    tmp_path: Path, bias: float, numbers: dict[str, float], special: Special, total: str
) -> None:
    """Of one product, 200 * 200."""
    before = {"self": [0, bias], "mat1": [[200]], "mat2": [[0, 200]]}
    text = product_reason(tmp_path, "aten.addmm.out", before, (1, 2), 1, special, **numbers)  # type: ignore[arg-type]
    known = total != "60000" and special is not Special.NAN and total != "inf"
    assert text == (f"the sum of 1 product is {total} in float64, beyond the largest float16 (65504)" if known else "")


@pytest.mark.parametrize(
    ("op", "params", "shape", "element", "expected"),
    [
        ("aten.mm.out", ("self", "mat2"), (2, 2), 2, ["row 1 of self", "column 0 of mat2"]),
        ("aten.addmm.out", ("self", "mat1", "mat2"), (2, 2), 1, [None, "row 0 of mat1", "column 1 of mat2"]),
        ("aten.bmm.out", ("self", "mat2"), (2, 2, 2), 6, ["row 1 of self", "column 0 of mat2"]),
        ("aten.mv.out", ("self", "vec"), (2,), 1, ["row 1 of self", "vec"]),
        ("aten.mul.out", ("self", "mat2"), (2, 2), 2, [None, None]),
    ],
)
def test_factors_of_a_product(
    tmp_path: Path,
    op: str,
    params: tuple[str, ...],
    shape: tuple[int, ...],
    element: int,
    expected: list[str | None],
) -> None:
    called = launch(tmp_path, op, params, torch.float32, {})
    tensors = [torch.arange(8.0).reshape(2, 2, 2)[(0,) * (3 - len(shape))]] * len(params)
    tensors = [torch.ones(2, 2) if len(shape) == 1 else each for each in tensors]
    if "vec" in params:
        tensors[1] = torch.ones(2)
    found = [
        causes.factor(called, called.args[slot], called.args[slot].name, tensor, shape, element)
        for slot, tensor in enumerate(tensors)
    ]
    assert [None if each is None else each[0] for each in found] == expected
    if op == "aten.bmm.out":
        assert [each[1].tolist() for each in found if each is not None] == [[6, 7], [4, 6]]

from __future__ import annotations

from aoti_debug.compare.invariance.remedies import candidates
from tests.factories import site


def test_a_library_is_replaced_by_a_template() -> None:
    (only,) = candidates([site("addmm", op="aten.addmm.out")], "cpu")
    assert [change.key for change in only] == ["freezing", "max_autotune_gemm", "max_autotune_gemm_backends"]


def test_generated_kernels_and_products_are_changed_together() -> None:
    found = list(candidates([site("triton_red"), site("mm", op="aten.mm.out")], "cuda"))
    assert [[change.key for change in changes][-1] for changes in found] == ["batch_invariant", "split_reductions"]
    assert all(changes[0].key == "max_autotune_gemm" for changes in found)


def test_nothing_is_tried_for_other_operators() -> None:
    assert list(candidates([site("conv", op="aten.convolution.default")], "cpu")) == []

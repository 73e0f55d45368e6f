from __future__ import annotations

import runpy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from aoti_debug.base.errors import ToolchainError
from aoti_debug.compare.invariance import invariance as module
from aoti_debug.compare.invariance import remedies
from aoti_debug.compare.invariance.invariance import InvarianceOptions
from aoti_debug.compare.invariance.remedies import Remedy, candidates, try_remedies, untried
from aoti_debug.instrument.builder.options import BuildOptions
from aoti_debug.package.manifest import Certainty, Provenance
from tests.compare.invariance.made_runs import by_size, made
from tests.factories import site

CALLS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "addmm": (lambda b, x, w: torch.addmm(b, x, w) + x @ w, (torch.randn(5), torch.randn(2, 3), torch.randn(3, 5))),
    "convolution": (torch.nn.functional.conv1d, (torch.randn(2, 3, 8), torch.randn(4, 3, 3), torch.randn(4))),
    "_scaled_dot_product_flash_attention_for_cpu": (
        lambda q, k, v, rows: (
            torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v)[0],
            torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(rows.transpose(1, 2), k, v)[0],
        ),
        (*torch.randn(3, 2, 4, 5, 8).unbind(), torch.randn(2, 5, 4, 8)),
    ),
}


def _keys(remedy: Remedy) -> list[str]:
    return [change.key for change in remedy.settings]


def test_a_product_of_a_library_is_replaced_or_filled_up() -> None:
    template, padded, generated = candidates([site("addmm", op="aten.addmm.out")], "cpu")
    assert _keys(template) == ["freezing", "max_autotune_gemm", "max_autotune_gemm_backends"]
    assert padded.what == "matrix products with 11 more rows of zeros"
    assert generated.what == "matrix products as sums in generated kernels"


def test_generated_kernels_and_products_are_changed_together() -> None:
    found = list(candidates([site("mm", op="aten.mm.out"), site("triton_red")], "cuda"))
    assert [_keys(remedy)[-1] for remedy in found] == ["batch_invariant", "split_reductions", "numerics"] * 3
    assert [len(remedy.code) for remedy in found] == [0] * 3 + [3] * 3 + [1] * 3


def test_products_in_attention_and_beside_it_are_written_once() -> None:
    attention = site("sdpa", op="aten._scaled_dot_product_flash_attention_for_cpu.default")
    *_, both = candidates([attention, site("mm", op="aten.mm.out")], "cpu")
    assert len(both.code) == 2


def test_nothing_is_tried_for_other_operators() -> None:
    sites = [site("sort", op="aten.sort.default"), site("conv", op="aten.convolution.default")]
    assert untried(sites, "cpu") == ("aten.sort.default",)
    assert list(candidates(sites[:1], "cpu")) == []


def test_nothing_is_tried_for_a_kernel_of_the_user() -> None:
    nodes = ("triton_kernel_wrapper_mutation", "empty")
    own = site("mine_0", provenance=Provenance(Certainty.EXACT, post_grad_nodes=nodes))
    assert list(candidates([own], "cuda")) == []
    assert untried([own], "cuda") == ("mine_0",)


@pytest.mark.parametrize("operator", ["addmm", "convolution", "_scaled_dot_product_flash_attention_for_cpu"])
def test_decompositions_compute_what_the_operators_compute(operator: str, tmp_path: Path) -> None:
    from torch._inductor import decomposition
    from torch.fx.experimental.proxy_tensor import make_fx

    call, inputs = CALLS[operator]
    for number, remedy in enumerate(candidates([site("k", op=f"aten.{operator}.default")], "cpu")):
        if not remedy.code:
            continue
        name = remedy.write(tmp_path, number)
        before = dict(decomposition.decompositions)
        try:
            runpy.run_path(str(tmp_path / f"{name}.py"))
            changed = {op: f for op, f in decomposition.decompositions.items() if before.get(op) is not f}
        finally:
            decomposition.decompositions.clear()
            decomposition.decompositions.update(before)
        graph = make_fx(call, decomposition_table=changed, tracing_mode="symbolic")(*inputs)
        assert len(list(graph.graph.nodes)) > len(inputs) + 2
        torch.testing.assert_close(graph(*inputs), call(*inputs), check_stride=True)


def test_the_settings_reach_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[BuildOptions] = []

    def refuse(model: Path, options: BuildOptions, *_: object, **__: object) -> Path:
        built.append(options)
        raise ToolchainError("no compiler")

    monkeypatch.setattr(module, "instrumented", refuse)
    found = made(tmp_path, [by_size], operator="aten.mm.out")
    options = InvarianceOptions(model=Path("model.pt2"), inductor_configs={"cpp.threads": 1})
    trial, padded, _ = try_remedies(found, options)
    assert built[0].inductor_configs == {
        "cpp.threads": 1,
        "freezing": True,
        "max_autotune_gemm": True,
        "max_autotune_gemm_backends": "CPP",
    }
    assert (trial.works, trial.said, trial.price) == (False, "no compiler", None)
    assert trial.module is None
    assert built[1].inductor_configs == {"cpp.threads": 1}
    assert built[1].user_code.imports == ("keep_bits_2",)
    assert padded.lines == ("--import keep_bits_2",)
    assert padded.module == tmp_path / "remedies" / "keep_bits_2.py"
    assert padded.module.is_file()


def test_settings_that_this_torch_does_not_have_are_not_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Mapping[str, Any]] = []

    def refuse(model: Path, options: BuildOptions, *_: object, **__: object) -> Path:
        asked.append(options.inductor_configs)
        raise ToolchainError("no compiler")

    monkeypatch.setattr(module, "instrumented", refuse)
    monkeypatch.setattr(remedies, "has_setting", lambda key: key not in ("freezing", "cpp.simdlen"))
    found = made(tmp_path, [by_size], operator="aten.mm.out")
    assert [trial.remedy.what for trial in try_remedies(found, InvarianceOptions(model=Path("model.pt2")))] == [
        "matrix products with 11 more rows of zeros",
        "matrix products as sums in generated kernels",
    ]
    assert asked == [{}, {}]


@pytest.mark.parametrize("kind", ["efficient_attention", "flash_attention", "cudnn_attention"])
@pytest.mark.parametrize("by_rows", [True, False])
def test_attention_of_a_gpu_as_products(kind: str, tmp_path: Path, *, by_rows: bool) -> None:
    from torch._inductor import decomposition

    operator = getattr(torch.ops.aten, f"_scaled_dot_product_{kind}").default
    template, sums = candidates([site("sdpa", op=f"aten._scaled_dot_product_{kind}.default")], "cuda")
    assert _keys(template) == ["max_autotune_gemm", "max_autotune_gemm_backends"]
    assert len(sums.code) == 2
    before = dict(decomposition.decompositions)
    try:
        runpy.run_path(str(tmp_path / f"{template.write(tmp_path, 1)}.py"))
        as_products = decomposition.decompositions[operator]
    finally:
        decomposition.decompositions.clear()
        decomposition.decompositions.update(before)
    query, key = torch.randn(2, 4, 6, 8), torch.randn(2, 4, 10, 8)
    query = query.transpose(1, 2).contiguous().transpose(1, 2) if by_rows else query
    bias = () if kind == "flash_attention" else (None, False)
    given = as_products(query, key, key, *bias, scale=0.3)
    real = operator(*(x.to("meta") for x in (query, key, key)), *bias, scale=0.3)
    assert len(given) == len(real)
    assert given[0].stride() == real[0].stride()
    assert [x for x in given[1:] if x is not None] == [x for x in real[1:] if isinstance(x, int)]
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, key, scale=0.3)
    torch.testing.assert_close(given[0], expected)
    assert as_products(query, key, key, *bias, dropout_p=0.5) is NotImplemented

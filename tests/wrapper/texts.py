"""The golden wrappers as arguments of analyse()."""

from __future__ import annotations

from pathlib import Path

from aoti_debug import wrapper

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "wrapper"
NAMES = tuple(sorted(path.name.removesuffix(".cpp.txt") for path in GOLDEN.glob("*.cpp.txt")))

# What the operators of the golden wrappers are, as the lowering reports them.
OPERATORS = wrapper.shim_operators(
    f"aten.{name}"
    for name in """
        addmm.out mm.out bmm.out convolution.default _embedding_bag.default sort.stable topk.default nonzero.default
        scatter_reduce.two_out scatter.src_out scatter.value_out randint.low_out mul.Tensor view_as_real.default
        bernoulli_.float masked_select.default rand.default index.Tensor cat.default avg_pool2d.default abs.default
        _scaled_dot_product_flash_attention.default _scaled_dot_product_flash_attention_for_cpu.default
    """.split()
)
SCHEMAS = {
    "aotidebugtest.accumulate_.default": "aotidebugtest::accumulate_(Tensor(a0!) total, Tensor x, SymInt times) -> ()",
    "aotidebugtest.scale_all.default": "aotidebugtest::scale_all(Tensor[] xs, float factor, str mode) -> Tensor[]",
}


def text(name: str) -> str:
    return (GOLDEN / f"{name}.cpp.txt").read_text()


def analysis(name: str) -> wrapper.Analysis:
    """analyse() of a golden wrapper."""
    return wrapper.analyse(
        text(name),
        proxy=_optional(f"{name}.proxy.json"),
        provenance=_optional(f"{name}.provenance.json"),
        headers=[(GOLDEN / "shim.h.txt").read_text()],
        operators=OPERATORS,
        schemas=SCHEMAS,
    )


def _optional(file: str) -> str:
    path = GOLDEN / file
    return path.read_text() if path.exists() else ""

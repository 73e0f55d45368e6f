"""The golden wrappers as arguments of analyse()."""

from __future__ import annotations

from aoti_debug.instrument.wrapper.analysis import Analysis, analyse
from aoti_debug.instrument.wrapper.launches.c_functions import shim_operators
from tests.paths import GOLDEN

WRAPPERS = GOLDEN / "wrapper"
NAMES = tuple(sorted(path.name.removesuffix(".cpp.txt") for path in WRAPPERS.glob("*.cpp.txt")))

# Operators that have a C shim, as the lowering reports them.
OPERATORS = shim_operators(
    (
        "aten._embedding_bag.default",
        "aten._scaled_dot_product_flash_attention.default",
        "aten._scaled_dot_product_flash_attention_for_cpu.default",
        "aten.abs.default",
        "aten.addmm.out",
        "aten.avg_pool2d.default",
        "aten.bernoulli_.float",
        "aten.bmm.out",
        "aten.cat.default",
        "aten.convolution.default",
        "aten.index.Tensor",
        "aten.masked_select.default",
        "aten.mm.out",
        "aten.mul.Tensor",
        "aten.nonzero.default",
        "aten.rand.default",
        "aten.randint.low_out",
        "aten.scatter.src_out",
        "aten.scatter.value_out",
        "aten.scatter_reduce.two_out",
        "aten.sort.stable",
        "aten.topk.default",
        "aten.view_as_real.default",
    )
)
SCHEMAS = {
    "aotidebugtest.accumulate_.default": "aotidebugtest::accumulate_(Tensor(a0!) total, Tensor x, SymInt times) -> ()",
    "aotidebugtest.scale_all.default": "aotidebugtest::scale_all(Tensor[] xs, float factor, str mode) -> Tensor[]",
}


def text(name: str) -> str:
    return (WRAPPERS / f"{name}.cpp.txt").read_text()


def analysis(name: str) -> Analysis:
    """analyse() of a golden wrapper."""
    return analyse(
        text(name),
        proxy=_optional(f"{name}.proxy.json"),
        provenance=_optional(f"{name}.provenance.json"),
        headers=[(WRAPPERS / "shim.h.txt").read_text()],
        operators=OPERATORS,
        schemas=SCHEMAS,
    )


def _optional(file: str) -> str:
    path = WRAPPERS / file
    return path.read_text() if path.exists() else ""

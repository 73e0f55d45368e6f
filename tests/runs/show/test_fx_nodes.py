from __future__ import annotations

from dataclasses import replace

import pytest

from aoti_debug.package.manifest import Certainty, Kind, Provenance, Site
from aoti_debug.runs.show.fx_nodes import own_nodes
from tests.factories import make_manifest, site

ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"


def of(op: str, *nodes: str) -> Site:
    provenance = Provenance(Certainty.EXACT, post_grad_nodes=nodes)
    return site(f"k_{op}", op=op, kind=Kind.SHIM_OUT if op else Kind.CPP, provenance=provenance)


def own(*sites: Site) -> list[tuple[str, ...]]:
    numbered = make_manifest(*sites).sites
    return [own_nodes(one, numbered) for one in numbered]


def test_an_operator_and_the_kernel_that_prepares_its_arguments() -> None:
    kernel, operator = of("", ATTENTION, "view_6", "add"), of(f"aten.{ATTENTION}.default", ATTENTION, "view_6", "add")
    assert own(kernel, operator) == [("view_6", "add"), (ATTENTION,)]


@pytest.mark.parametrize(
    ("op", "node"),
    [("aten.addmm.out", "addmm_3"), ("aten.index_put_.default", "index_put"), ("mylib::op.default", "op_1")],
)
def test_nodes_that_are_named_after_an_operator(op: str, node: str) -> None:
    assert own(of(op, "view", node, f"{node}_x")) == [(node,)]


def test_all_nodes_where_none_can_be_told_apart() -> None:
    assert own(of("aten.mm.out", "view", "add"), of("", "view", "add"), of("")) == [
        ("view", "add"),
        ("view", "add"),
        (),
    ]
    alone = of("", "mm")
    assert own(of("aten.mm.out", "mm"), replace(alone, kernel="prepares")) == [("mm",), ("mm",)]

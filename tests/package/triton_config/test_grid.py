"""Block sizes from the C++ of a grid: what the installed torch writes for a configuration is read back."""

from __future__ import annotations

from typing import Any

import pytest

from aoti_debug.package.triton_config import block_sizes
from tests.compiled_triton import written


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("Grid1D", {"XBLOCK": 128}),
        ("Grid1D", {"XBLOCK": 1}),
        ("Grid2D", {"XBLOCK": 32, "YBLOCK": 1}),
        ("Grid3D", {"XBLOCK": 1, "YBLOCK": 16, "ZBLOCK": 4}),
        ("BatchMatmulGrid3D", {"XBLOCK": 64, "YBLOCK": 16, "ZBLOCK": 4}),
        ("Grid2DWithYZOverflow", {"XBLOCK": 32, "YBLOCK": 8}),
        ("Grid2DWithYZOverflow", {"XBLOCK": 1, "YBLOCK": 1}),
        ("CooperativeReductionGrid", {"XBLOCK": 2, "RSPLIT": 16}),
    ],
)
def test_every_block_that_the_grid_depends_on(kind: str, config: dict[str, int]) -> None:
    meta = {"grid_type": kind}
    assert block_sizes(kind, written(meta, config), meta) == {name: (size,) for name, size in config.items()}


def test_a_split_scan_has_the_block_of_its_reduction() -> None:
    meta = {"grid_type": "SplitScanGrid"}
    sizes = written(meta, {"R0_BLOCK": 512})
    assert block_sizes("SplitScanGrid", sizes, meta) == {"R0_BLOCK": (512,), "XBLOCK": (1,)}


def test_a_mixed_reduction_has_the_size_of_its_splits_only() -> None:
    meta = {"grid_type": "MixOrderReductionGrid"}
    sizes = written(meta, {"RSPLIT_SIZE": 64, "XBLOCK": 2})
    assert block_sizes("MixOrderReductionGrid", sizes, meta) == {"RSPLIT_SIZE": (64,)}


def combo(kind: str, sizes: list[tuple[int | None, bool]], rows: int | None = None) -> dict[str, Any]:
    meta: dict[str, Any] = {"num_kernels": len(sizes), "default_config": None, "min_blocks": None}
    for i, (size, no_x) in enumerate(sizes):
        meta |= {f"xnumel_{i}": size, f"no_x_dim_{i}": no_x}
        if rows:
            meta[f"ynumel_{i}"] = rows
    return {"grid_type": kind, "combo_grid_meta": meta}


@pytest.mark.parametrize("kind", ["SequentialComboKernelGrid", "RoundRobinComboKernelGrid"])
@pytest.mark.parametrize(
    ("sizes", "rows"),
    [([(1000, False), (5000, False)], None), ([(None, False), (300, True), (4096, False)], None), ([(999, False)], 77)],
)
def test_block_sizes_of_combo_kernels(kind: str, sizes: list[tuple[int | None, bool]], rows: int | None) -> None:
    meta = combo(kind, sizes, rows)
    config = {"XBLOCK": 64, **({"YBLOCK": 16} if rows else {})}
    sizes_by_name = block_sizes(kind, written(meta, config), meta)
    assert sizes_by_name == {name: (size,) for name, size in config.items()}


def test_a_combined_grid_that_several_blocks_give_has_them_all() -> None:
    meta = combo("SequentialComboKernelGrid", [(5, False), (7, False)])
    assert block_sizes("SequentialComboKernelGrid", written(meta, {"XBLOCK": 64}), meta)["XBLOCK"] == tuple(
        1 << i for i in range(3, 13)
    )


def test_a_least_number_of_blocks_hides_what_is_below_it() -> None:
    meta = combo("SequentialComboKernelGrid", [(None, False), (64, False)])
    meta["combo_grid_meta"]["min_blocks"] = 4
    assert block_sizes("SequentialComboKernelGrid", written(meta, {"XBLOCK": 32}), meta) == {"XBLOCK": (32,)}


@pytest.mark.parametrize(
    "text", ["", "17", "_grid_0", "((ynumel + (8 - 1)) / (8))", "((xnumel + (8 - 1)) / (16))", "xnumel / 8"]
)
def test_other_expressions_give_no_block_sizes(text: str) -> None:
    assert block_sizes("Grid1D", (("grid_0", text),), {}) == {}
    assert block_sizes("GridOfTomorrow", (("grid_0", "xnumel"),), {}) == {}


@pytest.mark.parametrize(
    "described",
    [
        "x",
        None,
        {},
        {"num_kernels": "n", "xnumel_0": 5},
        {"num_kernels": 10**12, "xnumel_0": 5},
        {"num_kernels": 1, "xnumel_0": 5, "min_blocks": "n"},
    ],
)
def test_combo_kernels_with_other_metadata_give_no_block_sizes(described: object) -> None:
    meta = {"combo_grid_meta": described}
    assert block_sizes("SequentialComboKernelGrid", (("grid_0", "5"), ("y_grid_raw_", "5")), meta) == {}


def test_a_block_size_of_zero_is_ignored() -> None:
    assert block_sizes("Grid1D", (("grid_0", "((xnumel + (0 - 1)) / (0))"),), {}) == {}

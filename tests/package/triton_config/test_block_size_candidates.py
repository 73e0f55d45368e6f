"""Blocks that no grid depends on: what the installed torch would try is among them."""

from __future__ import annotations

import itertools

import pytest
from torch._inductor.runtime import triton_heuristics
from torch._inductor.runtime.hints import DeviceProperties, ReductionHint

from aoti_debug.package.triton_config import LARGEST, MAX_CONFIGS, Heuristic, likely_block_sizes

HOPPER = DeviceProperties(
    type="cuda",
    index=0,
    multi_processor_count=132,
    cc=90,
    major=9,
    regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    warp_size=32,
)


def heuristic(name: str, x: int, r: int, hint: str) -> Heuristic:
    return Heuristic(name, {"size_hints": {"x": x, "r0_": r}, "reduction_hint": f"ReductionHint.{hint}"}, ())


@pytest.mark.parametrize("hint", list(ReductionHint), ids=lambda hint: hint.name)
@pytest.mark.parametrize("tune", [False, True])
def test_candidates_include_inductors_configurations(hint: ReductionHint, tune: bool) -> None:
    likely = tried = 0
    for x, r, loads in itertools.product((1, 4, 64, 1024, 16384, 262144), (64, 1024, 4096, 65536), (1, 6)):
        configs = triton_heuristics.reduction(
            {"x": x, "r0_": r},
            reduction_hint=hint,
            triton_meta={"device": HOPPER, "signature": {}},
            inductor_meta={"num_load": loads, "num_reduction": 1, "max_autotune": tune},
            return_configs=True,
        )
        for config in configs:
            candidates = likely_block_sizes(
                heuristic("reduction", x, r, hint.name), config.num_warps, {"XBLOCK": config.kwargs["XBLOCK"]}
            )
            assert config.kwargs["R0_BLOCK"] in candidates["R0_BLOCK"][:MAX_CONFIGS]
            assert config.num_stages == 1
            likely += candidates["R0_BLOCK"].index(config.kwargs["R0_BLOCK"]) <= 2
            tried += 1
    assert likely > tried / 2


def test_blocks_are_powers_of_two_within_the_expected_size() -> None:
    assert likely_block_sizes(heuristic("reduction", 4, 8192, "INNER"), 8, {"XBLOCK": 1})["R0_BLOCK"] == (
        *(1024, 512, 2048, 256, LARGEST, 128, 64, 32, 16, 8, 4, 2, 1),
    )
    assert likely_block_sizes(heuristic("reduction", 4, 2, "INNER"), 8, {})["R0_BLOCK"] == (2, 1)


@pytest.mark.parametrize("name", ["pointwise", "persistent_reduction", "split_scan", "user_autotune"])
def test_kernels_without_a_reduction_loop_have_no_candidates(name: str) -> None:
    assert likely_block_sizes(heuristic(name, 4, 64, "INNER"), 4, {"XBLOCK": 1}) == {}

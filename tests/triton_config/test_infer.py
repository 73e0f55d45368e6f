"""Configurations that a package does not record: from real wrappers, and against what a build from the exported program
recorded on an H100."""

from __future__ import annotations

import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import archives
import pytest
from compiled_triton import as_compiled
from paths import GOLDEN, RECORDED

from aoti_debug import manifest
from aoti_debug.manifest import Kernel, Origin
from aoti_debug.triton_config.infer import MOST, decisive, recovered
from aoti_debug.wrapper.kernels import functions, triton_kernels

RUNS = ("mixed", "reductions", "two_specialisations")
DERIVED, CHOSEN = Origin.DERIVED, Origin.CHOSEN


def of_wrapper(name: str) -> dict[str, Kernel]:
    text = (GOLDEN / "wrapper" / f"{name}.cpp.txt").read_text()
    return {kernel.name: recovered(kernel) for kernel in triton_kernels(functions(text).values())}


def origins(kernel: Kernel) -> dict[str, Origin]:
    return {name: kernel.origin(name) for name, _ in kernel.config if name != "num_warps"}


def recorded_kernels(name: str, folder: Path) -> list[Kernel]:
    with tarfile.open(RECORDED / f"{name}.tar.xz") as archive:
        archives.extract(archive, folder)
    described = manifest.from_json((folder / "manifest.json").read_text())
    return [kernel for kernel in described.kernels if kernel.language == "triton"]


def test_a_real_wrapper() -> None:
    found = list(of_wrapper("cuda").values())
    assert [dict(kernel.config) for kernel in found] == [
        {"XBLOCK": "1", "num_stages": "1", "num_warps": "1"},
        {"XBLOCK": "128", "num_stages": "1", "num_warps": "4"},
        {"XBLOCK": "8", "num_stages": "1", "num_warps": "2"},
        {"XBLOCK": "1", "R0_BLOCK": "2048", "num_stages": "1", "num_warps": "16"},
        {"num_stages": "3", "num_warps": "4"},
        {"YBLOCK": "4", "XBLOCK": "32", "num_stages": "1", "num_warps": "4"},
    ]
    assert origins(found[1]) == {"XBLOCK": DERIVED, "num_stages": CHOSEN}
    assert origins(found[3]) == {"XBLOCK": DERIVED, "R0_BLOCK": CHOSEN, "num_stages": CHOSEN}
    assert origins(found[5]) == {"YBLOCK": DERIVED, "XBLOCK": DERIVED, "num_stages": CHOSEN}


def test_what_was_chosen_has_others_that_fit_as_well() -> None:
    pointwise, looped = (of_wrapper("cuda")[f"triton_{name}"] for name in ("poi_fused_gt_sin_sum_1", "red_fused_sum_5"))
    assert pointwise.other_configs == ()
    blocks = [int(dict(other)["R0_BLOCK"]) for other in looped.other_configs]
    assert blocks[:3] == [1024, 4096, 512]
    assert len(blocks) == MOST - 1
    assert {(dict(other)["XBLOCK"], dict(other)["num_warps"]) for other in looped.other_configs} == {("1", "16")}


@pytest.mark.parametrize("name", ["cuda_forms"])
def test_what_the_source_does_not_tell_stays_unknown(name: str) -> None:
    assert {kernel.config for kernel in of_wrapper(name).values()} == {()}


@pytest.mark.parametrize("name", RUNS)
def test_what_was_recorded_is_recovered(name: str, tmp_path: Path) -> None:
    for kernel in recorded_kernels(name, tmp_path):
        found = recovered(as_compiled(kernel))
        possible = [dict(config) for config in (found.config, *found.other_configs)]
        assert dict(kernel.config) in possible, kernel.name
        exact = {n: v for n, v in kernel.config if n == "num_warps" or found.origin(n) is not CHOSEN}
        assert exact.items() <= dict(found.config).items(), kernel.name
        assert "XBLOCK" not in dict(kernel.config) or found.origin("XBLOCK") is DERIVED
        assert {n: v for n, v in kernel.config if n != "num_stages"} == {
            n: v for n, v in found.config if n != "num_stages"
        }


def described(decorator: str, warps: int, grid: tuple[tuple[str, str], ...] = (), names: str = "BLOCK") -> Kernel:
    """A kernel whose parameters are compiled in, with this decorator."""
    kinds = dict.fromkeys(names.split(", "), "constexpr")
    source = f"@triton_heuristics.{decorator.replace('META', repr({'signature': kinds, 'constants': {}}))}\n"
    source += f"@triton.jit\ndef k({names}):\n    pass\n"
    return Kernel("k", "triton", source, "", num_warps=warps, grid=grid)


TUNED = """user_autotune(
    configs=[{'BLOCK': 64, 'num_warps': 1, 'num_stages': 3}, {'BLOCK': 128, 'num_warps': 2, 'num_stages': 4},
             {'BLOCK': 256, 'num_warps': 2, 'num_stages': 4}],
    inductor_meta={'grid_type': 'PrecomputedGrid', 'precomputed_grids': [
        {'config': {'BLOCK': 64, 'num_warps': 1, 'num_stages': 3}, 'cpp': ['32L', '1L', '1L']},
        {'config': {'BLOCK': 128, 'num_warps': 2, 'num_stages': 4}, 'cpp': ['16L', '1L', '1L']},
        {'config': {'BLOCK': 256, 'num_warps': 2, 'num_stages': 4}, 'cpp': ['8L', '1L', '1L']}]},
    triton_meta=META)"""


def grid(x: str) -> tuple[tuple[str, str], ...]:
    return (("grid_0", x), ("grid_1", "1L"), ("grid_2", "1L"))


@pytest.mark.parametrize(
    ("warps", "x", "block"), [(1, "32L", "64"), (2, "16L", "128"), (2, "8L", "256"), (2, "32L", None), (4, "8L", None)]
)
def test_of_a_users_configurations_the_one_with_this_grid_and_these_warps(
    warps: int, x: str, block: str | None
) -> None:
    found = recovered(described(TUNED, warps, grid(x)))
    assert dict(found.config).get("BLOCK") == block
    assert found.other_configs == ()
    assert block is None or origins(found) == {"BLOCK": DERIVED, "num_stages": DERIVED}


def test_of_two_that_fit_one_is_chosen() -> None:
    two = TUNED.replace("['16L', '1L', '1L']", "['8L', '1L', '1L']")
    found = recovered(described(two, 2, grid("8L")))
    assert (dict(found.config)["BLOCK"], [dict(other)["BLOCK"] for other in found.other_configs]) == ("128", ["256"])
    assert origins(found) == {"BLOCK": CHOSEN, "num_stages": DERIVED}
    assert decisive(found) == ("BLOCK",)


def test_what_a_users_kernel_computes_may_depend_on_no_other_value() -> None:
    stages = "user_autotune(configs=[{'BLOCK': 64, 'num_warps': 4}], triton_meta=META)"
    found = recovered(described(stages, 4))
    assert origins(found) == {"BLOCK": Origin.RECORDED, "num_stages": CHOSEN}
    assert decisive(found) == ()
    assert decisive(recovered(described(TUNED, 2, grid("8L")))) == ()


def test_what_inductors_kernels_compute_depends_on_no_choice() -> None:
    looped = of_wrapper("cuda")["triton_red_fused_sum_5"]
    assert looped.origin("R0_BLOCK") is CHOSEN
    assert decisive(looped) == ()


def test_values_are_those_of_the_source() -> None:
    one = "user_autotune(configs=[{'PAD': -1, 'TILE': (16, -2), 'num_warps': 4, 'num_stages': 3}], triton_meta=META)"
    found = recovered(described(one, 4, names="PAD, TILE"))
    assert dict(found.config) == {"PAD": "-1", "TILE": "(16, -2)", "num_stages": "3", "num_warps": "4"}
    assert found.inferred == ()


@pytest.mark.parametrize(
    "decorator",
    [
        "user_autotune(configs=[{'BLOCK': 64, 'num_warps': 8, 'num_stages': 2}], triton_meta=META)",
        "fixed_config(config={'BLOCK': 64, 'num_warps': 8, 'num_stages': 2}, triton_meta=META)",
    ],
)
def test_the_only_configuration_of_a_source_is_a_record(decorator: str) -> None:
    found = recovered(described(decorator, 8))
    assert dict(found.config) == {"BLOCK": "64", "num_warps": "8", "num_stages": "2"}
    assert (found.inferred, found.other_configs) == ((), ())
    assert recovered(described(decorator, 4)).config == ()


def test_a_template_says_its_stages() -> None:
    kernel = described("template(num_stages=5, num_warps=8, triton_meta=META)", 8, names="x")
    kernel = replace(kernel, source=kernel.source.replace("'x': 'constexpr'", "'x': '*fp32'"))
    found = recovered(kernel)
    assert (dict(found.config), found.inferred) == ({"num_stages": "5", "num_warps": "8"}, ())


def heuristic(name: str, kind: str, hints: Mapping[str, int], hint: str = "INNER", **meta: Any) -> str:
    inductor = {"grid_type": kind, **meta}
    return (
        f"{name}(size_hints={dict(hints)}, reduction_hint=ReductionHint.{hint}, "
        f"inductor_meta={inductor}, triton_meta=META)"
    )


def test_a_cooperative_reduction() -> None:
    text = heuristic("cooperative_reduction", "CooperativeReductionGrid", {"x": 4, "r0_": 65536})
    sizes = (("grid_0", "32"), ("grid_1", "((xnumel + (2 - 1)) / (2))"), ("grid_2", "1"))
    found = recovered(described(text, 8, sizes, "XBLOCK, R0_BLOCK, RSPLIT"))
    assert dict(found.config) == {
        "XBLOCK": "2",
        "R0_BLOCK": "1024",
        "RSPLIT": "32",
        "num_stages": "1",
        "num_warps": "8",
    }
    assert origins(found) == {"XBLOCK": DERIVED, "R0_BLOCK": CHOSEN, "RSPLIT": DERIVED, "num_stages": CHOSEN}


def test_a_reduction_along_both_axes_reads_a_whole_number_of_blocks() -> None:
    text = heuristic("persistent_reduction", "MixOrderReductionGrid", {"x": 4096, "r0_": 1024}, RSPLIT_SIZE=64)
    names = "XBLOCK, RSPLIT_SIZE, NUM_STAGES"
    found = recovered(described(text, 4, (("grid_0", "((xnumel + (64 - 1)) / (64))"),), names))
    configs = [dict(config) for config in (found.config, *found.other_configs)]
    assert configs[0] == {"XBLOCK": "2", "RSPLIT_SIZE": "64", "NUM_STAGES": "1", "num_stages": "1", "num_warps": "4"}
    assert all(64 % int(config["XBLOCK"]) == 0 for config in configs)
    assert found.origin("RSPLIT_SIZE") is DERIVED


def test_an_outer_reduction_counts_the_elements_of_a_program() -> None:
    text = heuristic("reduction", "Grid1D", {"x": 4096, "r0_": 1024}, "OUTER")
    found = recovered(described(text, 4, (("grid_0", "((xnumel + (64 - 1)) / (64))"),), "XBLOCK, R0_BLOCK"))
    assert dict(found.config)["R0_BLOCK"] == "8"


def test_a_tiled_reduction_has_two_blocks_within_its_sizes() -> None:
    text = heuristic("reduction", "Grid1D", {"x": 16, "r0_": 64, "r1_": 4}, "DEFAULT")
    found = recovered(described(text, 4, (("grid_0", "xnumel"),), "XBLOCK, R0_BLOCK, R1_BLOCK"))
    assert {n: v for n, v in found.config if n.startswith("R")} == {"R0_BLOCK": "16", "R1_BLOCK": "4"}


@pytest.mark.parametrize(
    "kernel",
    [
        described(heuristic("pointwise", "Grid1D", {"x": 16}), 4, (("grid_0", "xnumel / 7"),), "XBLOCK"),
        described(heuristic("pointwise", "Grid1D", {"x": 16}), 0, (("grid_0", "xnumel"),), "XBLOCK"),
        described(heuristic("pointwise", "Grid1D", {"x": 16}), 4, (("grid_0", "xnumel"),), "XBLOCK, LUCK"),
        Kernel("k", "triton", "", "", num_warps=4),
        *(
            described(f"user_autotune({configs}, triton_meta=META)", 4)
            for configs in (
                "configs=[{'BLOCK': tl.float32, 'num_warps': 4, 'num_stages': 3}]",
                "configs=[{'BLOCK': (1, tl.float32), 'num_warps': 4, 'num_stages': 3}]",
                "configs=[{'BLOCK': 1, 'num_warps': 4, 'num_stages': 3}, {'BLOCK': 2, **more}]",
                "configs=[{'BLOCK': 1, 'num_warps': 4, 'num_stages': None}]",
                "configs=[{'BLOCK': 1, KEY: 2, 'num_warps': 4, 'num_stages': 3}]",
                "configs=CONFIGS",
                "configs=5",
                "configs=[{'BLOCK': 1, 'num_warps': 4, 'num_stages': 3}, *more]",
            )
        ),
        described("user_autotune(triton_meta={'signature': dict(a=1)})", 4),
        described(heuristic("pointwise", "SequentialComboKernelGrid", {}, combo_grid_meta="x"), 4, names="XBLOCK"),
        described("reduction(size_hints={'r0_': n}, triton_meta=META)", 4, names="R0_BLOCK"),
    ],
)
def test_nothing_is_claimed_where_a_value_cannot_be_found(kernel: Kernel) -> None:
    assert recovered(kernel) is kernel


@pytest.mark.parametrize("grids", ["5", "'x'", "[1, 'x']", "GRIDS"])
def test_grids_that_are_not_listed_rule_nothing_out(grids: str) -> None:
    text = f"""user_autotune(configs=[{{'BLOCK': 64, 'num_warps': 4, 'num_stages': 2}}], triton_meta=META,
        inductor_meta={{'precomputed_grids': {grids}}})"""
    assert dict(recovered(described(text, 4)).config)["BLOCK"] == "64"

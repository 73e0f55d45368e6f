"""What the decorator of a Triton kernel's source says."""

from __future__ import annotations

import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aoti_debug.instrument.wrapper.launches.kernels import functions, triton_kernels
from aoti_debug.package import manifest
from aoti_debug.package.manifest import ConfigOrigin, Kernel
from aoti_debug.package.triton_config import (
    MAX_CONFIGS,
    infer_config,
    is_literal,
    read_heuristic,
    result_affecting_parameters,
)
from tests import archives
from tests.compiled_triton import as_compiled
from tests.paths import GOLDEN, RECORDED

SOURCE = """
import triton
import triton.language as tl

@triton.jit
def helper(x):
    return x

@triton_heuristics.reduction(
    size_hints={'x': 4, 'r0_': 8192},
    reduction_hint=ReductionHint.INNER,
    filename=__file__,
    triton_meta={'signature': {'in_ptr0': '*fp32', 'xnumel': 'constexpr', 'KIND': 'constexpr', 'R0_BLOCK': 'constexpr'},
        'device': DeviceProperties(type='cuda', cc=90), 'constants': {'xnumel': 1, 'KIND': triton.language.float32},
        'configs': [{(0,): [['tt.divisibility', 16]]}]},
    inductor_meta={'grid_type': 'Grid1D', 'autotune_hints': set(), 'min_blocks': None, 'low': -1},
)
@triton.jit
def k(in_ptr0, xnumel, KIND, XBLOCK : tl.constexpr, R0_BLOCK : tl.constexpr):
    pass
"""


def test_a_complete_heuristic() -> None:
    heuristic = read_heuristic(SOURCE)
    assert heuristic is not None
    assert (heuristic.name, heuristic.grid_type) == ("reduction", "Grid1D")
    assert heuristic.size_hints == {"x": 4, "r0_": 8192}
    assert heuristic.arguments["reduction_hint"] == "ReductionHint.INNER"
    assert heuristic.inductor_meta["autotune_hints"] == set()
    assert heuristic.inductor_meta["min_blocks"] is None
    assert heuristic.inductor_meta["low"] == -1
    assert heuristic.arguments["triton_meta"]["constants"] == {"xnumel": 1, "KIND": "triton.language.float32"}


def test_parameters_are_those_without_a_value() -> None:
    heuristic = read_heuristic(SOURCE)
    assert heuristic is not None
    assert heuristic.parameters == ("R0_BLOCK", "XBLOCK")


@pytest.mark.parametrize("source", ["", "def k(:", "@triton.jit\ndef k(x):\n    pass\n"])
def test_a_source_without_a_heuristic(source: str) -> None:
    assert read_heuristic(source) is None


def test_missing_arguments_are_empty() -> None:
    heuristic = read_heuristic(
        "@triton_heuristics.pointwise(size_hints=hints)\ndef k(x, XBLOCK: tl.constexpr):\n    pass\n"
    )
    assert heuristic is not None
    assert (heuristic.size_hints, heuristic.inductor_meta, heuristic.grid_type) == ({}, {}, "")
    assert heuristic.parameters == ("XBLOCK",)


@pytest.mark.parametrize(
    ("text", "value", "literal"),
    [
        ("-1", -1, True),
        ("(1, -2)", (1, -2), True),
        ("'tl.float32'", "tl.float32", True),
        ("tl.float32", "tl.float32", False),
        ("(16, tl.float32)", (16, "tl.float32"), False),
        ("[{'A': [x]}]", [{"A": ["x"]}], False),
        ("{A: 1}", {"A": 1}, False),
        ("{'A': 1, **more}", "{'A': 1, **more}", False),
        ("[*more]", ["*more"], False),
    ],
)
def test_literals_are_distinguished_from_sources(text: str, value: object, literal: bool) -> None:
    heuristic = read_heuristic(f"@triton_heuristics.pointwise(given={text})\ndef k():\n    pass\n")
    assert heuristic is not None
    assert heuristic.arguments["given"] == value
    assert is_literal(heuristic.arguments["given"]) is literal


@pytest.mark.parametrize("meta", ["{'signature': dict(a=1)}", "{'signature': {'a': 'i32'}, 'constants': dict(a=1)}"])
def test_a_heuristic_without_listed_parameters_is_unknown(meta: str) -> None:
    assert read_heuristic(f"@triton_heuristics.pointwise(triton_meta={meta})\ndef k(a):\n    pass\n") is None


def test_size_hints_that_are_not_numbers_are_left_out() -> None:
    heuristic = read_heuristic("@triton_heuristics.reduction(size_hints={'x': 4, 'r0_': n})\ndef k():\n    pass\n")
    assert heuristic is not None
    assert heuristic.size_hints == {"x": 4}


RUNS = ("mixed", "reductions", "two_specialisations")
DERIVED, CHOSEN = ConfigOrigin.DERIVED, ConfigOrigin.CHOSEN


def of_wrapper(name: str) -> dict[str, Kernel]:
    text = (GOLDEN / "wrapper" / f"{name}.cpp.txt").read_text()
    return {kernel.name: infer_config(kernel) for kernel in triton_kernels(functions(text).values())}


def origins(kernel: Kernel) -> dict[str, ConfigOrigin]:
    return {name: kernel.origin(name) for name, _ in kernel.config if name != "num_warps"}


def recorded_kernels(name: str, folder: Path) -> list[Kernel]:
    with tarfile.open(RECORDED / f"{name}.tar.xz") as archive:
        archives.extract(archive, folder)
    described = manifest.from_json((folder / "manifest.json").read_text())
    return [kernel for kernel in described.kernels if kernel.language == "triton"]


def test_a_real_wrapper() -> None:
    inferred = list(of_wrapper("cuda").values())
    assert [dict(kernel.config) for kernel in inferred] == [
        {"XBLOCK": "1", "num_stages": "1", "num_warps": "1"},
        {"XBLOCK": "128", "num_stages": "1", "num_warps": "4"},
        {"XBLOCK": "8", "num_stages": "1", "num_warps": "2"},
        {"XBLOCK": "1", "R0_BLOCK": "2048", "num_stages": "1", "num_warps": "16"},
        {"num_stages": "3", "num_warps": "4"},
        {"YBLOCK": "4", "XBLOCK": "32", "num_stages": "1", "num_warps": "4"},
    ]
    assert origins(inferred[1]) == {"XBLOCK": DERIVED, "num_stages": CHOSEN}
    assert origins(inferred[3]) == {"XBLOCK": DERIVED, "R0_BLOCK": CHOSEN, "num_stages": CHOSEN}
    assert origins(inferred[5]) == {"YBLOCK": DERIVED, "XBLOCK": DERIVED, "num_stages": CHOSEN}


def test_a_chosen_value_has_alternatives() -> None:
    pointwise, looped = (of_wrapper("cuda")[f"triton_{name}"] for name in ("poi_fused_gt_sin_sum_1", "red_fused_sum_5"))
    assert pointwise.other_configs == ()
    blocks = [int(dict(other)["R0_BLOCK"]) for other in looped.other_configs]
    assert blocks[:3] == [1024, 4096, 512]
    assert len(blocks) == MAX_CONFIGS - 1
    assert {(dict(other)["XBLOCK"], dict(other)["num_warps"]) for other in looped.other_configs} == {("1", "16")}


@pytest.mark.parametrize("name", ["cuda_forms"])
def test_configurations_that_the_source_does_not_determine(name: str) -> None:
    assert {kernel.config for kernel in of_wrapper(name).values()} == {()}


@pytest.mark.parametrize("name", RUNS)
def test_recorded_configurations_are_inferred(name: str, tmp_path: Path) -> None:
    for kernel in recorded_kernels(name, tmp_path):
        inferred = infer_config(as_compiled(kernel))
        possible = [dict(config) for config in (inferred.config, *inferred.other_configs)]
        assert dict(kernel.config) in possible, kernel.name
        exact = {n: v for n, v in kernel.config if n == "num_warps" or inferred.origin(n) is not CHOSEN}
        assert exact.items() <= dict(inferred.config).items(), kernel.name
        assert "XBLOCK" not in dict(kernel.config) or inferred.origin("XBLOCK") is DERIVED
        assert {n: v for n, v in kernel.config if n != "num_stages"} == {
            n: v for n, v in inferred.config if n != "num_stages"
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
def test_the_listed_configuration_with_the_grid_and_warps_is_taken(warps: int, x: str, block: str | None) -> None:
    inferred = infer_config(described(TUNED, warps, grid(x)))
    assert dict(inferred.config).get("BLOCK") == block
    assert inferred.other_configs == ()
    assert block is None or origins(inferred) == {"BLOCK": DERIVED, "num_stages": DERIVED}


def test_one_of_two_fitting_configurations_is_chosen() -> None:
    two = TUNED.replace("['16L', '1L', '1L']", "['8L', '1L', '1L']")
    inferred = infer_config(described(two, 2, grid("8L")))
    assert (dict(inferred.config)["BLOCK"], [dict(other)["BLOCK"] for other in inferred.other_configs]) == (
        "128",
        ["256"],
    )
    assert origins(inferred) == {"BLOCK": CHOSEN, "num_stages": DERIVED}
    assert result_affecting_parameters(inferred) == ("BLOCK",)


def test_stages_do_not_affect_the_results_of_a_user_kernel() -> None:
    stages = "user_autotune(configs=[{'BLOCK': 64, 'num_warps': 4}], triton_meta=META)"
    inferred = infer_config(described(stages, 4))
    assert origins(inferred) == {"BLOCK": ConfigOrigin.RECORDED, "num_stages": CHOSEN}
    assert result_affecting_parameters(inferred) == ()
    assert result_affecting_parameters(infer_config(described(TUNED, 2, grid("8L")))) == ()


def test_no_choice_affects_the_results_of_inductor_kernels() -> None:
    looped = of_wrapper("cuda")["triton_red_fused_sum_5"]
    assert looped.origin("R0_BLOCK") is CHOSEN
    assert result_affecting_parameters(looped) == ()


def test_values_are_those_of_the_source() -> None:
    one = "user_autotune(configs=[{'PAD': -1, 'TILE': (16, -2), 'num_warps': 4, 'num_stages': 3}], triton_meta=META)"
    inferred = infer_config(described(one, 4, names="PAD, TILE"))
    assert dict(inferred.config) == {"PAD": "-1", "TILE": "(16, -2)", "num_stages": "3", "num_warps": "4"}
    assert inferred.inferred == ()


@pytest.mark.parametrize(
    "decorator",
    [
        "user_autotune(configs=[{'BLOCK': 64, 'num_warps': 8, 'num_stages': 2}], triton_meta=META)",
        "fixed_config(config={'BLOCK': 64, 'num_warps': 8, 'num_stages': 2}, triton_meta=META)",
    ],
)
def test_a_single_listed_configuration_counts_as_recorded(decorator: str) -> None:
    inferred = infer_config(described(decorator, 8))
    assert dict(inferred.config) == {"BLOCK": "64", "num_warps": "8", "num_stages": "2"}
    assert (inferred.inferred, inferred.other_configs) == ((), ())
    assert infer_config(described(decorator, 4)).config == ()


def test_a_template_lists_its_stages() -> None:
    kernel = described("template(num_stages=5, num_warps=8, triton_meta=META)", 8, names="x")
    kernel = replace(kernel, source=kernel.source.replace("'x': 'constexpr'", "'x': '*fp32'"))
    inferred = infer_config(kernel)
    assert (dict(inferred.config), inferred.inferred) == ({"num_stages": "5", "num_warps": "8"}, ())


def heuristic(name: str, kind: str, hints: Mapping[str, int], hint: str = "INNER", **meta: Any) -> str:
    inductor = {"grid_type": kind, **meta}
    return (
        f"{name}(size_hints={dict(hints)}, reduction_hint=ReductionHint.{hint}, "
        f"inductor_meta={inductor}, triton_meta=META)"
    )


def test_a_cooperative_reduction() -> None:
    text = heuristic("cooperative_reduction", "CooperativeReductionGrid", {"x": 4, "r0_": 65536})
    sizes = (("grid_0", "32"), ("grid_1", "((xnumel + (2 - 1)) / (2))"), ("grid_2", "1"))
    inferred = infer_config(described(text, 8, sizes, "XBLOCK, R0_BLOCK, RSPLIT"))
    assert dict(inferred.config) == {
        "XBLOCK": "2",
        "R0_BLOCK": "1024",
        "RSPLIT": "32",
        "num_stages": "1",
        "num_warps": "8",
    }
    assert origins(inferred) == {"XBLOCK": DERIVED, "R0_BLOCK": CHOSEN, "RSPLIT": DERIVED, "num_stages": CHOSEN}


def test_a_reduction_along_both_axes_reads_a_whole_number_of_blocks() -> None:
    text = heuristic("persistent_reduction", "MixOrderReductionGrid", {"x": 4096, "r0_": 1024}, RSPLIT_SIZE=64)
    names = "XBLOCK, RSPLIT_SIZE, NUM_STAGES"
    inferred = infer_config(described(text, 4, (("grid_0", "((xnumel + (64 - 1)) / (64))"),), names))
    configs = [dict(config) for config in (inferred.config, *inferred.other_configs)]
    assert configs[0] == {"XBLOCK": "2", "RSPLIT_SIZE": "64", "NUM_STAGES": "1", "num_stages": "1", "num_warps": "4"}
    assert all(64 % int(config["XBLOCK"]) == 0 for config in configs)
    assert inferred.origin("RSPLIT_SIZE") is DERIVED


def test_an_outer_reduction_counts_the_elements_of_a_program() -> None:
    text = heuristic("reduction", "Grid1D", {"x": 4096, "r0_": 1024}, "OUTER")
    inferred = infer_config(described(text, 4, (("grid_0", "((xnumel + (64 - 1)) / (64))"),), "XBLOCK, R0_BLOCK"))
    assert dict(inferred.config)["R0_BLOCK"] == "8"


def test_a_tiled_reduction_has_two_blocks_within_its_sizes() -> None:
    text = heuristic("reduction", "Grid1D", {"x": 16, "r0_": 64, "r1_": 4}, "DEFAULT")
    inferred = infer_config(described(text, 4, (("grid_0", "xnumel"),), "XBLOCK, R0_BLOCK, R1_BLOCK"))
    assert {n: v for n, v in inferred.config if n.startswith("R")} == {"R0_BLOCK": "16", "R1_BLOCK": "4"}


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
def test_unchanged_if_a_value_cannot_be_inferred(kernel: Kernel) -> None:
    assert infer_config(kernel) is kernel


@pytest.mark.parametrize("grids", ["5", "'x'", "[1, 'x']", "GRIDS"])
def test_grids_that_are_not_listed_rule_nothing_out(grids: str) -> None:
    text = f"""user_autotune(configs=[{{'BLOCK': 64, 'num_warps': 4, 'num_stages': 2}}], triton_meta=META,
        inductor_meta={{'precomputed_grids': {grids}}})"""
    assert dict(infer_config(described(text, 4)).config)["BLOCK"] == "64"

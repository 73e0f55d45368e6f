"""The configuration of a Triton kernel, which a package does not record, inferred from its source and its launch.

The kernel's source names the constexpr parameters and the sizes that Inductor expected; the wrapper computes
the grid from the block sizes and passes the number of warps.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard

from aoti_debug.base.frozen import dataclass
from aoti_debug.package.manifest import ConfigOrigin, Inferred, Kernel

_MODULE = "triton_heuristics"
_CONSTEXPR = "constexpr"


class KernelSource(str):
    """The source of an expression that is not a literal: "tl.float32"."""

    __slots__ = ()


@dataclass(frozen=True)
class Heuristic:
    """The decorator of a kernel.

    Attributes:
        name: "pointwise", "persistent_reduction", "user_autotune", …
        arguments: its keyword arguments; expressions that are not literals are `KernelSource`: "ReductionHint.INNER".
        parameters: the constexpr parameters of the kernel whose value is not in the source: "XBLOCK".
    """

    name: str
    arguments: Mapping[str, Any]
    parameters: tuple[str, ...]

    @property
    def size_hints(self) -> Mapping[str, int]:
        """The sizes that Inductor expected, powers of two, by axis: {"x": 4, "r0_": 8192}."""
        hints = _mapping(self.arguments.get("size_hints"))
        return {axis: hint for axis, hint in hints.items() if isinstance(hint, int)}

    @property
    def inductor_meta(self) -> Mapping[str, Any]:
        """The `inductor_meta` of the kernel."""
        return _mapping(self.arguments.get("inductor_meta"))

    @property
    def grid_type(self) -> str:
        """Inductor's name of the grid: "Grid1D"; "" if unknown."""
        return str(self.inductor_meta.get("grid_type", ""))


def read_heuristic(source: str) -> Heuristic | None:
    """Reads the heuristic of a source; None if it is not Python, has none, or does not list its parameters."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, MemoryError, RecursionError):  # the last two: nested too deeply
        return None
    for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
        for decorator in function.decorator_list:
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).startswith(f"{_MODULE}."):
                return _read(function, decorator)
    return None


def is_literal(value: Any) -> bool:
    """True if a value of `Heuristic.arguments` is a literal, including the items of lists and dictionaries."""
    match value:
        case KernelSource():
            return False
        case dict():
            return all(is_literal(item) for pair in value.items() for item in pair)
        case list() | tuple():
            return all(is_literal(item) for item in value)
        case _:
            return True


def _read(function: ast.FunctionDef, decorator: ast.Call) -> Heuristic | None:
    arguments = {keyword.arg: _literal(keyword.value) for keyword in decorator.keywords if keyword.arg is not None}
    meta = _mapping(arguments.get("triton_meta"))
    signature, constants = meta.get("signature", {}), meta.get("constants", {})
    if not isinstance(signature, dict) or not isinstance(constants, dict):
        return None
    annotated = [a.arg for a in function.args.args if a.annotation and _CONSTEXPR in ast.unparse(a.annotation)]
    compiled_in = dict.fromkeys([name for name, kind in signature.items() if kind == _CONSTEXPR] + annotated)
    return Heuristic(
        name=ast.unparse(decorator.func).rpartition(".")[2],
        arguments=arguments,
        parameters=tuple(name for name in compiled_in if name not in constants),
    )


def _mapping(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, dict) else {}


def _literal(node: ast.expr) -> Any:
    """Evaluates a literal; parts that are not literals become `KernelSource`."""
    with contextlib.suppress(ValueError, TypeError):  # it, or a part of it, is not a literal
        return ast.literal_eval(node)
    match node:
        case ast.Dict(keys=keys, values=values) if None not in keys:
            pairs = zip(keys, values, strict=True)
            return {_key(key): _literal(value) for key, value in pairs if key is not None}
        case ast.List(elts=items):
            return [_literal(item) for item in items]
        case ast.Tuple(elts=items):
            return tuple(_literal(item) for item in items)
        case _:
            return KernelSource(ast.unparse(node))


def _key(node: ast.expr) -> Any:
    """Evaluates a key of a dictionary; one that is not a constant becomes `KernelSource`."""
    return node.value if isinstance(node, ast.Constant) else KernelSource(ast.unparse(node))


_CEILING = re.compile(r"\(*\s*(\w+) \+ \(+(\d+) - 1\)+ / \(*(\d+)\)*\Z")
_X_BLOCK = ("grid_0", "xnumel", "XBLOCK")
_Y_BLOCK = ("grid_1", "ynumel", "YBLOCK")
# Kind of grid -> the grid variable, the number of elements that the block size divides, the name of the block size.
_GRIDS: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "Grid1D": (_X_BLOCK,),
    "Grid2D": (_X_BLOCK, _Y_BLOCK),
    "Grid3D": (_X_BLOCK, _Y_BLOCK, ("grid_2", "znumel", "ZBLOCK")),
    "BatchMatmulGrid3D": (("grid_2", "xnumel", "XBLOCK"), _Y_BLOCK, ("grid_0", "znumel", "ZBLOCK")),
    "Grid2DWithYZOverflow": (_X_BLOCK, ("y_grid_raw_", "ynumel", "YBLOCK")),
    "MixOrderReductionGrid": (("grid_0", "xnumel", "RSPLIT_SIZE"),),
    "CooperativeReductionGrid": (("grid_1", "xnumel", "XBLOCK"),),
    "SplitScanGrid": (("grid_0", "r0_numel", "R0_BLOCK"), ("grid_1", "xnumel", "XBLOCK")),
}
_COMBINED = ("SequentialComboKernelGrid", "RoundRobinComboKernelGrid")
LARGEST_X, LARGEST_Y = 4096, 1024  # blocks that Inductor uses


def block_sizes(kind: str, sizes: Sequence[tuple[str, str]], meta: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Returns the block sizes that result in a grid: name -> possible values, usually one.

    Args:
        kind: Inductor's name of the grid: "Grid1D".
        sizes: the variables of the grid and their expressions, in order.
        meta: `inductor_meta` of the kernel.
    """
    texts = {name: " ".join(text.split()) for name, text in sizes}
    if kind in _COMBINED:
        combined = meta.get("combo_grid_meta")
        return _combined(kind, texts, combined) if _is_known(combined) else {}
    by_name: dict[str, tuple[int, ...]] = {}
    for variable, numel, name in _GRIDS.get(kind, ()):
        block = _block(texts.get(variable, ""), numel)
        if block is not None:
            by_name[name] = (block,)
    if kind == "CooperativeReductionGrid" and texts.get("grid_0", "").isdigit():
        by_name["RSPLIT"] = (int(texts["grid_0"]),)
    return by_name


def _block(text: str, numel: str) -> int | None:
    """Returns the block size in an expression; None if the expression has another form than Inductor's."""
    if text == numel:
        return 1
    match = _CEILING.match(text)
    return int(match[2]) or None if match and match[1] == numel and match[2] == match[3] else None


def _is_known(meta: object) -> TypeGuard[Mapping[str, Any]]:
    """True if a `combo_grid_meta` describes combined kernels as Inductor does: each has at least a size."""
    if not isinstance(meta, dict):
        return False
    number, least = meta.get("num_kernels"), meta.get("min_blocks")
    return isinstance(number, int) and number <= len(meta) and isinstance(least, int | None)


_CAST = "(long)"  # before a number in std::max; torch 2.11 has none


def _combined(kind: str, texts: Mapping[str, str], meta: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Returns the block sizes of a combo kernel by trial: the sizes of its kernels are folded into one number."""
    x_grid, y_grid = (texts.get(name, "").replace(_CAST, "") for name in ("grid_0", "y_grid_raw_"))
    candidates = {
        "XBLOCK": [x for x in _powers(LARGEST_X) if x_grid and _combined_x(kind, meta, x) == x_grid],
        "YBLOCK": [y for y in _powers(LARGEST_Y) if y_grid and _combined_y(meta, y) == y_grid],
    }
    return {name: tuple(values) for name, values in candidates.items() if values}


def _powers(largest: int) -> list[int]:
    return [1 << i for i in range(largest.bit_length())]


def _combined_x(kind: str, meta: Mapping[str, Any], block: int) -> str:
    numbers = range(meta["num_kernels"])
    sizes = [(meta.get(f"xnumel_{i}") or f"xnumel_{i}", bool(meta.get(f"no_x_dim_{i}"))) for i in numbers]
    if kind == "SequentialComboKernelGrid":
        whole: int | str = _sum([_ceiling(size, 1 if no_x else block) for size, no_x in sizes])
    else:
        alone = [size for size, no_x in sizes if no_x]
        shared = [size for size, no_x in sizes if not no_x]
        split = [_ceiling(_maximum(shared), block)] if shared else []
        whole = f"({_maximum([*alone, *split])}) * {len(sizes)}"
    least = meta.get("min_blocks")
    return str(_maximum([whole, least]) if least else whole)


def _combined_y(meta: Mapping[str, Any], block: int) -> str:
    numbers = range(meta["num_kernels"])
    sizes = [meta[f"ynumel_{i}"] or f"ynumel_{i}" for i in numbers if f"ynumel_{i}" in meta]
    return str(_ceiling(_maximum(sizes), block)) if sizes else ""


def _ceiling(size: int | str, block: int) -> int | str:
    if block == 1:
        return size
    return -(-size // block) if isinstance(size, int) else f"(({size} + ({block} - 1)) / ({block}))"


def _sum(items: Sequence[int | str]) -> int | str:
    texts, numbers = [x for x in items if isinstance(x, str)], [x for x in items if isinstance(x, int)]
    if not texts:
        return sum(numbers)
    return " + ".join([*texts, *([str(sum(numbers))] if numbers else [])])


def _maximum(items: Sequence[int | str]) -> int | str:
    texts, numbers = [x for x in items if isinstance(x, str)], [x for x in items if isinstance(x, int)]
    if not texts:
        return max(numbers, default=0)
    whole = texts[0]
    for item in [*texts[1:], *([str(max(numbers))] if numbers else [])]:
        whole = f"std::max({whole}, {item})"
    return whole


LARGEST = 4096  # elements: the largest block along a reduction that Inductor uses
WARP_ELEMENTS = 128  # elements per warp that Inductor aims at
_REDUCTION = ("r0_", "r1_")  # axes, as `size_hints` names them
_LOOPED = frozenset({"reduction", "cooperative_reduction"})
_SMALL_ROW = 512
_MAX_STAGES = 3


def likely_block_sizes(heuristic: Heuristic, num_warps: int, known: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Returns candidate block sizes by parameter name, the likeliest first.

    Args:
        known: block sizes that are known from the grid.
    """
    if "RSPLIT_SIZE" in known:
        return _mixed_order_candidates(heuristic, known["RSPLIT_SIZE"])
    axes = [axis for axis in _REDUCTION if axis in heuristic.size_hints]
    if heuristic.name not in _LOOPED or not axes:
        return {}
    elements = WARP_ELEMENTS * num_warps
    if heuristic.arguments.get("reduction_hint") != "ReductionHint.INNER":
        elements = max(elements // math.prod(known.values()), 1)
    likely = max(round(elements ** (1 / len(axes))), 1)
    return {f"{axis.upper()}BLOCK": _around(likely, heuristic.size_hints[axis]) for axis in axes}


def _around(likely: int, hint: int) -> tuple[int, ...]:
    """Returns the powers of two up to the expected size, sorted by their distance from the likely one."""
    largest = min(max(hint, 1), LARGEST).bit_length() - 1
    middle = min(likely.bit_length() - 1, largest)
    return tuple(1 << i for i in sorted(range(largest + 1), key=lambda i: (abs(i - middle), i)))


def _mixed_order_candidates(heuristic: Heuristic, split: int) -> dict[str, tuple[int, ...]]:
    """Returns candidates for a kernel that reduces along both axes: each split is a multiple of XBLOCK rows."""
    least = 4 if heuristic.size_hints.get("r0_", 0) <= _SMALL_ROW else 1
    likely = min(max(split // 32, least), 16)
    fitting = [x for x in _around(likely, 16) if split % x == 0]
    return {"XBLOCK": tuple(fitting), "NUM_STAGES": tuple(range(1, _MAX_STAGES + 1))}


MAX_CONFIGS = 12  # of the configurations that fit
STAGES, WARPS = "num_stages", "num_warps"
_USER_HEURISTIC = "user_autotune"  # the heuristic of user-defined kernels
_USER_STAGES = (3, 1)  # Triton's default first
_INDUCTOR_STAGES = (1,)
_DEFAULT_WARPS = 4
_LAUNCH_OPTIONS = {STAGES, WARPS}  # Triton sets parameters of these names itself


def infer_config(kernel: Kernel) -> Kernel:
    """Returns the kernel with a configuration that fits its source, grid and warps; unchanged if none is found."""
    heuristic = read_heuristic(kernel.source)
    if heuristic is None or not kernel.num_warps:
        return kernel
    listed = _own_configs(heuristic)
    if not listed:
        return _from_size_hints(kernel, heuristic)
    return _from_listed_configs(kernel, heuristic, listed) if all(map(_is_complete, listed)) else kernel


def result_affecting_parameters(kernel: Kernel) -> tuple[str, ...]:
    """Returns the chosen parameters that may affect the kernel's results: those of configurations listed in its source.

    Block sizes of Inductor's kernels are not among them: these compute the same with any that fits.
    """
    heuristic = read_heuristic(kernel.source)
    if heuristic is None or (heuristic.name != _USER_HEURISTIC and not _own_configs(heuristic)):
        return ()
    chosen = (name for name, _ in kernel.config if kernel.origin(name) is ConfigOrigin.CHOSEN)
    return tuple(name for name in chosen if name in heuristic.parameters)


def _own_configs(heuristic: Heuristic) -> Sequence[Any]:
    """Returns the configurations that the source lists, as far as they are literals."""
    arguments = heuristic.arguments
    if heuristic.name == "template":
        return [{name: arguments[name] for name in (STAGES, WARPS) if name in arguments}]
    listed = arguments.get("configs") or [config for config in (arguments.get("config"),) if config is not None]
    return listed if isinstance(listed, list | tuple) else [listed]


def _is_complete(config: Any) -> bool:
    """True if a configuration is known completely: values by their names, stages as a number."""
    named = isinstance(config, dict) and all(isinstance(name, str) for name in config)
    return named and is_literal(config) and isinstance(config.get(STAGES, 0), int)


def _from_listed_configs(kernel: Kernel, heuristic: Heuristic, listed: Sequence[Mapping[str, Any]]) -> Kernel:
    """Chooses those configurations of the source that result in the launch."""
    required = {*heuristic.parameters, STAGES} - {WARPS}
    fitting = [
        config
        for config in listed
        if config.get(WARPS, _DEFAULT_WARPS) == kernel.num_warps and _matches_grid(config, kernel, heuristic)
    ]
    stages = _USER_STAGES if any(STAGES not in config for config in fitting) else ()
    complete = [
        {**config, WARPS: kernel.num_warps, **({} if STAGES in config else {STAGES: n})}
        for config in fitting
        for n in ((0,) if STAGES in config else stages)
    ]
    if not complete or not all(required <= config.keys() for config in complete):
        return kernel
    single_origin = ConfigOrigin.RECORDED if len(listed) == 1 else ConfigOrigin.DERIVED
    origins = {
        name: ConfigOrigin.CHOSEN if len({repr(config.get(name)) for config in complete}) > 1 else single_origin
        for name in complete[0]
    }
    return _with_configs(kernel, complete, origins)


def _matches_grid(config: Mapping[str, Any], kernel: Kernel, heuristic: Heuristic) -> bool:
    """True if a configuration results in the kernel's grid, or if the source does not record its grid."""
    listed = heuristic.inductor_meta.get("precomputed_grids")
    grids = [grid for grid in listed if isinstance(grid, dict)] if isinstance(listed, list) else []
    written = [text for name, text in kernel.grid if name.startswith("grid_")]
    theirs = [grid.get("cpp") for grid in grids if grid.get("config") == config]
    return not theirs or written in theirs


def _from_size_hints(kernel: Kernel, heuristic: Heuristic) -> Kernel:
    """Derives block sizes from the grid; those that the grid does not depend on from the expected sizes."""
    known = block_sizes(heuristic.grid_type, kernel.grid, heuristic.inductor_meta)
    names = [name for name in heuristic.parameters if name not in _LAUNCH_OPTIONS]
    chosen = likely_block_sizes(heuristic, kernel.num_warps, {n: v[0] for n, v in known.items()})
    possible = {name: known.get(name) or chosen.get(name, ()) for name in names}
    possible[STAGES] = _USER_STAGES if heuristic.name == _USER_HEURISTIC else _INDUCTOR_STAGES
    if not all(possible.values()):
        return kernel
    origins = {
        name: ConfigOrigin.DERIVED if name in known and len(known[name]) == 1 else ConfigOrigin.CHOSEN
        for name in possible
    }
    configs = [{**config, WARPS: kernel.num_warps} for config in _combinations(possible)]
    return _with_configs(kernel, configs, origins)


def _combinations(possible: Mapping[str, Sequence[int]]) -> Iterator[dict[str, int]]:
    """Yields all combinations, the likeliest first: those whose values come first in their sequences."""
    indices = itertools.product(*(range(len(values)) for values in possible.values()))
    for index in sorted(indices, key=lambda index: (sum(index), index)):
        yield {name: values[i] for (name, values), i in zip(possible.items(), index, strict=True)}


def _with_configs(kernel: Kernel, configs: Sequence[Mapping[str, Any]], origins: Mapping[str, ConfigOrigin]) -> Kernel:
    first, *others = (tuple((name, repr(value)) for name, value in config.items()) for config in configs[:MAX_CONFIGS])
    return replace(
        kernel,
        config=first,
        inferred=tuple(
            Inferred(name, origin)
            for name, origin in origins.items()
            if name != WARPS and origin is not ConfigOrigin.RECORDED
        ),
        other_configs=tuple(others),
    )

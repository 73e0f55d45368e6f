"""The work of the launches of each site, and the sites of two packages that compute the same values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from aoti_debug.base.abi import CallKind
from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.diff.diff_runs import pair_runs
from aoti_debug.package.argument_values import Number
from aoti_debug.package.inputs.symbolic_sizes import Symbols, is_symbol
from aoti_debug.package.manifest import Manifest, Site
from aoti_debug.package.origins import own_nodes
from aoti_debug.package.program_graphs import Graph, Node, NodeKind, Reference, TensorType
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.views.profile.roofline import Work, moved

Shape = tuple[int, ...]
_FREE = frozenset({
    "_operator.getitem", "_to_copy", "_unsafe_view", "alias", "arange", "as_strided", "cat", "clone", "concat",
    "constant_pad_nd", "contiguous", "convert_element_type", "copy", "copy_", "detach", "embedding", "empty",
    "empty_like", "empty_strided", "expand", "eye", "fill", "flip", "full", "full_like", "gather", "index",
    "index_select", "inductor_force_stride_order", "iota", "lift_fresh_copy", "narrow", "new_empty", "new_full",
    "new_ones", "new_zeros", "ones", "ones_like", "pad", "permute", "repeat", "reshape", "roll", "scalar_tensor",
    "select", "select_scatter", "slice", "slice_scatter", "split", "split_with_sizes", "squeeze", "stack", "t",
    "transpose", "unbind", "unfold", "unsqueeze", "view", "view_as", "zeros", "zeros_like",
})  # fmt: skip
_ELEMENTWISE = frozenset({
    "abs", "acos", "acosh", "add", "addcdiv", "addcmul", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and",
    "bitwise_not", "bitwise_or", "bitwise_xor", "ceil", "clamp", "clamp_max", "clamp_min", "cos", "cosh", "div",
    "elu", "eq", "erf", "erfc", "exp", "exp2", "expm1", "floor", "floor_divide", "fma", "fmod", "ge", "gelu", "gt",
    "hardsigmoid", "hardswish", "hardtanh", "isinf", "isnan", "le", "leaky_relu", "lerp", "log", "log10", "log1p",
    "log2", "logical_and", "logical_not", "logical_or", "logical_xor", "lt", "masked_fill", "maximum", "minimum",
    "mul", "ne", "neg", "pow", "reciprocal", "relu", "remainder", "round", "rsqrt", "rsub", "sigmoid", "sign", "silu",
    "sin", "sinh", "softplus", "sqrt", "square", "sub", "tan", "tanh", "true_divide", "trunc", "where",
})  # fmt: skip
_REDUCTIONS = frozenset({
    "_log_softmax", "_softmax", "all", "amax", "amin", "any", "argmax", "argmin", "cumprod", "cumsum", "logsumexp",
    "max", "mean", "min", "native_layer_norm", "norm", "prod", "std", "sum", "var", "var_mean",
})  # fmt: skip


@dataclass(frozen=True)
class SiteGroup:
    """Sites of the old and of the new package that compute the same: one of each, or several where fusion differs.

    Attributes:
        old, new: in the order of their ids; one of both is empty for a launch without a counterpart.
    """

    old: tuple[Site, ...]
    new: tuple[Site, ...]

    @property
    def is_paired(self) -> bool:
        """True if both packages have launches in it."""
        return bool(self.old and self.new)


def site_groups(old: RunDir, new: RunDir) -> tuple[tuple[SiteGroup, ...], tuple[str, ...]]:
    """Groups the launch sites of two runs.

    Returns:
        The groups in the order of the new package, and notes on how they were found.

    Raises:
        UsageError: the runs are of programs that take other inputs.
    """
    pairing, notes = pair_runs(old, new)
    groups: list[tuple[set[int], set[int]]] = []
    for pair in pairing.pairs:
        if pair.launch.key.kind is CallKind.MODEL:
            _join(groups, {launch.site.id for launch in pair.counterparts}, {pair.launch.site.id})
    alone_old, alone_new = _sites(pairing.only_a), _sites(pairing.only_b)
    for site in alone_old - {id_ for group in groups for id_ in group[0]}:
        groups.append(({site}, set()))
    for site in alone_new - {id_ for group in groups for id_ in group[1]}:
        groups.append((set(), {site}))
    groups.sort(key=lambda group: (min(group[1], default=len(new.manifest.sites)), min(group[0], default=0)))
    found = tuple(
        SiteGroup(tuple(old.manifest.sites[i] for i in sorted(a)), tuple(new.manifest.sites[i] for i in sorted(b)))
        for a, b in groups
    )
    return found, notes


def _join(groups: list[tuple[set[int], set[int]]], old: set[int], new: set[int]) -> None:
    """Adds sites to the groups; groups that have one of them become one."""
    touched = [group for group in groups if group[0] & old or group[1] & new]
    for group in touched:
        groups.remove(group)
        old |= group[0]
        new |= group[1]
    groups.append((old, new))


def _sites(launches: Iterable[Launch]) -> set[int]:
    return {launch.site.id for launch in launches if launch.key.kind is CallKind.MODEL}


def work_of(graph: Graph, names: Iterable[str], symbols: Symbols) -> Work:
    """The operations of nodes of a graph; those of all are unknown if those of one are.

    Args:
        symbols: the values of symbolic sizes.
    """
    counted = _Counter(graph, symbols)
    total: int | None = 0
    contracted: dict[str, int] = {}
    for name in names:
        node = graph.by_name.get(name)
        if node is None or node.kind is not NodeKind.CALL:
            continue
        count = counted.operations(node)
        total = None if total is None or count is None else total + count
        if count and operator(node) in _CONTRACTIONS and node.types and node.types[0] is not None:
            contracted[node.types[0].dtype] = contracted.get(node.types[0].dtype, 0) + count
    dtype = max(contracted, key=lambda name: contracted[name], default="")
    return Work(flops=total, contracts=bool(contracted), dtype=dtype)


def operator(node: Node) -> str:
    """The operator without namespace, overload and in-place underscore: "addmm" of "aten.addmm.default"."""
    if node.target in _FREE:
        return node.target
    _, _, name = node.target.partition(".")
    name = name.partition(".")[0]
    return name if name in _FREE else name.rstrip("_")


class _Counter:
    def __init__(self, graph: Graph, symbols: Symbols) -> None:
        self._graph = graph
        self._symbols = symbols

    def operations(self, node: Node) -> int | None:
        """The operations of a node; None if its operator or a shape is not known."""
        name = operator(node)
        if name in _FREE:
            return 0
        if name in _ELEMENTWISE:
            return _elements(self.result(node))
        if name in _REDUCTIONS:
            return _elements(self.argument(node, 0))
        contraction = _CONTRACTIONS.get(name)
        return None if contraction is None else contraction(self, node)

    def result(self, node: Node, index: int = 0) -> Shape | None:
        """The shape of a tensor that a node gives; None if it is not known."""
        type_ = node.types[index] if index < len(node.types) else None
        if type_ is None:
            return None
        sizes = [self._symbols.value(size) for size in type_.shape]
        return None if None in sizes else tuple(size for size in sizes if size is not None)

    def argument(self, node: Node, position: int) -> Shape | None:
        """The shape of a tensor that a node is given; None if it is not known."""
        value: Any = node.args[position] if position < len(node.args) else None
        name = value.get("node") if isinstance(value, Mapping) else None
        given = self._graph.by_name.get(name) if isinstance(name, str) else None
        return None if given is None else self.result(given)

    def product(self, node: Node, first: int) -> int | None:
        """Two for each element of the result and index that is summed over.

        Args:
            first: the position of the left factor, whose last dimension is summed over.
        """
        left, result = self.argument(node, first), self.result(node)
        return None if not left or result is None else 2 * math.prod(result) * left[-1]

    def convolution(self, node: Node) -> int | None:
        """Two for each element of the result, or of the input of a transposed one, and element of a filter."""
        image, weight, result = self.argument(node, 0), self.argument(node, 1), self.result(node)
        transposed = len(node.args) > 6 and node.args[6] is True
        if image is None or weight is None or result is None:
            return None
        return 2 * math.prod(image if transposed else result) * math.prod(weight[1:])

    def attention(self, node: Node) -> int | None:
        """Two for each pair of query and key and element of one, the same again with the values."""
        query, key, value = (self.argument(node, position) for position in range(3))
        if not query or not key or not value or min(len(query), len(key), len(value)) < 2:
            return None
        return 2 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


_CONTRACTIONS: Mapping[str, Callable[[_Counter, Node], int | None]] = {
    "mm": lambda counter, node: counter.product(node, 0),
    "bmm": lambda counter, node: counter.product(node, 0),
    "mv": lambda counter, node: counter.product(node, 0),
    "linear": lambda counter, node: counter.product(node, 0),
    "_linear_pointwise": lambda counter, node: counter.product(node, 0),
    "_mkl_linear": lambda counter, node: counter.product(node, 0),
    "addmm": lambda counter, node: counter.product(node, 1),
    "addmv": lambda counter, node: counter.product(node, 1),
    "baddbmm": lambda counter, node: counter.product(node, 1),
    "convolution": _Counter.convolution,
    "_convolution_pointwise": _Counter.convolution,
    "_scaled_dot_product_flash_attention_for_cpu": _Counter.attention,
    "_scaled_dot_product_flash_attention": _Counter.attention,
    "_scaled_dot_product_efficient_attention": _Counter.attention,
    "_scaled_dot_product_cudnn_attention": _Counter.attention,
    "scaled_dot_product_attention": _Counter.attention,
}


def _elements(shape: Shape | None) -> int | None:
    return None if shape is None else math.prod(shape)


def site_works(launches: Iterable[Launch], manifest: Manifest, reference: Reference | None) -> dict[int, Work]:
    """The work of one launch of each site, by the site's id.

    Args:
        launches: those of one call.
        reference: None if the package holds no graph: then no operations are known.
    """
    first: dict[int, Launch] = {}
    for launch in launches:
        first.setdefault(launch.site.id, launch)
    symbols = _symbols(first.values(), reference)
    works = {}
    for id_, launch in first.items():
        site = launch.site
        graph = None if reference is None else reference.graph(site.subgraph, site.function)
        work = Work() if graph is None else work_of(graph, own_nodes(site, manifest.sites), symbols)
        read, written = moved(launch) or (None, None)
        works[id_] = replace(work, read=read, written=written)
    return works


def _symbols(launches: Iterable[Launch], reference: Reference | None) -> Symbols:
    """The values of symbolic sizes, from the numbers and tensors that launches were passed."""
    symbols = Symbols()
    for launch in launches:
        graph = None if reference is None else reference.graph(launch.site.subgraph, launch.site.function)
        for argument in launch.args:
            if isinstance(argument.before, Number) and is_symbol(argument.spec.text):
                symbols.bind(argument.spec.text, int(argument.before.value))
            for type_ in () if graph is None else _types(graph, argument.name):
                layout = argument.layout
                if layout is not None and len(layout.shape) == len(type_.shape):
                    for expression, size in zip(type_.shape, layout.shape, strict=True):
                        symbols.bind(expression, size)
    return symbols


def _types(graph: Graph, variable: str) -> Iterator[TensorType]:
    """Yields the type of the value that a variable holds, if a node has it."""
    node = graph.by_name.get(graph.held.get(variable, variable))
    if node is not None and len(node.types) == 1 and node.types[0] is not None:
        yield node.types[0]

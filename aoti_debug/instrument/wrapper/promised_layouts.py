"""Parses the layouts that the graph promises for its buffers, from Inductor's log.

There is a line for each buffer, in every graph of the program, as in Inductor's log of its scheduled operations
(`ir_post_fusion`):

    buf3.layout = FixedLayout('cuda:0', torch.float32, size=[s77, 16], stride=[16, 1])
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from aoti_debug.base import dtypes
from aoti_debug.package.inputs.signature import Leaf
from aoti_debug.package.manifest import Promise

MODEL, FOLDING = "run_impl", "_const_run_impl"
UNKNOWN = ""  # a size or a stride that is not known
_LINE = re.compile(r"^ *(?P<name>\w+)\.layout = (?P<kind>\w+)(?P<rest>.*)$", re.MULTILINE)
_LAYOUT = re.compile(
    r"\('(?P<device>[\w:]+)', torch\.(?P<dtype>\w+), size=(?P<sizes>\[.*\]), stride=(?P<strides>\[.*)\)"
)
_FINAL = frozenset({"FixedLayout", "NonOwningLayout", "CommBufferLayout"})
_NO_TENSOR = frozenset({"MultiOutputLayout", "NoneLayout", "MutationLayoutSHOULDREMOVE", "FlexibleLayout"})
_UNNAMED = re.compile(r"^ *buf\d+\.layout = ", re.MULTILINE)


def parse(graphs: Sequence[str]) -> tuple[tuple[Promise, ...], tuple[str, ...]]:
    """Parses the promised layouts of a program's graphs; returns them and the lines that cannot be parsed.

    Args:
        graphs: a text for each graph: constant folding, if there is any, then the model; each followed by its
            branches and loops, whose buffers are named after them ("true_graph_0_buf1").
    """
    begins = [position for position, text in enumerate(graphs) if _UNNAMED.search(text)]
    model = begins[-1] if begins else 0
    folding_layouts, folding_unparsed = _parse("\n".join(graphs[:model]), FOLDING)
    model_layouts, model_unparsed = _parse("\n".join(graphs[model:]), MODEL)
    return folding_layouts + model_layouts, folding_unparsed + model_unparsed


def input_layouts(variables: Sequence[str], leaves: Sequence[Leaf]) -> tuple[Promise, ...]:
    """Returns the exported layouts of a model's inputs; none if the two lists do not match.

    Args:
        variables: the names of the inputs in the generated code.
        leaves: of the exported program's signature.
    """
    tensors = [leaf for leaf in leaves if leaf.is_tensor]
    if len(tensors) != len(variables):
        return ()
    return tuple(_input_layout(name, leaf) for name, leaf in zip(variables, tensors, strict=True))


def _parse(text: str, function: str) -> tuple[tuple[Promise, ...], tuple[str, ...]]:
    layouts: dict[str, Promise | None] = {}  # None: two contradictory promises
    unparsed: dict[str, None] = {}
    for line in _LINE.finditer(text):
        if line["kind"] in _NO_TENSOR:
            continue
        promise = _promise(line, function) if line["kind"] in _FINAL else None
        if promise is None:
            unparsed[line.group().strip()] = None
        elif layouts.setdefault(promise.name, promise) != promise:
            layouts[promise.name] = None
    return tuple(promise for promise in layouts.values() if promise is not None), tuple(unparsed)


def _promise(line: re.Match[str], function: str) -> Promise | None:
    layout = _LAYOUT.fullmatch(line["rest"])
    if layout is None:
        return None
    sizes, strides = _items(layout["sizes"]), _items(layout["strides"])
    if len(sizes) != len(strides):
        return None
    return Promise(line["name"], layout["device"], layout["dtype"], sizes, strides, function)


def _input_layout(name: str, leaf: Leaf) -> Promise:
    return Promise(
        name,
        leaf.device,
        dtypes.bare_name(leaf.dtype),
        tuple(str(dim.minimum) if dim.fixed else dim.symbol for dim in leaf.shape),
        (UNKNOWN,) * len(leaf.shape) if leaf.strides is None else tuple(map(str, leaf.strides)),
    )


def _items(text: str) -> tuple[str, ...]:
    """Splits "[s77, Max(1, u0)], offset=3" into expressions, up to the bracket that closes the first one."""
    return tuple(item.strip() for item in _split(text) if item.strip())


def _split(text: str) -> Iterator[str]:
    depth = 0
    start = 1
    for position, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        if depth == 0 or (depth == 1 and character == ","):
            yield text[start:position]
            start = position + 1
        if depth == 0:
            return

"""The C++ variables of a wrapper's inputs, constants and outputs."""

from __future__ import annotations

import re
from collections.abc import Mapping

from aoti_debug.instrument.wrapper.cpp_syntax.functions import Body, variables
from aoti_debug.instrument.wrapper.cpp_syntax.lexer import mask
from aoti_debug.instrument.wrapper.launches.slots import resolve_alias
from aoti_debug.package.manifest import Constant
from aoti_debug.package.weights_file import PackedWeights

_INPUT = re.compile(r'\binputs_info_\[(\d+)\]\.name = "([^"]*)";')
_FIELD = re.compile(r"\bconstants_info_\[(\d+)\]\.(\w+) = ([^;]*);")
_KIND = re.compile(r"ConstantType::(\w+)")
_OUTPUT = re.compile(r"\boutput_handles\[(\d+)\] = (?:(\w+)\.release\(\)|constants_->at\((\d+)\));")
_MOVE = re.compile(r"^ *(\w+) = std::move\((\w+)\);", re.MULTILINE)  # one with `auto` gives memory to a new buffer


def inputs(wrapper: str) -> tuple[str, ...]:
    """Returns the variables of the model's inputs, in order: "arg5_1"."""
    names = {int(m.group(1)): m.group(2) for m in _INPUT.finditer(wrapper)}
    return tuple(names[position] for position in sorted(names))


def constants(wrapper: str) -> tuple[Constant, ...]:
    """Returns the weights, buffers and folded constants, in order."""
    return tuple(map(_constant, _constant_fields(wrapper)))


def _constant_fields(wrapper: str) -> list[dict[str, str]]:
    fields: dict[int, dict[str, str]] = {}
    for m in _FIELD.finditer(wrapper):
        fields.setdefault(int(m.group(1)), {})[m.group(2)] = m.group(3)
    return [fields[position] for position in sorted(fields)]


def packed_weights(wrapper: str, sizes: Mapping[str, int]) -> PackedWeights:
    """Returns where weights lie among all that the package holds: each in memory of its own, one after the other.

    Args:
        sizes: the bytes of each, by name; those that begin behind the first element of their memory are left out.
    """
    begins, end = {}, 0
    for fields in _constant_fields(wrapper):
        name, size = fields.get("name", "").strip('"'), fields.get("data_size", "")
        if fields.get("from_folded", "") != "true" and size.isdecimal():
            if name in sizes and fields.get("offset", "0") == "0":
                begins[name] = end
            end += int(size)
    return PackedWeights(begins, {name: sizes[name] for name in begins}, end)


def outputs(wrapper: str, body: Body) -> tuple[str, ...]:
    """Returns the variable of each output of run_impl, in order: of a view, the one that it is of; "" if unknown."""
    weights = constants(wrapper)
    bases = variables(mask(wrapper), body).bases
    names: dict[int, str] = {}
    for m in _OUTPUT.finditer(wrapper, body.opening, body.closing):
        position = m.group(3)
        name = m.group(2) or (weights[int(position)].name if int(position) < len(weights) else "")
        names[int(m.group(1))] = resolve_alias(name, bases)
    return tuple(names.get(position, "") for position in range(max(names) + 1)) if names else ()


def handed_out(wrapper: str, body: Body) -> tuple[str, ...]:
    """Returns variables of branches and loops that are moved into an output of the model, by any number of moves."""
    moves = [m.groups() for m in _MOVE.finditer(wrapper, body.opening, body.closing)]
    targets, sources = set(outputs(wrapper, body)) - {""}, dict[str, None]()
    while new := [source for target, source in moves if target in targets and source not in targets]:
        sources |= dict.fromkeys(new)
        targets |= set(new)
    return tuple(sources)


def _constant(fields: dict[str, str]) -> Constant:
    return Constant(
        name=fields.get("name", "").strip('"'),
        fqn=fields.get("original_fqn", "").strip('"'),
        dtype=fields.get("dtype", "").removeprefix("cached_torch_dtype_"),
        shape=_numbers(fields.get("shape", "")),
        strides=_numbers(fields.get("stride", "")),
        folded=fields.get("from_folded", "") == "true",
        kind=match.group(1) if (match := _KIND.search(fields.get("type", ""))) else "",
    )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in re.findall(r"-?\d+", text))

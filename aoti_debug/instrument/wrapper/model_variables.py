"""The C++ variables of a wrapper's inputs, constants and outputs, and the memory that its tensors lie in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import product

from aoti_debug.base import dtypes
from aoti_debug.base.frozen import dataclass
from aoti_debug.instrument.wrapper.cpp_syntax import expressions
from aoti_debug.instrument.wrapper.cpp_syntax.functions import Body, variables
from aoti_debug.instrument.wrapper.cpp_syntax.lexer import mask
from aoti_debug.instrument.wrapper.launches.slots import resolve_alias
from aoti_debug.package.manifest import Arg, Constant
from aoti_debug.package.weights_file import PackedWeights

_INPUT = re.compile(r'\binputs_info_\[(\d+)\]\.name = "([^"]*)";')
_FIELD = re.compile(r"\bconstants_info_\[(\d+)\]\.(\w+) = ([^;]*);")
_KIND = re.compile(r"ConstantType::(\w+)")
_OUTPUT = re.compile(r"\boutput_handles\[(\d+)\] = (?:(\w+)\.release\(\)|constants_->at\((\d+)\));")
_MOVE = re.compile(r"^ *(\w+) = std::move\((\w+)\);", re.MULTILINE)  # one with `auto` gives memory to a new buffer
_REINTERPRETED = r"reinterpret_tensor_wrapper\(\s*(\w+)\s*,\s*\d+\s*,\s*(\w+)\s*,\s*(\w+)\s*,\s*(\d+)L*\s*\)"
_VIEW = re.compile(_REINTERPRETED)
_NAMED_VIEW = re.compile(rf"\bauto (\w+) = (?:wrap_with_raii_handle_if_needed\()?{_REINTERPRETED}")
_ARRAY = re.compile(r"\bint64_t \*?(\w+)(?:\[\])? = \{([^{}]*)\};")
_MOVED = re.compile(r"\bauto (\w+) = std::move\((\w+)\);")
_ALIGNED = re.compile(r"^\s*(\w+) = std::move\(RAIIAtenTensorHandle\((\w+)\)\);", re.MULTILINE)
_GIVEN = re.compile(r"\bauto (\w+) = std::move\(inputs\[")
_RELEASED = re.compile(r"\boutput_handles\[\d+\] = (\w+)\.release\(\);")
_FROM_POOL = re.compile(
    r"\baoti_torch__alloc_from_pool\(\s*(?P<pool>\w+)\s*,\s*(?P<offset>[^,]*),\s*cached_torch_dtype_(?P<dtype>\w+)\s*,"
    r"\s*\d+\s*,\s*(?P<sizes>\w+)\s*,\s*(?P<strides>\w+)\s*,\s*&(?P<handle>\w+)\s*\)"
)
_EMPTY = re.compile(
    r"\baoti_torch_empty_strided\w*\(\s*\d+\s*,\s*(?P<sizes>\w+)\s*,\s*(?P<strides>\w+)\s*,"
    r"\s*cached_torch_dtype_(?P<dtype>\w+)\s*,[^;]*&(?P<handle>\w+)\s*\)"
)
_ALLOCATED = re.compile(r"\bRAIIAtenTensorHandle (\w+)\(\1_handle\);")
_RESET = re.compile(r"\b(\w+)\.reset\(\);")
_OWNER = re.compile(r"\b(?:auto|RAIIAtenTensorHandle) (\w+)\s*(?:=\s*RAIIAtenTensorHandle\s*)?\((\w+)\);")
_LITERAL = re.compile(r"-?\d+L*\Z")
_MOST = 1 << 16  # elements that are listed to see whether two views have one in common


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


@dataclass(frozen=True)
class Elements:
    """A part of a buffer, or of a pool that buffers lie in.

    Attributes:
        begin: the first element; of a pool the first byte.
        sizes, strides: in elements; of a pool in bytes, with one dimension more for the bytes of an element.
    """

    begin: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def end(self) -> int:
        """The element behind the last one; `begin` if there is none."""
        if 0 in self.sizes:
            return self.begin
        return self.begin + 1 + sum((n - 1) * step for n, step in zip(self.sizes, self.strides, strict=True))

    @property
    def count(self) -> int:
        """The number of elements."""
        total = 1
        for size in self.sizes:
            total *= size
        return total

    @property
    def is_dense(self) -> bool:
        """True if it has every element between its first and its last one."""
        covered = 1
        for step, size in sorted(zip(self.strides, self.sizes, strict=True)):
            if size > 1 and step != covered:
                return False
            covered *= size
        return True

    def elements(self) -> Iterator[int]:
        """All of them, in any order."""
        for index in product(*map(range, self.sizes)):
            yield self.begin + sum(i * step for i, step in zip(index, self.strides, strict=True))


WHOLE = Elements(0, (), ())  # a buffer that is passed as it is
UNKNOWN = Elements(-1, (), ())


def overlap(one: Elements, other: Elements) -> bool | None:
    """True if two parts of a buffer have an element in common; None if that is not known."""
    if WHOLE in (one, other):
        return True if UNKNOWN not in (one, other) else None
    if UNKNOWN in (one, other):
        return None
    if 0 in (one.count, other.count) or one.end <= other.begin or other.end <= one.begin:
        return False
    if one.is_dense and other.is_dense:
        return True
    if max(one.count, other.count) > _MOST:
        return None
    return not set(one.elements()).isdisjoint(other.elements())


class Memories:
    """The memory of the tensors of one function.

    Attributes:
        inputs, outputs: the variables that own the memory of the model's inputs and outputs.
        allocated: where buffers are allocated, by their variables: offsets into the wrapper's text.
    """

    def __init__(self, masked: str, body: Body) -> None:
        text = masked[body.opening : body.closing]
        self._bases: dict[str, str] = dict(variables(masked, body).bases)
        inputs = {m[1] for m in _GIVEN.finditer(text)}
        self._bases |= {m[1]: m[2] for m in _MOVED.finditer(text) if m[1] != m[2]}
        # An input that is not aligned is replaced by a copy: what reads it later reads either.
        self._bases |= {m[2]: m[1] for m in _ALIGNED.finditer(text) if m[1] in inputs}
        self._pooled = {m["handle"]: m for m in _FROM_POOL.finditer(text)}
        self._bases |= {handle: m["pool"] for handle, m in self._pooled.items()}
        self._bases |= {m[1]: m[2] for m in _OWNER.finditer(text) if m[2] in self._pooled}
        self._empty = {m["handle"]: m for m in _EMPTY.finditer(text)}
        self._arrays = {m[1]: _literals(m[2]) for m in _ARRAY.finditer(text)}
        self._views = {m[1]: (m[2], m[3], m[4], m[5]) for m in _NAMED_VIEW.finditer(text)}
        self.inputs = frozenset(map(self.owner, inputs))
        self.outputs = frozenset(self.owner(m[1]) for m in _RELEASED.finditer(text))
        self.allocated = {m[1]: body.opening + m.start() for m in _ALLOCATED.finditer(text)}
        self._moved = {m[2] for m in _MOVED.finditer(text)}
        self._ends = {m[1]: body.opening + m.start() for m in _RESET.finditer(text)}

    def owner(self, name: str) -> str:
        """The variable that owns the memory of a tensor."""
        return resolve_alias(name, self._bases)

    def freed(self, name: str) -> int | None:
        """The offset at which the memory of a buffer is given back; None if that is when the function returns."""
        handles = {name, *(other for other in self._bases if self.owner(other) == name)} - self._moved
        ends = [self._ends.get(handle) for handle in handles]
        return None if None in ends or name in self.outputs else max(end for end in ends if end is not None)

    def part(self, arg: Arg) -> Elements:
        """The elements of its memory that an argument holds: a launch that is passed it may touch all of them."""
        if match := _VIEW.search(arg.text):
            return self._view(match[1], match[2], match[3], match[4])
        tensor = expressions.tensor(arg.text)
        return self._of(tensor.variable if tensor else arg.base)

    def shared_bytes(self, one: Arg, other: Arg) -> tuple[int, int] | None:
        """The bytes of their memory, from the first to behind the last, that both arguments may touch.

        None if that is not known, or the parts have elements between each other's.
        """
        whole = self._whole(self.owner(one.base))
        parts = [whole if part == WHOLE else part for part in map(self.part, (one, other))]
        unit = self._item_bytes(self.owner(one.base))
        if unit is None or None in parts or UNKNOWN in parts:
            return None
        first, second = (part for part in parts if part is not None)
        begin, end = max(first.begin, second.begin), min(first.end, second.end)
        return (begin * unit, end * unit) if begin < end else None

    def _whole(self, owner: str) -> Elements | None:
        """All elements of the memory that a variable owns; of a pool in bytes. None if they are not known."""
        allocated = self._empty.get(f"{owner}_handle")
        sizes, strides = (
            None if allocated is None else self._arrays.get(allocated[name]) for name in ("sizes", "strides")
        )
        return None if sizes is None or strides is None else Elements(0, sizes, strides)

    def _item_bytes(self, owner: str) -> int | None:
        """The bytes of an element of the memory that a variable owns; of a pool 1. None if they are not known."""
        if any(match["pool"] == owner for match in self._pooled.values()):
            return 1
        allocated = self._empty.get(f"{owner}_handle")
        dtype = None if allocated is None else dtypes.of_name(allocated["dtype"])
        return None if dtype is None else dtype.item_bytes

    def _of(self, name: str) -> Elements:
        """The elements of its memory that a variable holds."""
        for variable in self._chain(name):
            if variable in self._views:
                return self._view(*self._views[variable])
            if variable in self._pooled:
                allocated = self._pooled[variable]
                if not _LITERAL.match(allocated["offset"].strip()):
                    return UNKNOWN
                offset = int(allocated["offset"].strip().rstrip("L"))
                return self._laid_out(variable, offset, allocated["sizes"], allocated["strides"])
        return WHOLE

    def _view(self, base: str, sizes: str, strides: str, begin: str) -> Elements:
        outer = self._of(base)
        unit = self._unit(base)
        if outer == UNKNOWN or unit is None:
            return UNKNOWN
        return self._laid_out(base, outer.begin + int(begin) * unit, sizes, strides)

    def _laid_out(self, name: str, begin: int, sizes: str, strides: str) -> Elements:
        """A part of the memory that a variable lies in, by the names of the arrays of its sizes and strides."""
        known_sizes, known_strides, unit = self._arrays.get(sizes), self._arrays.get(strides), self._unit(name)
        if known_sizes is None or known_strides is None or unit is None:
            return UNKNOWN
        if not any(variable in self._pooled for variable in self._chain(name)):
            return Elements(begin, known_sizes, known_strides)
        return Elements(begin, (*known_sizes, unit), (*(step * unit for step in known_strides), 1))

    def _unit(self, name: str) -> int | None:
        """The bytes of an element of a buffer that lies in a pool, None if they are unknown; of another one 1."""
        allocated = next((self._pooled[variable] for variable in self._chain(name) if variable in self._pooled), None)
        if allocated is None:
            return 1
        dtype = dtypes.of_name(allocated["dtype"])
        return None if dtype is None else dtype.item_bytes

    def _chain(self, name: str) -> tuple[str, ...]:
        """A variable, then what it is a view or a handle of, and so on."""
        chain = [name]
        while (base := self._bases.get(chain[-1])) is not None and base not in chain:
            chain.append(base)
        return tuple(chain)


def _literals(text: str) -> tuple[int, ...] | None:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not all(_LITERAL.match(word) for word in words):
        return None
    return tuple(int(word.rstrip("L")) for word in words)

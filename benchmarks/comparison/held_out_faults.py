"""Random edits of the source of a generated kernel, C++ or Triton: faults that no part of the comparison was made for.

The rules know the form of generated code, and nothing of operators, models, or of what a comparison looks at.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

Replacement = Callable[[re.Match[str], random.Random, str], str]
"""The text in place of a match, in a kernel with this source; the same text where there is nothing to change."""


@dataclass(frozen=True)
class Rule:
    """A kind of edit.

    Attributes:
        kind: a word of the table.
    """

    kind: str
    pattern: str
    replacement: Replacement


@dataclass(frozen=True)
class Fault:
    """One edit of the source of a kernel: `text` replaces [start, end)."""

    kind: str
    start: int
    end: int
    text: str
    before: str

    def __str__(self) -> str:
        return f"{self.before.strip()} -> {self.text.strip()}"


def faults(source: str, language: str, chance: random.Random) -> Iterator[Fault]:
    """Yields edits of a kernel in random order: first one of each kind that it has a place for.

    Args:
        language: "cpp" or "triton".
    """
    places: dict[str, list[tuple[Rule, re.Match[str]]]] = {}
    for rule in RULES[language]:
        for match in re.finditer(rule.pattern, source, re.MULTILINE):
            places.setdefault(rule.kind, []).append((rule, match))
    for found in places.values():
        chance.shuffle(found)
    while places:
        kinds = list(places)
        chance.shuffle(kinds)
        for kind in kinds:
            rule, match = places[kind].pop()
            text = rule.replacement(match, chance, source)
            if text != match[0]:
                yield Fault(kind, match.start(), match.end(), text, match[0])
        places = {kind: found for kind, found in places.items() if found}


def kernel_span(text: str, kernel: str) -> tuple[int, int] | None:
    """Where the definition of a C++ kernel lies in the sources of all; None if it is not there."""
    definition = None
    for match in re.finditer(rf'extern "C"\s+void\s+{re.escape(kernel)}\([^;{{]*\{{', text):
        definition = match
    if definition is None:
        return None
    following = re.compile(r'extern "C"').search(text, definition.end())
    return definition.start(), len(text) if following is None else following.start()


def _as(template: str) -> Replacement:
    return lambda match, _chance, _source: match.expand(template)


def _shorter_loop(match: re.Match[str], chance: random.Random, _: str) -> str:
    """A loop without its first or its last step."""
    head, middle, end, tail, step = match["head"], match["middle"], int(match["end"]), match["tail"], int(match["step"])
    if step >= end:
        return match[0]
    first = chance.random() < 0.5
    return f"{head}{step if first else 0}L{middle}{end if first else end - step}L{tail}"


def _other_order(match: re.Match[str], _: random.Random, __: str) -> str:
    other = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
    return f"{match[1]} {other[match[2]]} {match[3]}"


def _fewer(match: re.Match[str], _: random.Random, __: str) -> str:
    return f"{match[1]}{int(match[2]) - 1}L{match[3]}" if int(match[2]) > 1 else match[0]


def _other_number(match: re.Match[str], chance: random.Random, _: str) -> str:
    """A constant that is another one: by a thousandth, by one, with the other sign."""
    text = match[2]
    if "inf" in text or "nan" in text.lower():
        return match[0]
    if re.fullmatch(r"-?\d+", text):
        return f"{match[1]}{int(text) + chance.choice((-1, 1))}{match[3]}"
    number = float(text)
    return f"{match[1]}{chance.choice((number * 1.001, number + 1.0, -number)) if number else 0.001!r}{match[3]}"


def _other_factor(match: re.Match[str], chance: random.Random, _: str) -> str:
    """An index whose stride is less: it stays inside of the buffer."""
    factor = int(match[1])
    return f"{chance.choice((factor - 1, factor // 2))}{match[2]}" if factor > 1 else match[0]


def _other_pointer(match: re.Match[str], chance: random.Random, source: str) -> str:
    """A load from another argument of the same type."""
    types = {name: kind for kind, name in re.findall(r"(?:const )?([\w:]+)\* (\w+_ptr\d+)", source)}
    types |= dict(re.findall(r"'(\w+_ptr\d+)': '(\*\w+)'", source))
    own = types.get(match[2])
    others = sorted(name for name, kind in types.items() if own is not None and kind == own and name != match[2])
    return f"{match[1]}{chance.choice(others)}" if others else match[0]


_MASKS = {"BFloat16": 0xFFFF0000, "Half": 0xFFFFE000, "Float8_e4m3fn": 0xFFF00000, "Float8_e5m2": 0xFFE00000}
_TRITON_MASKS = {"*bf16": -(1 << 16), "*fp16": -(1 << 13), "*fp8e4nv": -(1 << 20), "*fp8e5": -(1 << 21)}


def _truncated(match: re.Match[str], _: random.Random, __: str) -> str:
    """A store in few bits that rounds to zero."""
    mask, value = _MASKS[match["dtype"]], match["value"]
    if match["call"].startswith("at::vec"):
        return f"{match['call']}({value} & decltype({value})(c10::bit_cast<float>({mask:#x}u)))"
    return f"{match['call']}(c10::bit_cast<float>(c10::bit_cast<uint32_t>(float({value})) & {mask:#x}u))"


def _truncated_store(match: re.Match[str], _: random.Random, source: str) -> str:
    types = dict(re.findall(r"'(\w+_ptr\d+)': '(\*\w+)'", source))
    mask = _TRITON_MASKS.get(types.get(match[2], ""))
    if mask is None:
        return match[0]
    value = f"({match[4]}.to(tl.float32).to(tl.int32, bitcast=True) & {mask}).to(tl.float32, bitcast=True)"
    return f"{match[1]}{match[2]}{match[3]}{value}{match[5]}"


def _narrow_load(match: re.Match[str], _: random.Random, source: str) -> str:
    types = dict(re.findall(r"'(\w+_ptr\d+)': '(\*\w+)'", source))
    return f"{match[1]}.to(tl.int32).to(tl.int64)" if types.get(match[2]) == "*i64" else match[0]


_T = r"(tmp\d+)"
_LOOP = (
    r"(?P<head>tmp_acc\w* = [^\n]*\n(?:[^\n]*tmp_acc[^\n]*\n)*\s*(?:#pragma[^\n]*\n\s*)*"
    r"for\(int64_t (?P<name>x\d+)=static_cast<int64_t>\()0L"
    r"(?P<middle>\); (?P=name)<static_cast<int64_t>\()(?P<end>\d+)L"
    r"(?P<tail>\); (?P=name)\+=static_cast<int64_t>\((?P<step>\d+)L)"
)
_ROUNDED = (
    r"(?P<call>(?:at::vec::convert|c10::convert|static_cast)"
    r"<(?:at|c10)::(?P<dtype>BFloat16|Half|Float8_e4m3fn|Float8_e5m2)>)\((?P<value>tmp\d+)\)"
)
_NUMBER = r"(-?\d+(?:\.\d*)?(?:e[-+]?\d+)?)"

RULES: Mapping[str, tuple[Rule, ...]] = {
    "cpp": (
        Rule("off-by-one reduction", _LOOP, _shorter_loop),
        Rule("wrong mask", rf"(?<!\(0 <= ){_T} (<=|>=|<|>|==|!=) {_T}\b(?! &)", _other_order),
        Rule("wrong mask", rf"blendv\({_T}, {_T},", _as(r"blendv(\2, \1,")),
        Rule("wrong mask", rf"{_T} \? {_T} : {_T};", _as(r"\1 ? \3 : \2;")),
        Rule("wrong mask", r"(loadu\([^;\n]*, static_cast<int64_t>\()(\d+)L(\)\))", _fewer),
        Rule("dropped cast", rf"c10::convert<(?!int64_t>\(tmp1\)|float)\w[\w:]*>\({_T}\)", _as(r"\1")),
        Rule("dropped cast", rf"static_cast<u?int\d+_t>\({_T}\)", _as(r"\1")),
        Rule("swapped operands", rf"= {_T} (-|/|<<|>>|%) {_T};", _as(r"= \3 \2 \1;")),
        Rule("swapped operands", rf"(std::\w+|at::vec::\w+|mod)\({_T}, {_T}\)", _as(r"\1(\3, \2)")),
        Rule("swapped operands", rf"{_T}\.(\w+)\({_T}\)", _as(r"\3.\2(\1)")),
        Rule("stale buffer", r"(loadu\(|= )((?:in|out|in_out)_ptr\d+)(?= \+|\[)", _other_pointer),
        Rule("integer overflow", r"= (in_ptr\d+\[[^;]*\]);", _as(r"= decltype(\1 + 0)(static_cast<int32_t>(\1));")),
        Rule(
            "integer overflow",
            rf"= ({_T} [*+-] {_T}|decltype\(\w+\)\({_T} [*+-] {_T}\));",
            _as(r"= decltype(\1)(static_cast<int32_t>(\1));"),
        ),
        Rule(
            "integer overflow",
            r"= (at::vec::VectorizedN<int64_t,2>::loadu\([^;]*\));",
            _as(r"= at::vec::convert<int64_t,2,int32_t,1>(at::vec::convert<int32_t,1,int64_t,2>(\1));"),
        ),
        Rule("wrong stride", r"\b(\d+)(L\*x\d+)", _other_factor),
        Rule("rounding mode", _ROUNDED, _truncated),
        Rule("wrong constant", rf"(static_cast<(?:float|double)>\(){_NUMBER}(\))", _other_number),
        Rule("wrong constant", r"(= static_cast<int(?:32|64)_t>\()(-?\d+)(L?\);)", _other_number),
    ),
    "triton": (
        Rule("off-by-one reduction", r"(r0_mask = r0_index < )(r0_numel|\d+)", _as(r"\1\2 - 1")),
        Rule("off-by-one reduction", r"(tl\.range\()0(, r0_numel, R0_BLOCK)", _as(r"\1R0_BLOCK\2")),
        Rule("wrong mask", rf"{_T} (<=|>=|<|>|==|!=) {_T}\b", _other_order),
        Rule("wrong mask", rf"tl\.where\((\w+), {_T}, {_T}\)", _as(r"tl.where(\1, \3, \2)")),
        Rule("dropped cast", rf"{_T}\.to\(tl\.(?:u?int\d+|bfloat16|float16)\)", _as(r"\1")),
        Rule("swapped operands", rf"= \(?{_T} (-|/|<<|>>|%) {_T}\)?$", _as(r"= (\3 \2 \1)")),
        Rule("swapped operands", rf"((?:triton_helpers|libdevice)\.\w+)\({_T}, {_T}\)", _as(r"\1(\3, \2)")),
        Rule("stale buffer", r"(tl\.load\()(in_ptr\d+|in_out_ptr\d+)(?= \+)", _other_pointer),
        Rule("integer overflow", r"(tl\.load\((in_ptr\d+) \+ [^\n]*\))$", _narrow_load),
        Rule("wrong stride", r"\b(\d+)(\*(?:[xyz]\d+|r0_\d+))", _other_factor),
        Rule("rounding mode", rf"(tl\.store\()((?:in_)?out_ptr\d+)( \+ [^\n]*?, ){_T}(, )", _truncated_store),
        Rule("wrong constant", rf"(tmp\d+ = ){_NUMBER}($)", _other_number),
        Rule("wrong constant", r"(tl\.full\(\[[^\]]*\], )(-?\d+)(, tl\.int)", _other_number),
    ),
}

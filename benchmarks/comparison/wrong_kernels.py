"""Edits of generated code that make a kernel, or a call of one, wrong."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from aoti_debug.package.manifest import Role
from aoti_debug.runs.rundir.run_directory import RunDir

_KERNEL = re.compile(r'extern "C"\s+void\s+(\w+)\(')
_ARITHMETIC = ("add", "sub", "sum", "mean", "var", "layer_norm", "gelu", "silu", "erf", "cumsum")


@dataclass(frozen=True)
class Mutation:
    """A kind of edit.

    Attributes:
        kind: a word of the table.
        operators: operators of which one should be named; () if the edit belongs to none.
    """

    kind: str
    name: str
    pattern: str
    replacement: str
    operators: tuple[str, ...] = ()


IN_KERNELS = (
    Mutation(
        "swapped operands",
        "added for subtracted",
        r"(auto tmp\d+ = tmp\d+) - (tmp\d+;)",
        r"\1 + \2",
        ("sub", "softmax"),
    ),
    Mutation("wrong operator", "subtracted for added", r"(auto tmp\d+ = tmp\d+) \+ (tmp\d+;)", r"\1 - \2", _ARITHMETIC),
    Mutation(
        "swapped operands", "difference", r"auto (tmp\d+) = (tmp\d+) - (tmp\d+);", r"auto \1 = \3 - \2;", ("sub",)
    ),
    Mutation(
        "swapped operands",
        "quotient",
        r"auto (tmp\d+) = (tmp\d+) / (tmp\d+);",
        r"auto \1 = \3 / \2;",
        ("div", "mean", "var"),
    ),
    Mutation(
        "wrong operator",
        "left out a factor",
        r"auto (tmp\d+) = (tmp\d+) \* (tmp\d+);",
        r"auto \1 = \2;",
        ("mul", "rsqrt", "div"),
    ),
    Mutation(
        "off-by-one reduction",
        "16 short",
        r"(tmp_acc0 = 0;[^}]*?x(\d)<static_cast<int64_t>\()(\d+)L",
        r"\g<1>\g<3>L - 16L",
    ),
    Mutation(
        "wrong operator",
        "left out exp",
        r"(auto tmp\d+ = tmp\d+)\.exp\(\)",
        r"\1",
        ("exp", "softmax", "sigmoid", "silu"),
    ),
    Mutation("wrong operator", "left out clamp", r"at::vec::clamp_min\((tmp\d+), [^;]*\);", r"\1;", ("relu", "clamp")),
    Mutation("wrong stride", "row", r"(in_ptr\d \+ static_cast<int64_t>\(x\d) \+ (\d+)L\*(x\d)", r"\1 + \2L*(\3 ^ 1)"),
    Mutation("wrong offset", "dropped", r"(in_ptr\d \+ static_cast<int64_t>\()\d+L \+ ", r"\1"),
    Mutation(
        "wrong stride",
        "stored a row early",
        r"(\.store\(out_ptr\d \+ static_cast<int64_t>\(x\d) \+ (\d+)L\*(x\d)",
        r"\1 + \2L*(\3 ^ 1)",
    ),
    Mutation("wrong constant", "by a per cent", r"static_cast<float>\((\d+\.\d+)\)", r"static_cast<float>(\1 * 1.01)"),
    Mutation("wrong mask", "inverted", r"blendv\((tmp\d+), (tmp\d+), ", r"blendv(\2, \1, ", ("where", "masked_fill")),
    Mutation(
        "wrong mask",
        "branches",
        r"(auto tmp\d+ = decltype\((tmp\d+)\)::blendv\()(tmp\d+), (tmp\d+), ",
        r"\1\4, \3, ",
        ("where", "masked_fill"),
    ),
    Mutation(
        "wrong operator", "maximum", r"at::vec::maximum\(x, y\)", r"at::vec::minimum(x, y)", ("amax", "max", "softmax")
    ),
    Mutation(
        "dropped cast",
        "rounded",
        r"c10::convert<int32_t>\((tmp\d+)\)",
        r"c10::convert<int32_t>(\1 + 0.5f)",
        ("convert",),
    ),
    Mutation(
        "rounding mode",
        "to zero, bfloat16",
        r"at::vec::convert<at::BFloat16>\((tmp\d+)\)",
        r"at::vec::convert<at::BFloat16>(\1 - \1 * decltype(\1)(0.00195312f))",
    ),
    Mutation(
        "rounding mode",
        "to zero, float16",
        r"at::vec::convert<at::Half>\((tmp\d+)\)",
        r"at::vec::convert<at::Half>(\1 - \1 * decltype(\1)(0.000244140f))",
    ),
    Mutation(
        "integer overflow",
        "32 bits",
        r"(auto (tmp\d+) = tmp\d+ \* tmp\d+;)(?=[^}]*int64_t)",
        r"\1 \2 = decltype(\2)(static_cast<int32_t>(\2));",
        ("mul",),
    ),
    Mutation("wrong constant", "modulus", r"static_cast<int32_t>\(7\)", r"static_cast<int32_t>(8)", ("remainder",)),
    Mutation("wrong operator", "tanh for erf", r"(tmp\d+)\.erf\(\)", r"\1.tanh()", ("erf", "gelu")),
    Mutation("wrong operator", "rsqrt left out", r"(auto tmp\d+ = tmp\d+)\.rsqrt\(\)", r"\1", ("rsqrt", "sqrt")),
    Mutation("wrong operator", "tanh left out", r"(auto tmp\d+ = tmp\d+)\.tanh\(\)", r"\1", ("tanh", "gelu")),
)
IN_WRAPPER = (
    Mutation("fallback", "without its bias", r"(addmm_out\([^;]*), 1L, 1L\)\);", r"\1, 1L, 0L));", ("addmm",)),
    Mutation("fallback", "half the product", r"(addmm_out\([^;]*), 1L, 1L\)\);", r"\1, 2L, 1L));", ("addmm",)),
    Mutation(
        "wrong stride",
        "untransposed weight",
        r"(int_array_\d+\[\] = \{(\d+)L, \2L\};\n[^\n]*int_array_\d+\[\] = \{)1L, \2L(\};)",
        r"\g<1>\2L, 1L\3",
        ("addmm", "mm", "permute"),
    ),
)


@dataclass(frozen=True)
class Plant:
    """One edit of the generated code of a model.

    Attributes:
        place: "kernels" or "wrapper".
        kernel: of which the source is edited; "" for a call.
        text: replaces [start, end).
    """

    kind: str
    name: str
    operators: tuple[str, ...]
    place: str
    kernel: str
    start: int
    end: int
    text: str


def plants(texts: Mapping[str, str], run: RunDir, chance: random.Random) -> Iterator[Plant]:
    """Yields edits in a varied order: one of each name in turn.

    Args:
        texts: the sources of kernels and of the wrapper.
        run: of the right package.
    """
    possible = [*_in_kernels(texts["kernels"]), *_in_wrapper(texts["wrapper"]), *_other_buffers(texts["wrapper"], run)]
    chance.shuffle(possible)
    while possible:
        seen: set[str] = set()
        for plant in list(possible):
            if plant.name not in seen:
                seen.add(plant.name)
                possible.remove(plant)
                yield plant


def _in_kernels(text: str) -> Iterator[Plant]:
    kernels = [(match.start(), match.group(1)) for match in _KERNEL.finditer(text)]
    for mutation in IN_KERNELS:
        for match in re.finditer(mutation.pattern, text):
            kernel = next((name for start, name in reversed(kernels) if start < match.start()), "")
            if kernel:
                yield _plant(mutation, "kernels", kernel, match)


def _in_wrapper(text: str) -> Iterator[Plant]:
    for mutation in IN_WRAPPER:
        for match in re.finditer(mutation.pattern, text):
            yield _plant(mutation, "wrapper", "", match)


def _plant(mutation: Mutation, place: str, kernel: str, match: re.Match[str]) -> Plant:
    replaced = match.expand(mutation.replacement)
    return Plant(mutation.kind, mutation.name, mutation.operators, place, kernel, match.start(), match.end(), replaced)


def _other_buffers(text: str, run: RunDir) -> Iterator[Plant]:
    """Calls that are passed another buffer of the same size: one of their others, or one of the launch before."""
    earlier: dict[tuple[object, ...], str] = {}
    for launch in run.launches:
        if launch.key.call or launch.site.subgraph:
            continue
        match = re.search(rf"^[^\n]*\b{re.escape(launch.kernel)}\([^\n]*;$", text, re.MULTILINE)
        for argument in launch.args:
            if argument.layout is None or argument.name != argument.spec.base:
                continue
            layout = (argument.layout.dtype, argument.layout.bytes)
            other = earlier.get(layout)
            is_read = argument.role is Role.IN and argument.name.startswith("buf")
            if match and is_read and other not in (None, argument.name) and not _is_reset(text, match.start(), other):
                call = re.sub(rf"\b{argument.name}\b", str(other), match.group(0))
                kind, name = "stale or reused buffer", "another buffer"
                yield Plant(kind, name, (), "wrapper", launch.kernel, match.start(), match.end(), call)
            earlier[layout] = argument.name


def _is_reset(text: str, end: int, name: str | None) -> bool:
    """True if a buffer is gone before a place in the wrapper."""
    return re.search(rf"\b{name}\.reset\(\)|std::move\({name}\)", text[text.index("::run_impl(") : end]) is not None

"""The kernels that a wrapper launches, their sources and binaries; functions of triton_helpers that sources call."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise

from aoti_debug.base.frozen import dataclass
from aoti_debug.instrument.wrapper.cpp_syntax.functions import triton_functions
from aoti_debug.instrument.wrapper.cpp_syntax.lexer import mask, without_comments
from aoti_debug.instrument.wrapper.launches.triton_functions import TritonFunction, parse
from aoti_debug.package.manifest import Kernel

HELPERS_MODULE = "triton_helpers"
_SECTION = re.compile(r"^(?:#include [^\n]*\n)*#include [<\"][^>\"\n]*cpp_prefix\.h[>\"]", re.MULTILINE)
_DEFINITION = re.compile(r"\bextern\b[^;{}()]*\bvoid\s+(\w+)\s*\([^()]*\)\s*\{")
# Kernels whose C++ has run once to compile them: a struct for each holds what came out, of macros above it.
_COMPILE_RESULT = re.compile(r"^static LazyKernelCompileResult (\w+) = \{([\w,\s]*)\};", re.MULTILINE)
_MACRO = re.compile(r"^#define (\w+) (.*\S)", re.MULTILINE)
_RESULT_FIELDS = (
    *("cubin_path", "mangled_name", "num_warps", "shared_mem", "xblocks", "yblocks", "zblocks", "r0blocks"),
    *("rsplit", "rsplit_size", "config_index", "global_scratch", "profile_scratch"),
    "tensordesc_meta",  # of torch 2.15; 2.14 ends before it
)


@dataclass(frozen=True)
class Definition:
    """A function, class or value at the top of a module.

    Attributes:
        text: its lines, decorators included.
        uses: names of the module, or of Python, that it refers to.
    """

    name: str
    text: str
    uses: frozenset[str]


def helper_definitions(text: str) -> dict[str, Definition]:
    """Returns the top-level definitions of a module's text by name, in order."""
    lines = text.splitlines(keepends=True)
    by_name = {}
    for node in ast.parse(text).body:
        for name in _defined(node):
            decorators = node.decorator_list if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else []
            first = min([node.lineno, *(d.lineno for d in decorators)]) - 1
            by_name[name] = Definition(
                name, "".join(lines[first : node.end_lineno]).strip("\n") + "\n", free_names(node)
            )
    return by_name


def closure(available: Mapping[str, Definition], names: Iterable[str]) -> tuple[Definition, ...]:
    """Returns the named definitions and all that they use, in the order of the text; unknown names are left out."""
    reached, open_ = set(), [name for name in names if name in available]
    while open_:
        name = open_.pop()
        if name not in reached:
            reached.add(name)
            open_ += [used for used in available[name].uses if used in available]
    return tuple(definition for name, definition in available.items() if name in reached)


def helpers_of(sources: Iterable[str], text: str) -> str:
    """Returns the part of the text of Inductor's helpers that kernel sources use."""
    names = {name for source in sources for name in attributes_of(ast.parse(source), HELPERS_MODULE)}
    return "\n\n".join(definition.text for definition in closure(helper_definitions(text), names))


def attributes_of(tree: ast.AST, module: str) -> dict[str, list[ast.Attribute]]:
    """Returns every `module.name` in a tree, by name."""
    attributes: dict[str, list[ast.Attribute]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == module:
            attributes.setdefault(node.attr, []).append(node)
    return attributes


def free_names(node: ast.AST) -> frozenset[str]:
    """Returns the names that a definition reads and does not bind itself."""
    names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
    return frozenset(n.id for n in names if isinstance(n.ctx, ast.Load)) - bound_names(node)


def bound_names(node: ast.AST) -> frozenset[str]:
    """Returns the parameters and variables of a function; none for other nodes."""
    if not isinstance(node, ast.FunctionDef):
        return frozenset()
    inside = [n for statement in node.body for n in ast.walk(statement)]
    return frozenset(
        [
            *(a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)),
            *(n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)),
        ]
    )


def _defined(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef() | ast.ClassDef():
            return [node.name]
        case ast.Assign():
            return [target.id for target in node.targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
    return []


def cpp_kernels(text: str) -> tuple[Kernel, ...]:
    """Returns the C++ kernels of a kernels text, each with the includes that it needs.

    A section begins at an `#include …cpp_prefix.h`, or at the includes directly before it, and ends before the next;
    a kernel's source is its whole section.
    """
    starts = [match.start() for match in _SECTION.finditer(text)] or [0]
    starts[0] = 0
    sections = (text[a:b] for a, b in pairwise((*starts, len(text))))
    return tuple(
        Kernel(name=name, language="cpp", source=section.strip() + "\n", sha256=_sha256(section.strip() + "\n"))
        for section in sections
        for name in _DEFINITION.findall(mask(section))
    )


def triton_kernels(functions: Iterable[TritonFunction]) -> tuple[Kernel, ...]:
    """Returns the Triton kernels that `launchKernel` starts, numbered from 0 in the order of their functions."""
    kernels: dict[str, Kernel] = {}
    for function in functions:
        launch = function.launch
        if launch is None or launch.kernel in kernels:
            continue
        kernels[launch.kernel] = Kernel(
            name=launch.kernel,
            language="triton",
            source=function.source,
            sha256=_sha256(function.source),
            id=len(kernels),
            mangled=function.mangled,
            cubin=function.cubin.rpartition("/")[2],
            num_warps=launch.num_warps,
            shared_bytes=launch.shared_bytes,
            overlaps=launch.overlaps,
            params=function.kernel_params,
            grid=launch.sizes,
            global_scratch=function.scratch.get("global_scratch", 0),
            profile_scratch=function.scratch.get("profile_scratch", 0),
            first_line=function.first_line,
        )
    return tuple(kernels.values())


def functions(text: str) -> Mapping[str, TritonFunction]:
    """Returns the `call_*` functions of a wrapper by name."""
    found: dict[str, TritonFunction] = {}
    compiled = _compile_results(text)
    for body in triton_functions(mask(text)):
        parsed = parse(text, body, compiled)
        if body.name in found:
            parsed = replace(parsed, launch=None, unread=f"a second function {body.name}")
        found[body.name] = parsed
    return found


def _compile_results(text: str) -> Mapping[str, str]:
    """Returns the literals of the fields of compile results: {"k_result.num_warps": "4", "k_result.xblocks[0]": "128"}.

    None of a struct that has other fields, that something changes, or whose macros are not all defined once.
    """
    code = without_comments(text)
    macros: dict[str, list[str]] = {}
    for name, value in _MACRO.findall(code):
        macros.setdefault(name, []).append(value)
    literals: dict[str, str] = {}
    for match in _COMPILE_RESULT.finditer(code):
        result, names = match[1], re.findall(r"\w+", match[2])
        expected = [f"{result.removesuffix('_result').upper()}_{field.upper()}" for field in _RESULT_FIELDS]
        values = [macros.get(name, []) for name in names]
        is_known = names in (expected, expected[:-1]) and all(len(value) == 1 for value in values)
        if not is_known or _is_changed(result, code):
            continue
        for field, (value,) in zip(_RESULT_FIELDS, values, strict=False):
            if numbers := re.fullmatch(r"\{([^{}]*)\}", value):
                literals |= {f"{result}.{field}[{i}]": number.strip() for i, number in enumerate(numbers[1].split(","))}
            else:
                literals[f"{result}.{field}"] = value
    return literals


def _is_changed(result: str, code: str) -> bool:
    """True if a struct is mentioned where it may be more than read: each mention but one is to read a field."""
    read = rf"\b{result}\.\w+(?:\[\d+\]|\.\w+\b(?!\()|\.size\(\))*\s*(?:[-,;)+]|!=|/(?!=)|\*(?!=))(?![-+=])"
    return len(re.findall(rf"\b{result}\b", code)) != 1 + len(re.findall(rf"(?<![&+-]){read}", code))


def shared_cubins(text: str) -> tuple[str, ...]:
    """Returns the paths from which a wrapper loads two different Triton kernels.

    Kernel binaries that are named after their kernel collide when one kernel is specialised twice: the second then
    runs the machine code of the first.
    """
    sources: dict[str, set[str]] = {}
    for function in functions(text).values():
        if function.cubin and function.launch:
            specialised = replace(function, name="", launch=replace(function.launch, statement=0))
            sources.setdefault(function.cubin, set()).add(repr(specialised))
    return tuple(path for path, kernels in sources.items() if len(kernels) > 1)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

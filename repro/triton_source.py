"""A Triton kernel's source as Inductor wrote it, as Python that needs triton alone; what Triton specialised it for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping

from aoti_debug.base.errors import UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.instrument.wrapper.launches.kernels import (
    HELPERS_MODULE,
    Definition,
    attributes_of,
    bound_names,
    closure,
    free_names,
    helper_definitions,
)
from aoti_debug.package.manifest import Kernel
from aoti_debug.repro.literals import RESERVED

DIVISIBILITY = ["tt.divisibility", 16]
BASIC = ("import triton", "import triton.language as tl")
# Names that Inductor's modules take from elsewhere, and where they come from.
IMPORTS = {
    "libdevice": "from triton.language.extra import libdevice",
    "tl_math": "from triton.language import math as tl_math",
    "_log2": "from triton.language.standard import _log2",
    "pymath": "import math as pymath",
}
HELPERS_MATH = {"math": "tl_math"}  # as the helpers' own module calls it -> as kernels do
COMPILE_TIME = frozenset({"constexpr_next_power_of_2", "if_mask"})  # these are in templates/compile_time.py
KEPT_DECORATORS = re.compile(r"triton\.(jit|constexpr_function)\b")
TAKEN = RESERVED | {"LaunchArgument", "Binary", "Path", "Result", "Storage", "TritonKernel", "triton", "tl", "FOLDER"}


@dataclass(frozen=True)
class Specialisation:
    """The values that a kernel was compiled for.

    Attributes:
        signature: parameter -> Triton's name of its type, "constexpr" for one that is compiled in; in order.
        constants: the values of those, as Python source.
        divisible: parameters whose address or value is taken for a multiple of 16.
        num_stages: None where the package does not say its configuration; constants are missing then, too.
        options: further options of the compilation, as Python source.
    """

    signature: Mapping[str, str]
    constants: Mapping[str, str]
    divisible: tuple[str, ...]
    num_stages: int | None
    options: Mapping[str, str]


def specialisation(kernel: Kernel) -> Specialisation:
    """Reads them from the kernel's source and configuration.

    Raises:
        UsageError: the source does not say what it was compiled for, or says it in a way that is not known.
    """
    function = kernel_of(ast.parse(kernel.source))
    metas = {
        keyword.arg: _items(keyword.value)
        for decorator in function.decorator_list
        if isinstance(decorator, ast.Call)
        for keyword in decorator.keywords
        if keyword.arg in ("triton_meta", "inductor_meta") and isinstance(keyword.value, ast.Dict)
    }
    if "triton_meta" not in metas:
        raise UsageError(f"the source of {kernel.name} does not say for which types it was compiled")
    meta, inductor = metas["triton_meta"], metas.get("inductor_meta", {})
    signature = {name: str(ast.literal_eval(kind)) for name, kind in _items(meta["signature"]).items()}
    config = dict(kernel.config)
    constants = {name: ast.unparse(value) for name, value in _items(meta["constants"]).items()}
    arguments = [a.arg for a in function.args.args]
    constants |= {name: value for name, value in config.items() if name in arguments}
    return Specialisation(
        signature=signature,
        constants=constants,
        divisible=_divisible(meta["configs"], list(signature), kernel.name),
        num_stages=int(config["num_stages"]) if "num_stages" in config else None,
        options=_options(meta, inductor),
    )


def _items(node: ast.expr) -> dict[str, ast.expr]:
    """The entries of a dictionary's source whose keys are strings.

    Raises:
        UsageError: it is no dictionary.
    """
    if not isinstance(node, ast.Dict):
        raise UsageError(f"the kernel's source does not list what it was compiled for: {ast.unparse(node)}")
    return {
        str(key.value): value
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }


def _divisible(configs: ast.expr, names: list[str], kernel: str) -> tuple[str, ...]:
    """From `[{(0,): [['tt.divisibility', 16]], …}]`."""
    attributes = ast.literal_eval(configs)[0]
    if any(len(index) != 1 or values not in ([], [DIVISIBILITY]) for index, values in attributes.items()):
        raise UsageError(f"{kernel} was compiled with assumptions that are not known: {attributes}")
    return tuple(names[index] for (index,), values in attributes.items() if values)


def _options(meta: Mapping[str, ast.expr], inductor: Mapping[str, ast.expr]) -> dict[str, str]:
    """The options as Inductor passes them to triton.compile."""
    asserts = inductor.get("assert_indirect_indexing")
    options = {
        "debug": "True" if asserts is None else ast.unparse(asserts),
        "sanitize_overflow": "False",
        "enable_fp_fusion": "True",  # Triton's default where Inductor does not say it; later versions have another
    }
    for name in ("enable_fp_fusion", "launch_pdl", "launch_cooperative_grid"):
        if name in meta:
            options[name] = ast.unparse(meta[name])
    if "backend_options" in meta:  # that a launch of the user's kernel is given, as kernel[grid](..., launch_pdl=True)
        options |= {name: ast.unparse(value) for name, value in _items(meta["backend_options"]).items()}
    if "disable_ftz" in meta and ast.literal_eval(meta["disable_ftz"]):
        options["enable_reflect_ftz"] = "False"
    return options


@dataclass(frozen=True)
class TritonSource:
    """A kernel's source that needs triton alone.

    Attributes:
        function: the kernel's name in `text`.
        imports: import statements of triton's modules and of Python's.
        compile_time: what it needs of templates/compile_time.py.
        text: helpers first, the kernel last.
        helpers: Inductor's functions that were inlined.
    """

    function: str
    imports: tuple[str, ...]
    compile_time: tuple[str, ...]
    text: str
    helpers: tuple[str, ...]


def standalone_source(source: str, helpers: str) -> TritonSource:
    """Inlines the helpers that a kernel calls and removes what belongs to Inductor.

    Args:
        source: as Inductor compiled it, with its decorators.
        helpers: the text that Inductor's helper functions are found in.

    Raises:
        UsageError: it uses something of torch that is not among the helpers, or is no Python.
    """
    try:
        tree, known = ast.parse(source), helper_definitions(helpers)
    except SyntaxError as error:
        raise UsageError(f"the kernel's source is not valid Python: {error}") from error
    kept = [node for node in tree.body if not _is_plumbing(node)]
    kernel = kernel_of(tree)
    called = {name for node in kept for name in _used_helpers(node)}
    inlined = closure(known, called - COMPILE_TIME)
    needed = called | {name for d in inlined for name in d.uses}
    missing = sorted(called - COMPILE_TIME - known.keys())
    if missing:
        listed = ", ".join(f"{HELPERS_MODULE}.{name}" for name in missing)
        raise UsageError(
            f"the kernel calls {listed}, whose source is not in the package",
            hint="build the package again with this version of aoti-debug",
        )
    defined = {name for node in kept for name in top_level_names(node)}
    names = _helper_names([d.name for d in inlined], {*defined, *(n for node in kept for n in bound_names(node))})
    moved = {name: f"{name}_kernel" for name in defined if name in TAKEN}
    free = {n for node in kept for n in free_names(node)} | {HELPERS_MATH.get(n, n) for d in inlined for n in d.uses}
    own = [_text_of(node, source, names, moved) for node in kept if not isinstance(node, (ast.Import, ast.ImportFrom))]
    imports = [ast.unparse(node) for node in kept if isinstance(node, (ast.Import, ast.ImportFrom))]
    return TritonSource(
        function=moved.get(kernel.name, kernel.name),
        imports=tuple(dict.fromkeys([*BASIC, *(IMPORTS[n] for n in IMPORTS if n in free), *imports])),
        compile_time=tuple(sorted(COMPILE_TIME & needed)),
        text="\n\n".join([*(_inlined(d, names) for d in inlined), *own]),
        helpers=tuple(names.values()),
    )


def kernel_of(tree: ast.Module) -> ast.FunctionDef:
    """The kernel among a source's functions: the one that Inductor's heuristics decorate, else the last.

    Raises:
        UsageError: there is no function.
    """
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    if not functions:
        raise UsageError("the kernel's source holds no function")
    heuristics = (f for f in functions if any("heuristics" in ast.unparse(d) for d in f.decorator_list))
    return next(heuristics, functions[-1])


def _is_plumbing(node: ast.stmt) -> bool:
    """Imports that are written anew, and statements that set Inductor up."""
    match node:
        case ast.Import(names=names):
            return all(a.name.split(".")[0] in ("torch", "triton") for a in names)
        case ast.ImportFrom(module=module):
            return (module or "").split(".")[0] in ("torch", "__future__")
        case ast.Expr():
            return True
    return False


def _used_helpers(node: ast.AST) -> Iterable[str]:
    if isinstance(node, ast.FunctionDef):
        return [n for part in (node.args, *node.body) for n in attributes_of(part, HELPERS_MODULE)]
    return attributes_of(node, HELPERS_MODULE)


def top_level_names(node: ast.stmt) -> Iterable[str]:
    """Returns the names that a top-level statement defines."""
    if isinstance(node, ast.FunctionDef):
        return [node.name]
    return [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]


def _helper_names(helpers: Iterable[str], taken: set[str]) -> dict[str, str]:
    """Helper -> its name here: its own, unless the kernel or repro.py uses that."""
    return {name: f"helper_{name}" if name in taken or name in TAKEN else name for name in helpers}


def _inlined(definition: Definition, names: Mapping[str, str]) -> str:
    renamed = {**HELPERS_MATH, **{old: new for old, new in names.items() if old != new}}
    node = ast.parse(definition.text).body[0]
    return _edited(definition.text, _renaming(node, renamed)).rstrip("\n") + "\n"


def _text_of(node: ast.stmt, source: str, names: Mapping[str, str], moved: Mapping[str, str]) -> str:
    """A statement's own lines, without Inductor's decorators, calling the helpers by their names here."""
    first, decorators = node.lineno, []
    if isinstance(node, ast.FunctionDef):
        written = [f"@{ast.unparse(d)}\n" for d in node.decorator_list]
        decorators = [line for line in written if KEPT_DECORATORS.match(line[1:])]
    lines = source.splitlines(keepends=True)[first - 1 : node.end_lineno]
    text = "".join([*decorators, *lines]).rstrip("\n") + "\n"
    tree = ast.parse(text).body[0]
    edits = _renaming(tree, moved)
    for name, attributes in attributes_of(tree, HELPERS_MODULE).items():
        edits += [(a, names.get(name, name)) for a in attributes]
    return _edited(text, edits)


def _renaming(node: ast.AST, names: Mapping[str, str]) -> list[tuple[ast.expr | ast.FunctionDef, str]]:
    """The edits that rename a definition and the outside names that it reads."""
    bound = bound_names(node)
    edits: list[tuple[ast.expr | ast.FunctionDef, str]] = [
        (n, names[n.id]) for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in names and n.id not in bound
    ]
    if isinstance(node, ast.FunctionDef) and node.name in names:
        edits.append((node, names[node.name]))
    return edits


def _edited(text: str, edits: Iterable[tuple[ast.expr | ast.FunctionDef, str]]) -> str:
    """The text with each node's own characters, or a function's name, replaced."""
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    for node, new in sorted(edits, key=lambda edit: (edit[0].lineno, edit[0].col_offset), reverse=True):
        line = lines[node.lineno - 1]
        if isinstance(node, ast.FunctionDef):
            begin = line.index(b"def ", node.col_offset) + len(b"def ")
            end = begin + len(node.name.encode())
        else:
            assert node.end_col_offset is not None
            begin, end = node.col_offset, node.end_col_offset
        lines[node.lineno - 1] = line[:begin] + new.encode() + line[end:]
    return b"".join(lines).decode()

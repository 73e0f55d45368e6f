"""The modules of a running script that register operators or types of inputs: other processes import them as well.

Of the script itself only what its operators need is taken: a module of the same lines, the others empty. To import the
script would run it again.
"""

from __future__ import annotations

import ast
import functools
import os
import re
import shutil
import symtable
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from aoti_debug.app.execute.script_environment import AfterImport

_MAIN = ("__main__", "__mp_main__")
_NOT_USERS = ("torch", "aoti_debug", "importlib", "functools")
# What a statement of a script says that registers an operator, an implementation of one, or a type.
_REGISTER = frozenset(
    {
        *("custom_op", "triton_op", "Library", "define", "impl", "register_kernel", "register_fake", "impl_abstract"),
        *("register_autocast", "register_torch_dispatch", "register_vmap", "load_library", "load_inline"),
        *("register_dataclass", "register_pytree_node", "_register_pytree_node"),
    }
)


class OperatorModules:
    """The names of the modules that register something, in the order in which they do."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}

    def watch(self) -> None:
        """Notes who registers operators, implementations and types from now on, or from the import of torch on."""
        if "torch" in sys.modules:
            self._watch(sys.modules["torch"])
        else:
            sys.meta_path.insert(0, AfterImport({"torch": self._watch}))

    def _watch(self, torch: Any) -> None:
        places = ((torch._C, "_dispatch_library"), (torch.utils._pytree, "_private_register_pytree_node"))
        for place, name in places:
            if hasattr(place, name):
                setattr(place, name, self._noting(getattr(place, name)))

    def _noting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            self._names.setdefault(_users_module())
            return function(*args, **kwargs)

        return call

    def imports(self, folder: Path) -> tuple[str, ...]:
        """The names of the modules to import, that of the script's operators among them, whose module is written.

        In this process that module is the script.

        Args:
            folder: for it; made if need be.
        """
        found = []
        for name in self._names:
            if name not in _MAIN:
                found.append(name)
            elif (made := _module_of_main(sys.modules["__main__"], folder)) and made not in found:
                found.append(made)
        return tuple(name for name in found if name)


def _users_module() -> str:
    """The name of the module whose code calls torch."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] not in _NOT_USERS:
            return name
        frame = frame.f_back
    return ""


def _module_of_main(main: Any, folder: Path) -> str:
    """Writes the module of a script's operators, and returns its name; "" if there is none."""
    file = getattr(main, "__file__", None)
    if file is None:
        return ""
    path = Path(file)
    text = operators_of(path.read_text(encoding="utf-8"))
    if not text:
        return ""
    name = re.sub(r"\W", "_", f"{path.stem}_operators")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(text, encoding="utf-8")
    sys.modules.setdefault(name, main)
    return name


def find_in(*folders: Path) -> None:
    """Lets this process and those that it starts find the modules of these folders."""
    found = [str(folder) for folder in folders]
    sys.path += found
    os.environ["PYTHONPATH"] = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), *found])


def copy_beside(repro: Path, folder: Path) -> None:
    """Puts the modules of a folder beside the scripts of a repro, which import them.

    Args:
        repro: its folder, or its only script.
    """
    for module in folder.glob("*.py"):
        shutil.copy(module, repro if repro.is_dir() else repro.parent)


def operators_of(source: str) -> str:
    """The statements of a script that register operators and types, and those that they need; each in its line.

    Returns:
        "" if none does.
    """
    statements = [node for node in ast.parse(source).body if not _is_main_guard(node)]
    kept = {number for number, node in enumerate(statements) if _registers(node)}
    if not kept:
        return ""
    kept |= {number for number, node in enumerate(statements) if isinstance(node, ast.Import | ast.ImportFrom)}
    bound = [frozenset(_bound(node)) for node in statements]
    while True:
        needed = {name for number in kept for name in _used(statements[number])}
        more = {number for number, names in enumerate(bound) if names & needed} - kept
        if not more:
            break
        kept |= more
    lines = source.splitlines()
    wanted = {line for number in kept for line in _lines(statements[number])}
    return "\n".join(line if number in wanted else "" for number, line in enumerate(lines, 1)) + "\n"


def _is_main_guard(node: ast.stmt) -> bool:
    """True for `if __name__ == "__main__":`."""
    return isinstance(node, ast.If) and any(
        isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test)
    )


def _registers(node: ast.stmt) -> bool:
    names = (part.attr if isinstance(part, ast.Attribute) else getattr(part, "id", "") for part in ast.walk(node))
    imported = isinstance(node, ast.Import | ast.ImportFrom)
    return not imported and any(name in _REGISTER for name in names)


def _bound(node: ast.stmt) -> Iterator[str]:
    """The names that a statement of the module binds there."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from (part.id for part in ast.walk(target) if isinstance(part, ast.Name))
    elif isinstance(node, ast.If | ast.Try | ast.With):
        for part in ast.iter_child_nodes(node):
            if isinstance(part, ast.stmt):
                yield from _bound(part)


def _used(node: ast.stmt) -> Iterator[str]:
    """The names of the module that a statement refers to."""
    tables = [symtable.symtable(ast.unparse(node), "script", "exec")]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        is_module = table.get_type() == "module"
        yield from (symbol.get_name() for symbol in table.get_symbols() if is_module or symbol.is_global())


def _lines(node: ast.stmt) -> range:
    """The lines of a statement, with its decorators."""
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
    return range(first, (node.end_lineno or node.lineno) + 1)

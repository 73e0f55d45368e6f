"""Changes one token of a core module at a time and says which changes the tests beside it do not notice.

usage: python -m benchmarks.quality.mutants [--count N] [--seed N] [--only GROUP ...] [--jobs N]

Prints a Markdown table, and every surviving change on stderr. Exits with 1 if fewer than 90 % are noticed; changes that
`mutants_equivalent.txt` lists, because no test can tell them from the original, are left out. A change is noticed if a
test fails or does not end. The files on the disk are never changed: each change is imported in a fork.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import importlib.abc
import importlib.util
import io
import os
import random
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType

import pytest

from benchmarks.checkout import ROOT

EQUIVALENT = Path(__file__).with_name("mutants_equivalent.txt")
WANTED = 0.9
PATIENCE = 60  # seconds of processor time that the tests of one change may take
LONGEST = 600.0  # seconds, if they wait instead
FAILED, NO_TESTS = 1, 5
PRELOADED = ("torch", "numpy", "safetensors", "click", "jinja2", "pygments", "rich.console", "_pytest", "xdist")


@dataclass(frozen=True)
class Group:
    """Modules, and the tests beside them.

    Attributes:
        share: of all changes, in parts of the sum of all groups.
    """

    name: str
    modules: tuple[str, ...]  # glob patterns
    tests: tuple[str, ...]
    share: int


GROUPS = (
    Group(
        "diagnose",
        ("aoti_debug/runs/diagnosis/diagnose.py", "aoti_debug/runs/diagnosis/verdict_text.py"),
        ("tests/runs/diagnosis/test_diagnose.py", "tests/runs/diagnosis/test_verdict_text.py"),
        4,
    ),
    Group("dataflow", ("aoti_debug/runs/diagnosis/dataflow.py",), ("tests/runs/diagnosis/test_dataflow.py",), 3),
    Group(
        "journal",
        ("aoti_debug/runs/rundir/formats/journal*.py",),
        ("tests/runs/rundir/formats/test_journal.py", "tests/runs/rundir/test_run_directory.py"),
        4,
    ),
    Group(
        "launches",
        ("aoti_debug/runs/rundir/launch.py", "aoti_debug/runs/rundir/timeline.py"),
        ("tests/runs/rundir/test_timeline.py", "tests/runs/rundir/test_run_directory.py"),
        4,
    ),
    Group("wrapper", ("aoti_debug/instrument/wrapper/**/*.py",), ("tests/instrument/wrapper",), 8),
    Group(
        "archive",
        ("aoti_debug/package/pt2/archive.py", "aoti_debug/package/pt2/archive.py"),
        ("tests/package/pt2/test_archive.py", "tests/package/pt2/test_archive.py"),
        4,
    ),
    Group(
        "input checks",
        ("aoti_debug/package/inputs/validate.py", "aoti_debug/package/inputs/input_files.py"),
        ("tests/package/inputs",),
        4,
    ),
    Group("compare", ("repro/templates/compare.py",), ("tests/repro/test_compare.py",), 3),
    Group("contracts", ("aoti_debug/triage/contracts/*.py",), ("tests/triage/contracts",), 4),
    Group(
        "walk_back",
        ("aoti_debug/triage/memory_errors/explain_access.py",),
        ("tests/triage/memory_errors/test_walk_back.py",),
        3,
    ),
    Group("nonfinite", ("aoti_debug/triage/nonfinite/*.py",), ("tests/triage/nonfinite",), 5),
)

_COMPARED = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_COMPUTED = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_CALLED = {"any": "all", "all": "any", "min": "max", "max": "min"}


@dataclass(frozen=True)
class Mutant:
    """A module with one token changed."""

    group: Group
    path: str  # relative to the root
    line: int
    change: str
    source: str

    @property
    def title(self) -> str:
        """The place and the change, as `mutants_equivalent.txt` lists it: without the number of the line."""
        return f"{self.path}: {self.change}"


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """Copies of a node with one token changed."""
    if isinstance(node, ast.Compare):
        for index, operator in enumerate(node.ops):
            compared = copy.deepcopy(node)
            compared.ops[index] = _COMPARED[type(operator)]()
            yield compared
    elif isinstance(node, ast.BoolOp):
        joined = copy.deepcopy(node)
        joined.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        yield joined
    elif isinstance(node, ast.BinOp) and type(node.op) in _COMPUTED:
        computed = copy.deepcopy(node)
        computed.op = _COMPUTED[type(node.op)]()
        yield computed
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        yield ast.Constant(node.value + 1)
    elif isinstance(node, ast.Name) and node.id in _CALLED:
        yield ast.Name(_CALLED[node.id], node.ctx)
    elif isinstance(node, ast.Continue):
        yield ast.Break()
    elif isinstance(node, ast.Break):
        yield ast.Continue()


def mutants_of(group: Group, path: Path) -> list[Mutant]:
    """Every change of one token of a module, outside of annotations and decorators."""
    text = path.read_text()
    tree = ast.parse(text)
    name = str(path.relative_to(ROOT))
    found: dict[str, Mutant] = {}
    for parent, field, index, node in list(_places(tree)):
        for changed in changes(node):
            _put(parent, field, index, changed)
            change = f"{ast.unparse(node)} → {ast.unparse(changed)}"
            source = ast.unparse(ast.fix_missing_locations(tree))
            found.setdefault(source, Mutant(group, name, getattr(node, "lineno", 0), change, source))
            _put(parent, field, index, node)
    return list(found.values())


def _places(tree: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    for field, value in ast.iter_fields(tree):
        if field in ("annotation", "returns", "decorator_list"):
            continue
        for index, child in enumerate(value) if isinstance(value, list) else ((None, value),):
            if isinstance(child, ast.AST):
                yield tree, field, index, child
                yield from _places(child)


def _put(parent: ast.AST, field: str, index: int | None, node: ast.AST) -> None:
    if index is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[index] = node


class _Loader(importlib.abc.InspectLoader):
    """Loads one module from a changed source."""

    def __init__(self, source: str, path: Path) -> None:
        self.source, self.path = source, path

    def get_source(self, fullname: str) -> str:
        return self.source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.source, str(self.path), "exec")

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = str(self.path)
        exec(self.get_code(module.__name__), module.__dict__)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        path = Path(mutant.path)
        parts = ("aoti_debug", *path.parts) if path.parts[0] == "repro" else path.parts
        self.name = ".".join(parts).removesuffix(".py").removesuffix(".__init__")
        self.package = path.name == "__init__.py"
        self.loader = _Loader(mutant.source, ROOT.joinpath(*parts))

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        spec = importlib.util.spec_from_loader(fullname, self.loader, is_package=self.package)
        assert spec is not None
        spec.origin, spec.has_location = str(self.loader.path), True
        if self.package:
            spec.submodule_search_locations = [str(self.loader.path.parent)]
        return spec


def is_noticed(tests: Sequence[str], mutant: Mutant | None) -> bool:
    """Runs tests with a change, or without one, in a fork."""
    child = os.fork()
    if child == 0:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (PATIENCE, PATIENCE))
        code = FAILED
        try:
            if mutant is not None:
                sys.meta_path.insert(0, _Finder(mutant))
            silence = os.open(os.devnull, os.O_RDWR)
            for descriptor in range(3):
                os.dup2(silence, descriptor)
            options = ("-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:faulthandler")
            with contextlib.redirect_stdout(io.StringIO()):
                code = int(pytest.main([*options, *tests]))
        finally:
            os._exit(code)
    deadline = time.monotonic() + LONGEST
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            if code == NO_TESTS:
                raise SystemExit(f"no tests: {' '.join(tests)}")
            return code != 0
        time.sleep(0.05)
    os.killpg(child, 9)
    os.waitpid(child, 0)
    return True


def sample(groups: Sequence[Group], count: int, seed: int) -> list[Mutant]:
    """Changes of the groups' modules, by chance, in the groups' shares."""
    chance = random.Random(seed)
    shares = sum(group.share for group in groups)
    chosen: list[Mutant] = []
    for group in groups:
        paths = sorted(path for pattern in group.modules for path in ROOT.glob(pattern))
        every = [mutant for path in paths for mutant in mutants_of(group, path)]
        chosen += chance.sample(every, min(len(every), -(-count * group.share // shares)))
    return chosen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=330)
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument("--only", nargs="*", choices=[group.name for group in GROUPS])
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    os.chdir(ROOT)
    for name in PRELOADED:
        importlib.import_module(name)
    groups = [group for group in GROUPS if not arguments.only or group.name in arguments.only]
    for group in groups:
        if is_noticed(group.tests, None):
            print(f"{group.name}: its tests fail without any change")
            return 1
    equivalent = {line.split("  # ")[0] for line in EQUIVALENT.read_text().splitlines() if line}
    mutants = [m for m in sample(groups, arguments.count, arguments.seed) if m.title not in equivalent]
    print("| modules | changes | noticed |\n|---|---|---|", flush=True)
    all_hits = 0
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for group in groups:
            of_group = [mutant for mutant in mutants if mutant.group is group]
            hits = sum(pool.map(_tried, of_group))
            all_hits += hits
            print(f"| {group.name} | {len(of_group)} | {hits} |", flush=True)
    share = all_hits / max(len(mutants), 1)
    print(f"| all | {len(mutants)} | {all_hits} ({share:.1%}) |")
    return 0 if share >= WANTED else 1


def _tried(mutant: Mutant) -> bool:
    noticed = is_noticed(mutant.group.tests, mutant)
    if not noticed:
        print(f"not noticed: {mutant.path}:{mutant.line}: {mutant.change}", file=sys.stderr, flush=True)
    return noticed


if __name__ == "__main__":
    sys.exit(main())

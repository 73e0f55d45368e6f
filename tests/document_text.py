"""Finds in Markdown text what can be checked: code, links, anchors, tables, and the names of things inside of code."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^ *```[^\n]*\n(.*?)^ *```[^\n]*$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"!?\[[^\]\n]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^(#+) +(.*?) *$", re.MULTILINE)
_MODULE = re.compile(r"(?<![\w/.])aoti_debug(?:\.[A-Za-z_]\w*)+")
_HEADER = "aoti_debug.h"
_SOURCE_FILE = re.compile(r"(?<![\w.])[\w./-]*\b[\w-]+\.(?:py|cpp|cu|h|md|toml|yaml)\b(?!\.\w)")
_VARIABLE = re.compile(r"\b(?:AOTI_DEBUG|AOT_INDUCTOR)_[A-Z_]*[A-Z]\b")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
_ANY_OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")
_COMMAND = re.compile(r"(?<![\w/])aoti-debug ([a-z]+)")
_SCRIPT = re.compile(r"(?:^|[ /])([a-z]\w*\.py)\b")
_SCRIPT_MODULE = re.compile(r"(?:^|[ /])python -m ((?:benchmarks|tests)(?:\.\w+)+)")
_TARGET = re.compile(r"(?:^|[ `])make ([a-z]+)")


@dataclass(frozen=True)
class OptionUse:
    """An option in a command line.

    Attributes:
        tool: "aoti-debug run", "repro.py", "benchmarks.triage.triage", "pytest"; "" where the option stands alone.
    """

    tool: str
    option: str


def prose(markdown: str) -> str:
    """The text without fenced blocks."""
    return _FENCE.sub("", markdown)


def inline_code(markdown: str) -> list[str]:
    return _INLINE.findall(prose(markdown))


def code_lines(markdown: str) -> list[str]:
    """Inline code, and the lines of fenced blocks without comments."""
    fenced = [line.partition(" # ")[0] for block in _FENCE.findall(markdown) for line in block.splitlines()]
    return inline_code(markdown) + fenced


def links(markdown: str) -> list[str]:
    """The targets of links and images."""
    return _LINK.findall(_INLINE.sub("", prose(markdown)))


def anchors(markdown: str) -> set[str]:
    """The anchors that GitHub makes of headings."""
    seen: Counter[str] = Counter()
    names = set()
    for _, title in _HEADING.findall(prose(markdown)):
        slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        names.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return names


def section(markdown: str, title: str) -> str:
    """The text below a heading, up to the next heading of the same or a higher level.

    Raises:
        LookupError: there is no such heading.
    """
    headings = list(_HEADING.finditer(markdown))
    for number, heading in enumerate(headings):
        if heading[2] == title:
            rest = [later.start() for later in headings[number + 1 :] if len(later[1]) <= len(heading[1])]
            return markdown[heading.end() : rest[0] if rest else len(markdown)]
    raise LookupError(f"no heading {title!r}")


def first_cells(markdown: str) -> list[str]:
    """The first cell of every row of the tables, without their heads."""
    lines = markdown.splitlines()
    rows = [n for n, line in enumerate(lines) if line.startswith("|")]
    rules = {n for n in rows if re.fullmatch(r"[|:\- ]+", lines[n])}
    return [lines[n].split("|")[1].strip() for n in rows if n not in rules and n + 1 not in rules]


def paths(lines: Collection[str], folders: Collection[str]) -> list[str]:
    """Paths that begin with one of these folders of the checkout; they may have wildcards."""
    alternatives = "|".join(map(re.escape, folders))
    pattern = re.compile(rf"(?<![\w./-])(?:{alternatives})/[\w./*-]*[\w*]")
    return [path for line in lines for path in pattern.findall(line)]


def source_files(lines: Collection[str]) -> list[str]:
    """Names of source files and documents, without their folders; placeholders such as FILE.py are left out."""
    names = [Path(path).name for line in lines for path in _SOURCE_FILE.findall(line)]
    return [name for name in names if not Path(name).stem.isupper() or (name.endswith(".md"))]


def modules(lines: Collection[str]) -> list[str]:
    """Dotted names that begin with `aoti_debug`."""
    return [name for line in lines for name in _MODULE.findall(line) if name != _HEADER]


def script_modules(lines: Collection[str]) -> list[str]:
    """Modules of the checkout that `python -m` executes."""
    return [name for line in lines for name in _SCRIPT_MODULE.findall(line)]


def variables(markdown: str) -> list[str]:
    """Environment variables of aoti-debug and of the built-in printer."""
    return _VARIABLE.findall(markdown)


def commands(lines: Collection[str]) -> list[str]:
    return [name for line in lines for name in _COMMAND.findall(line)]


def make_targets(lines: Collection[str]) -> list[str]:
    return [name for line in lines for name in _TARGET.findall(line)]


def option_uses(lines: Collection[str]) -> list[OptionUse]:
    """Long options with the tool that the line calls."""
    return [OptionUse(_tool(line), option) for line in lines for option in _OPTION.findall(line)]


def all_options(text: str) -> list[str]:
    """Long and short options."""
    return _ANY_OPTION.findall(text)


def _tool(line: str) -> str:
    if "torchrun " in line:
        return "torchrun"
    if command := _COMMAND.search(line):
        return f"aoti-debug {command[1]}"
    if re.search(r"(?:^|[ ])pytest ", line):
        return "pytest"
    script = _SCRIPT_MODULE.search(line) or _SCRIPT.search(line)
    return script[1] if script else ""


def parser_options(source: str) -> set[str]:
    """Long options that a script's source gives to `add_argument` or `addoption`, but for hidden ones."""
    return {
        str(argument.value)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("add_argument", "addoption")
        and not any(k.arg == "help" and ast.unparse(k.value) == "argparse.SUPPRESS" for k in node.keywords)
        for argument in node.args
        if isinstance(argument, ast.Constant) and str(argument.value).startswith("--")
    }


def resolves(dotted: str, package: Path, public: Collection[str]) -> bool:
    """True if a dotted name is a folder, a module or a top-level name of a module below `package`.

    Args:
        dotted: begins with the name of the package.
        public: names that the package itself offers.
    """
    names = dotted.split(".")[1:]
    folder = package
    while names and (folder / names[0]).is_dir():
        folder /= names.pop(0)
    if not names:
        return True
    if folder == package and names[0] in public:
        return len(names) == 1
    module = folder / f"{names[0]}.py"
    if module.is_file():
        names.pop(0)
    else:
        module = folder / "__init__.py"
    return not names or (len(names) == 1 and module.is_file() and names[0] in _defined(module))


def _defined(module: Path) -> set[str]:
    return set(_bound(ast.parse(module.read_text()).body))


def _bound(body: list[ast.stmt]) -> Iterator[str]:
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            yield statement.name
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in statement.names)
        elif isinstance(statement, ast.Assign):
            yield from (target.id for target in statement.targets if isinstance(target, ast.Name))
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id

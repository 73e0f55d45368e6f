"""Writes the pages of the documentation site: those of docs, those at the top of the checkout, and the reference.

usage: python -m release.site OUTPUT REPORTS

On GitHub the pages are read where they lie. For the site, links lead to where a page is there, and Markdown is what the
site's parser takes. The order of the pages is that of docs/README.md. The reference is made of the commands, the
docstrings and the schemas.
"""

from __future__ import annotations

import inspect
import json
import os
import posixpath
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, is_typeddict

import click

ROOT = Path(__file__).resolve().parents[1]
DOCS = "docs"
TOP = {
    "README.md": "index.md",
    "docs/README.md": "pages.md",
    "CONTRIBUTING.md": "contributing.md",
    "AGENTS.md": "agents.md",
    "CHANGELOG.md": "changelog.md",
    ".github/SECURITY.md": "reporting.md",
    ".github/CODE_OF_CONDUCT.md": "conduct.md",
}
SOURCES = "source"  # folder of files that pages link to and that are no pages
GENERATED = {
    "reference/commands.md": "Help texts",
    "reference/python.md": "Python functions",
    "reference/json.md": "JSON documents",
    "reports.md": "Three reports",
}
_CODE = re.compile(r"(^ *```[^\n]*\n.*?^ *```[^\n]*$|`[^`\n]+`)", re.DOTALL | re.MULTILINE)
_LINK = re.compile(
    r"(?:(?<=\[)([\w./-]+\.md))?(\]\()([^)\s]+)(\))"
)  # a text that is the name of a page is its own group
_ITEM = re.compile(r" *(?:[*-]|\d+\.) ")
_NESTED = re.compile(r" {2,3}(?=[*-] )")


def site_path(path: str) -> str:
    """Where a file of the checkout is on the site.

    Args:
        path: from the top of the checkout: "docs/triage.md".
    """
    if path in TOP:
        return TOP[path]
    return path.removeprefix(f"{DOCS}/") if path.startswith(f"{DOCS}/") else f"{SOURCES}/{path}"


def page(markdown: str, source: str) -> tuple[str, set[str]]:
    """A page as the site takes it, and the files of the checkout that it links to.

    Args:
        source: the page, from the top of the checkout.
    """
    linked = set()
    here = posixpath.dirname(site_path(source))

    def moved(match: re.Match[str]) -> str:
        named, before, link, after = match.groups()
        if re.match(r"[a-z]+:|#", link):
            return match[0]
        name, mark, anchor = link.partition("#")
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), name))
        if (ROOT / target).is_dir():
            target = f"{target}/README.md"
        linked.add(target)
        shown = "" if named is None else _title(ROOT / target)
        return f"{shown}{before}{posixpath.relpath(site_path(target), here or '.')}{mark}{anchor}{after}"

    parts = _CODE.split(markdown)
    prose = [part if number % 2 else _LINK.sub(moved, part) for number, part in enumerate(parts)]
    return "\n".join(_lists("".join(prose).split("\n"))) + "\n", linked


def _title(path: Path) -> str:
    """The heading of a page."""
    return path.read_text().partition("\n")[0].removeprefix("# ")


def _lists(lines: list[str]) -> Iterator[str]:
    """The lines, with an empty one before each list, and nested lists as far in as the site's parser wants them."""
    before, fenced = "", False
    for line in lines:
        fenced ^= line.lstrip().startswith("```")
        if not fenced and _ITEM.match(line) and before.strip() and not _ITEM.match(before) and not before[:1].isspace():
            yield ""
        yield line if fenced else _NESTED.sub("    ", line)
        before = line


def navigation(readme: str) -> list[dict[str, list[dict[str, str] | str]]]:
    """The sections of the site: the headings of docs/README.md with the first link of each row below.

    Raises:
        LookupError: a row links to no page.
    """
    sections: list[dict[str, list[dict[str, str] | str]]] = []
    for line in readme.splitlines():
        if line.startswith("## "):
            sections.append({line.removeprefix("## "): []})
        elif line.startswith("| ["):
            links = [link for _, _, link, _ in _LINK.findall(line.split(" | ")[0])]
            if not links:
                raise LookupError(f"no page in: {line}")
            rows = next(iter(sections[-1].values()))
            rows += [site_path(posixpath.normpath(f"{DOCS}/{link}")) for link in links]
    for title, pages in (("Reference", list(GENERATED)[:3]), ("Tutorials", ["reports.md"])):
        section = next(section[title] for section in sections if title in section)
        section += [{GENERATED[name]: name} for name in pages]
    return [{"Home": ["index.md", "pages.md"]}, *sections]


def commands_page() -> str:
    """All commands with their options, as they print them with --help."""
    from aoti_debug.app.cli import main

    lines = ["# Commands, as `--help` prints them", "", "[With links to the pages about them](../commands.md).", ""]
    parent = click.Context(main.group, info_name="aoti-debug")
    for name in main.group.list_commands(parent):
        command = main.group.get_command(parent, name)
        if command is None:
            raise LookupError(name)
        with click.Context(
            command, info_name=name, parent=parent, max_content_width=100, terminal_width=100
        ) as context:
            lines += [f"## aoti-debug {name}", "", "```text", command.get_help(context), "```", ""]
    return "\n".join(lines)


def python_page() -> str:
    """What `import aoti_debug` offers: signatures and docstrings."""
    import aoti_debug

    lines = [
        "# Python functions",
        "",
        "[How they are used](../python.md). Each name is imported when it is first used.",
        "",
    ]
    for name in aoti_debug.__all__:
        found = getattr(aoti_debug, name)
        if not callable(found):
            continue
        lines += [f"## {name}", "", "```python", f"aoti_debug.{name}{_wrapped(_signature(found))}", "```", ""]
        lines += [*docstring_lines(inspect.getdoc(found) or ""), ""]
    return "\n".join(lines)


def _signature(found: Any) -> str:
    """The parameters of a function; the keys of a dictionary that is a type."""
    if is_typeddict(found):
        return f"({', '.join(f'{key}: {_annotation(kind)}' for key, kind in found.__annotations__.items())})"
    return str(inspect.signature(found)).replace("'", "")


def _annotation(kind: Any) -> str:
    return str(getattr(kind, "__forward_arg__", kind))


def _wrapped(signature: str) -> str:
    """A signature, a parameter a line if it is long."""
    if len(signature) <= 80:
        return signature
    inner, _, result = signature[1:].rpartition(")")
    parts = re.split(r", (?![^\[(]*[\])])", inner)
    return "(\n" + "".join(f"    {part},\n" for part in parts) + ")" + result


def docstring_lines(text: str) -> Iterator[str]:
    """A docstring in Markdown: `Args:` and `Raises:` as lists."""
    listing = False
    for line in text.splitlines():
        if re.fullmatch(r"(Args|Raises|Attributes|Returns|Yields):", line):
            listing = True
            yield from (f"**{line.removesuffix(':')}**", "")
        elif listing and (entry := re.match(r"    (\*{0,2}[\w., *]+): (.*)", line)):
            yield f"* `{entry[1]}`: {entry[2]}"
        else:
            listing = listing and (not line or line.startswith(" "))
            yield f"  {line.strip()}" if listing and line else line


def json_page() -> str:
    """The members of what each command prints with --json."""
    lines = [
        "# JSON documents",
        "",
        "`aoti-debug guide --json-schema NAME` prints a schema. Members may be added; none changes its",
        "meaning without a new `format`.",
        "",
    ]
    for path in sorted((ROOT / DOCS).glob("*.schema.json")):
        schema = json.loads(path.read_text())
        lines += [f"## {path.name.partition('.')[0]}", "", f"`{schema['title']}`, [schema](../{path.name}).", ""]
        lines += ["| member | type | |", "|---|---|---|"]
        for name, member in schema["properties"].items():
            meant = {**_referenced(schema, member), **member}
            said = meant.get("description", "").replace("|", "\\|")
            lines.append(f"| `{name}` | {type_text(meant)} | {said} |")
        lines.append("")
    return "\n".join(lines)


def _referenced(schema: dict[str, Any], member: dict[str, Any]) -> dict[str, Any]:
    name = member.get("$ref", "").removeprefix("#/$defs/")
    found: dict[str, Any] = schema["$defs"][name] if name.strip("#") else {}
    return found


def type_text(member: dict[str, Any]) -> str:
    """The type of a member in words: "string or null", "one of `ok`, `missing`"."""
    if "const" in member:
        return f"`{json.dumps(member['const'])}`"
    if "enum" in member:
        return "one of " + ", ".join(
            f"`{value if isinstance(value, str) else json.dumps(value)}`" for value in member["enum"]
        )
    if "anyOf" in member:
        return " or ".join(type_text(choice) for choice in member["anyOf"])
    kinds = member.get("type", "object")
    return kinds if isinstance(kinds, str) else " or ".join(kinds)


def reports_page(reports: Path) -> str:
    """The page that leads to the reports, with what was typed for each."""
    about: dict[str, dict[str, str]] = json.loads((reports / "reports.json").read_text())
    lines = [
        "# Three reports",
        "",
        "Pages as aoti-debug writes them, made when this site was built from the programs in `examples`. Each is one",
        "file, which opens without network.",
        "",
    ]
    for name, entry in about.items():
        lines += [
            f"## {entry['title']}",
            "",
            "```text",
            entry["typed"],
            "```",
            "",
            f"[Open the page](reports/{name}.html)",
            "",
        ]
    return "\n".join(lines)


def write(output: Path, reports: Path) -> None:
    """Writes all pages, and `mkdocs.yml` beside the folder.

    Args:
        output: a folder, which is emptied.
        reports: the pages that `release.reports` has made.
    """
    shutil.rmtree(output, ignore_errors=True)
    shutil.copytree(ROOT / DOCS, output, ignore=shutil.ignore_patterns("README.md"))
    waiting = {*TOP, *(str(path.relative_to(ROOT)) for path in (ROOT / DOCS).rglob("*.md"))}
    copied: set[str] = set()
    while waiting:
        source = waiting.pop()
        copied.add(source)
        target = output / site_path(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.endswith(".md"):
            text, linked = page((ROOT / source).read_text(), source)
            target.write_text(text)
            waiting |= linked - copied
        else:
            shutil.copyfile(ROOT / source, target)
    shutil.copyfile(ROOT / "release/site.css", output / "site.css")
    (output / "reports").mkdir()
    for path in reports.glob("*.html"):
        shutil.copy(path, output / "reports")
    made: dict[str, Callable[[], str]] = {
        "reference/commands.md": commands_page,
        "reference/python.md": python_page,
        "reference/json.md": json_page,
        "reports.md": lambda: reports_page(reports),
    }
    for name, make in made.items():
        (output / name).parent.mkdir(exist_ok=True)
        (output / name).write_text(make())
    base = os.path.relpath(ROOT / "release/mkdocs.yml", output.parent)
    nav = navigation((ROOT / DOCS / "README.md").read_text())
    configuration = {"INHERIT": base, "docs_dir": output.name, "site_dir": "site", "nav": nav}
    (output.parent / "mkdocs.yml").write_text(json.dumps(configuration, indent=1))  # JSON is YAML


if __name__ == "__main__":
    write(Path(sys.argv[1]).absolute(), Path(sys.argv[2]).absolute())

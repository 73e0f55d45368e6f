"""The documents say what is true: what they name exists, and what users can set is documented."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

import aoti_debug
from aoti_debug.app.cli import main
from aoti_debug.base import errors
from aoti_debug.base.abi import Variable
from tests import document_text as text
from tests import test_wings
from tests.document_text import OptionUse
from tests.paths import ROOT

PACKAGE = ROOT / "aoti_debug"
DOCS = ROOT / "docs"
DOCUMENTS = (
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "AGENTS", ".github/SECURITY")),
    *sorted(DOCS.glob("*.md")),
)
WITH_LINKS = (*DOCUMENTS, ROOT / "CHANGELOG.md")
MAX_LINES = 120  # of the README
FOLDERS = (".ci", ".github", "aoti_debug", "benchmarks", "docs", "examples", "release", "runtime_shims", "tests")
# Names of files of users, or made for them, which are no part of the checkout
GENERATED = {"repro.py", "minifier_launcher.py", "issue.md", "my.py", "budget.toml"}
REPRO_OPTIONS = ROOT / "repro/templates/options.py"
PLUGIN = PACKAGE / "app/python/pytest_plugin.py"
FX_GOLDEN = ROOT / "tests/compare/fx_repro/golden"
MODULES = ("benchmarks/*/*.py", "tests/**/*.py")
SCRIPTS = ("examples/*.py", "runtime_shims/cuda/*.py")


def each(documents: tuple[Path, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("document", documents, ids=lambda path: str(path.relative_to(ROOT)))


@functools.cache
def lines_of(document: Path) -> list[str]:
    return text.code_lines(document.read_text())


@functools.cache
def checkout_names() -> set[str]:
    """Names of the files at the top of the checkout and in its folders."""
    below = [path for folder in (*FOLDERS, "repro") for path in (ROOT / folder).rglob("*")]
    return {path.name for path in (*ROOT.iterdir(), *below)}


@functools.cache
def options_of_commands() -> dict[str, set[str]]:
    """Options of each command of aoti-debug, long and short."""
    context = main.group.make_context("aoti-debug", ["--json"], resilient_parsing=True)
    found = {}
    for verb in main.group.list_commands(context):
        command = main.group.get_command(context, verb)
        assert command is not None
        options = (p for p in command.params if p.param_type_name == "option")
        found[f"aoti-debug {verb}"] = {word for option in options for word in (*option.opts, *option.secondary_opts)}
    return found


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


@functools.cache
def options_of_scripts() -> dict[str, set[str]]:
    """Options of scripts by file name, of modules by dotted name, and of pytest (the suite's own)."""
    scripts = {path.name: path for pattern in SCRIPTS for path in ROOT.glob(pattern)}
    modules = {module_name(path): path for pattern in MODULES for path in ROOT.glob(pattern)}
    found = {name: _options_of(path.read_text()) for name, path in {**scripts, **modules}.items()}
    generated = [REPRO_OPTIONS, *(FX_GOLDEN / f"{name}.py.txt" for name in ("repro", "minifier_launcher"))]
    found["repro.py"] = {"--help"}.union(*(text.parser_options(path.read_text()) for path in generated))
    of_pytest = (text.parser_options(path.read_text()) for path in (ROOT / "tests/conftest.py", PLUGIN))
    magic = text.parser_options((PACKAGE / "app/python/notebook.py").read_text())
    return found | {"pytest": set[str]().union(*of_pytest), "%%aoti_debug": magic}


def _options_of(source: str) -> set[str]:
    """The options of a script, with those that `benchmarks.cases` adds to a benchmark."""
    more = (ROOT / "benchmarks/cases.py").read_text() if "cases.add_options(" in source else ""
    return text.parser_options(source) | (text.parser_options(more) if more else set())


def wrong_options(uses: list[OptionUse], known: dict[str, set[str]]) -> list[OptionUse]:
    """Uses of options that the tool does not have; an option without a tool may be any tool's."""
    every = {option for options in known.values() for option in options}
    return [use for use in uses if use.option not in (known.get(use.tool, set()) if use.tool else every)]


def known_options() -> dict[str, set[str]]:
    found = {tool: options | {"--help"} for tool, options in options_of_commands().items()}
    found["torchrun"] = found["aoti-debug run"] | {"--nproc-per-node", "--rdzv-id"}
    return found | options_of_scripts() | {"aoti-debug": {"--help", "--version"}}


def broken_links(document: Path, markdown: str) -> list[str]:
    """Relative links to a missing file, or to an anchor that its headings do not make."""
    broken = []
    for link in text.links(markdown):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = document.parent / name if name else document
        if not target.exists() or (anchor and anchor not in text.anchors(target.read_text())):
            broken.append(link)
    return broken


@each(DOCUMENTS)
def test_paths_exist(document: Path) -> None:
    missing = [path for path in text.paths(lines_of(document), FOLDERS) if not any(ROOT.glob(path))]
    assert missing == []


@each(DOCUMENTS)
def test_source_files_are_part_of_the_checkout(document: Path) -> None:
    of_torch = {
        name.rpartition("/")[2] for name in re.findall(r"`((?:torch|torchgen|triton)/[\w/.]+)`", document.read_text())
    }
    assert set(text.source_files(lines_of(document))) - checkout_names() - GENERATED - of_torch == set()


@each(DOCUMENTS)
def test_modules_and_their_names_exist(document: Path) -> None:
    named = text.modules(lines_of(document))
    assert [name for name in named if not text.resolves(name, PACKAGE, aoti_debug.__all__)] == []


@each(DOCUMENTS)
def test_modules_that_commands_execute_exist(document: Path) -> None:
    named = text.script_modules(lines_of(document))
    assert [name for name in named if not (ROOT / name.replace(".", "/")).with_suffix(".py").is_file()] == []


@each(DOCUMENTS)
def test_commands_and_make_targets_exist(document: Path) -> None:
    lines = lines_of(document)
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(text.commands(lines)) - set(main.VERBS) == set()
    assert set(text.make_targets(lines)) - targets == set()


@each(DOCUMENTS)
def test_options_exist(document: Path) -> None:
    assert wrong_options(text.option_uses(lines_of(document)), known_options()) == []


@each(DOCUMENTS)
def test_environment_variables_exist(document: Path) -> None:
    assert set(text.variables(document.read_text())) - {variable.value for variable in Variable} == set()


@each(DOCUMENTS)
def test_code_blocks_are_fenced(document: Path) -> None:
    """Indented blocks would not be checked."""
    assert re.findall(r"\n\n {4,}\S.*", text.prose(document.read_text())) == []


@each(WITH_LINKS)
def test_links_resolve(document: Path) -> None:
    assert broken_links(document, document.read_text()) == []


@pytest.mark.parametrize("command", main.VERBS)
def test_every_option_is_documented_and_no_other(command: str) -> None:
    markdown = (DOCS / "commands.md").read_text()
    cells = text.first_cells(text.section(markdown, f"aoti-debug {command}"))
    documented = {option for cell in cells for option in text.all_options(cell)}
    assert documented == options_of_commands()[f"aoti-debug {command}"]


def test_every_option_of_a_repro_is_documented() -> None:
    documented = {use.option for use in text.option_uses(lines_of(DOCS / "repro.md"))}
    assert text.parser_options(REPRO_OPTIONS.read_text()) - documented == set()


def test_every_environment_variable_is_documented() -> None:
    cells = text.first_cells((DOCS / "levels-and-environment.md").read_text())
    documented = {name for cell in cells for name in text.variables(cell)}
    own = {variable.value for variable in Variable if variable.value.startswith("AOTI_DEBUG_")}
    assert documented == own


def test_every_exit_code_is_documented() -> None:
    cells = text.first_cells(text.section((DOCS / "commands.md").read_text(), "Exit codes"))
    classes = (value for value in vars(errors).values() if isinstance(value, type))
    raised = {error.exit_code for error in classes if issubclass(error, errors.AotiDebugError)}
    assert set(map(int, cells)) == raised | {
        errors.EXIT_CLEAN,
        errors.EXIT_FINDING,
        errors.EXIT_UNCONFIRMED,
        errors.EXIT_INCOMPLETE,
        main.INTERRUPTED,
        main.CLOSED_PIPE,
    }


def test_the_readme_is_short_and_links_the_list_of_all_pages() -> None:
    readme = (ROOT / "README.md").read_text()
    assert len(readme.splitlines()) <= MAX_LINES
    assert "docs/README.md" in text.links(readme)


@each((*DOCUMENTS, *sorted(DOCS.glob("tutorials/*.md"))))
def test_commands_write_to_no_folder_of_the_checkout(document: Path) -> None:
    places = re.findall(r"^\$ aoti-debug .* -o (\S+)", document.read_text(), re.MULTILINE)
    assert [place for place in places if (ROOT / place).exists()] == []


def test_the_list_of_all_pages_is_complete() -> None:
    listed = set(text.links((DOCS / "README.md").read_text()))
    assert {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - listed == {"README.md"}


def test_the_architecture_lists_every_wing_in_order() -> None:
    cells = text.first_cells(text.section((DOCS / "architecture.md").read_text(), "Wings"))
    assert [cell.strip("`") for cell in cells] == list(test_wings.WINGS)


def test_the_architecture_lists_every_folder_in_order() -> None:
    cells = text.first_cells(text.section((DOCS / "architecture.md").read_text(), "Folders"))
    listed = [cell.strip("`").removesuffix(".py") for cell in cells]
    places = [f"aoti_debug/{wing}/{folder}".removesuffix(f"/{test_wings.OWN}") for wing, folder in test_wings.PLACES]
    assert [folder for folder in listed if folder in places] == places
    below = {str(path.parent.relative_to(ROOT)) for path in PACKAGE.glob("*/*/*/__init__.py")}
    assert below - set(listed) == set()


def test_the_architecture_is_short() -> None:
    assert len((DOCS / "architecture.md").read_text().splitlines()) <= 250


def test_the_architecture_lists_every_folder_of_the_runtime_in_order() -> None:
    cells = text.first_cells(text.section((DOCS / "architecture.md").read_text(), "The runtime"))
    folders = [cell.strip("`").removeprefix("runtime_shims/") for cell in cells]
    assert [folder for folder in folders if "." not in folder] == list(test_wings.RUNTIME)


# The finders themselves


SAMPLE = """\
# A page, with `code`

See [there](other.md#a-page) and ![](picture.png), not `[this](no.md)`.

```
$ aoti-debug run x.pt2 --level 2   # --no-such in a comment
[a](fenced.md)
```

## Again

| option | meaning |
|---|---|
| `-o`, `--output FILE` | the file |

## Again
"""


def test_code_is_found() -> None:
    assert text.inline_code(SAMPLE) == ["code", "[this](no.md)", "-o", "--output FILE"]
    assert "$ aoti-debug run x.pt2 --level 2  " in text.code_lines(SAMPLE)


def test_links_and_anchors_are_found_outside_of_code() -> None:
    assert text.links(SAMPLE) == ["other.md#a-page", "picture.png"]
    assert text.anchors(SAMPLE) == {"a-page-with-code", "again", "again-1"}


def test_a_section_ends_at_the_next_heading() -> None:
    assert text.first_cells(text.section(SAMPLE, "Again")) == ["`-o`, `--output FILE`"]
    assert text.all_options("`-o`, `--output FILE`") == ["-o", "--output"]
    with pytest.raises(LookupError):
        text.section(SAMPLE, "Never")


def test_broken_links_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One\n")
    markdown = "[a](page.md#one) [b](#one) [c](https://x.org/y) [d](page.md#two) [e](gone.md) [f](#two)"
    assert broken_links(page, markdown) == ["page.md#two", "gone.md", "#two"]


def test_paths_are_found() -> None:
    lines = ["tests/corpus", "x/tests/no", "examples/faulty.py:28 in forward", "aoti-debug/runs/latest", "tests/*.py"]
    assert text.paths(lines, FOLDERS) == ["tests/corpus", "examples/faulty.py", "tests/*.py"]
    assert not any(ROOT.glob("tests/no_such_*.py"))


def test_source_files_are_found() -> None:
    lines = ["repro/kinds.py and journal_format.h", "FILE.py", "README.md", "model.pt2", "x.python", "forms.cpp.txt"]
    assert text.source_files(lines) == ["kinds.py", "journal_format.h", "README.md"]


def test_modules_are_found_and_resolved() -> None:
    lines = [
        "aoti_debug.runs.rundir.formats.journal",
        "runtime_shims/aoti_debug.h",
        "aoti_debug.h",
        'aoti_debug.build("x")',
    ]
    assert text.modules(lines) == ["aoti_debug.runs.rundir.formats.journal", "aoti_debug.build"]


@pytest.mark.parametrize(
    ("dotted", "exists"),
    [
        ("aoti_debug.runs.rundir", True),
        ("aoti_debug.base.errors", True),
        ("aoti_debug.base.errors.UsageError", True),
        ("aoti_debug.base.errors.EXIT_CLEAN", True),
        ("aoti_debug.instrument.wrapper.analysis.analyse", True),
        ("aoti_debug.offered", True),
        ("aoti_debug.base.errors.NoSuchError", False),
        ("aoti_debug.base.errors.UsageError.hint", False),
        ("aoti_debug.no_such_room", False),
        ("aoti_debug.runs.rundir.no_such_module", False),
        ("aoti_debug.offered.more", False),
    ],
)
def test_a_name_resolves_by_file(dotted: str, exists: bool) -> None:
    assert text.resolves(dotted, PACKAGE, ["offered"]) is exists


def test_modules_that_commands_execute_are_found() -> None:
    lines = [
        "$ python -m benchmarks.triage.triage --device cuda",
        "x/bin/python -m tests.gpu.record",
        "python -m pytest",
    ]
    assert text.script_modules(lines) == ["benchmarks.triage.triage", "tests.gpu.record"]


def test_options_belong_to_the_tool_that_the_line_calls() -> None:
    lines = [
        "$ aoti-debug run x.pt2 --level 2",
        "AOTI_DEBUG_DIR=x python -m benchmarks.triage.triage --device cuda",
        "pytest tests --update-golden",
        "python a/repro.py --poison",
        "--sanitize memcheck",
        "-fsanitize=address",
    ]
    uses = text.option_uses(lines)
    assert uses == [
        OptionUse("aoti-debug run", "--level"),
        OptionUse("benchmarks.triage.triage", "--device"),
        OptionUse("pytest", "--update-golden"),
        OptionUse("repro.py", "--poison"),
        OptionUse("", "--sanitize"),
    ]
    assert wrong_options(uses, known_options()) == []


@pytest.mark.parametrize(
    "line",
    [
        "aoti-debug show --level 2",
        "aoti-debug run --sanitize",
        "python repro.py --level 2",
        "python repro.py --trial x",
        "python -m benchmarks.no_such --device cuda",
        "python no_such.py --device cuda",
        "pytest --no-such",
        "--no-such",
    ],
)
def test_an_option_of_another_tool_is_wrong(line: str) -> None:
    assert len(wrong_options(text.option_uses([line]), known_options())) == 1


def test_commands_targets_and_variables_are_found() -> None:
    assert text.commands(["aoti-debug frobnicate x", "aoti-debug --help", "aoti-debug 0.1.0"]) == ["frobnicate"]
    assert text.make_targets(["make nothing", "PYTEST_ARGS=x make test"]) == ["nothing", "test"]
    assert text.variables("`AOTI_DEBUG_LEVEL=3 x`, AOTI_DEBUG_* and AOTI_DEBUG_NO_SUCH") == [
        "AOTI_DEBUG_LEVEL",
        "AOTI_DEBUG_NO_SUCH",
    ]


def test_options_of_a_parser_are_found() -> None:
    source = 'p.add_argument("--a", "-b")\np.add_argument("--hidden", help=argparse.SUPPRESS)\ng.addoption("--c")\n'
    assert text.parser_options(source) == {"--a", "--c"}

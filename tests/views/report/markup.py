"""A run whose names are all markup, and what a page made of it holds."""

from __future__ import annotations

from html import unescape
from html.parser import HTMLParser
from pathlib import Path

from aoti_debug.package.manifest import Certainty, Kernel, Kind, ModelLine, Provenance, Role
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from aoti_debug.runs.rundir.run_json import Exit, ExitKind, RunStage
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, tensor

EVIL = (
    "</script><script>alert(1)</script><!-- <img src=x onerror=alert(2)> \u2028 & \" ' {{ 7 * 7 }} </template></style>"
)


def hostile(base: Path) -> RunDir:
    """Everything that a model may name is markup."""
    frame = ModelLine(f"/tmp/{EVIL}.py", 3, EVIL, EVIL)
    provenance = Provenance(Certainty.EXACT, EVIL, (frame,), (EVIL,), (EVIL,), (EVIL,))
    kernel = Kernel(EVIL, "cpp", f'// {EVIL}\nchar* s = "{EVIL}";', "0" * 64)
    package = make_manifest(
        site(EVIL, arg(EVIL), arg("out", Role.OUT, text=EVIL), kind=Kind.CPP, op=EVIL, provenance=provenance),
        kernels=[kernel],
    )
    writer = JournalWriter()
    writer.call_begin()
    writer.launch_begin(0, 0, tensor(2), tensor(2, data_ptr=0x2000))
    end = Exit(ExitKind.FAULT, EVIL, RunStage.CALL, "SIGSEGV")
    return open_run(run_directory(base, package, writer, exit=end, command=("aoti-debug", "run", EVIL)))


class Tags(HTMLParser):
    """The page's elements and the attributes that could run or fetch something."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


def policy_of(page: str) -> str:
    return unescape(page.partition('http-equiv="Content-Security-Policy" content="')[2].partition('"')[0])

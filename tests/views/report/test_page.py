from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.base.errors import UsageError
from aoti_debug.base.terminal_cells import Column, Sentence
from aoti_debug.package.manifest import Kernel, Kind
from aoti_debug.runs.rundir.run_directory import open_run
from aoti_debug.runs.show.text import ModuleCell
from aoti_debug.views.report import page, report, source_text
from aoti_debug.views.report.page import (
    LIBRARIES,
    LONGEST,
    SCRIPTS,
    STYLES,
    StaticCell,
    embed_json,
    prepare,
    static_rows,
)
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, tensor
from tests.views.report.markup import EVIL, Tags, hostile, policy_of
from tests.views.report.subjects import data_of, run, triage


def test_texts_of_a_model_are_never_markup(tmp_path: Path) -> None:
    found = Tags(report.html(report.of_run(hostile(tmp_path))))
    assert "img" not in found.tags
    assert found.tags.count("script") == 1 + len(LIBRARIES) + len(SCRIPTS)
    assert found.tags.count("style") == len(STYLES)
    assert not [name for name, _ in found.attributes if name.startswith("on")]


def test_texts_of_a_model_arrive_as_texts(tmp_path: Path) -> None:
    page = report.html(report.of_run(hostile(tmp_path)))
    data = data_of(page)
    shown = EVIL.replace("\u2028", "\\u2028")
    assert data["sites"][0]["kernel"] == shown
    assert data["stacks"] == [shown]
    assert "49" not in re.sub(r"<script.*?</script>|<style.*?</style>", "", page, flags=re.DOTALL)


def test_embedded_json_cannot_end_its_element() -> None:
    text = str(embed_json({"a": EVIL, "b": "<!--<script>"}))
    assert not re.search(r"[<>&\u2028]", text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("two\n\tlines", "two\n\tlines"),
        ('a "quoted" \\user', 'a "quoted" \\user'),
        ("größer", "größer"),
        ("delete\x7f", "delete\\x7f"),
        ("back\b, form\f, return\r, escape\x1b", "back\\x08, form\\x0c, return\\r, escape\\x1b"),
        ("other\u202edirection", "other\\u202edirection"),
    ],
)
def test_embedded_json_shows_what_is_invisible(text: str, shown: str) -> None:
    data = json.loads(str(embed_json({text: [text, 1.5, None, (True, Kind.TRITON)]})))
    assert data == {shown: [shown, 1.5, None, [True, Kind.TRITON.value]]}


def test_the_page_fetches_nothing(tmp_path: Path) -> None:
    page = report.html(report.of_triage(triage(tmp_path)))
    found = Tags(page)
    assert not {"link", "iframe", "object", "embed", "base"} & set(found.tags)
    links = [value or "" for name, value in found.attributes if name in ("src", "href", "srcset", "data", "action")]
    assert all(link.startswith("#") for link in links)
    assert "sourceMappingURL" not in page
    styles = "".join(re.findall(r"<style>(.*?)</style>", page, flags=re.DOTALL))
    assert not re.search(r"@import|url\(\s*['\"]?(?!data:)", styles)
    assert ("content", policy_of(page)) in found.attributes
    assert "default-src 'none';" in policy_of(page)


def test_only_the_scripts_of_the_page_are_allowed(tmp_path: Path) -> None:
    page = report.html(report.of_run(run(tmp_path)))
    policy = policy_of(page)
    assert policy.count("sha256-") == len(LIBRARIES) + len(SCRIPTS)
    assert "unsafe-eval" not in policy
    assert "'unsafe-inline'" not in policy.partition("script-src")[2].partition(";")[0]


def test_a_source_is_there_once_for_all_launches(tmp_path: Path) -> None:
    package = make_manifest(
        site("cpp_fused_0", arg("x"), kind=Kind.CPP), kernels=[Kernel("cpp_fused_0", "cpp", "int only_once;", "0" * 64)]
    )
    writer = JournalWriter()
    writer.call_begin()
    for launch in range(500):
        writer.launch(launch, 0, tensor(2))
    page = report.html(report.of_run(open_run(run_directory(tmp_path, package, writer))))
    assert page.count("only_once") == 1
    assert len(data_of(page)["launches"]) == 500


def test_the_report_lies_in_the_directory_it_is_about(tmp_path: Path) -> None:
    opened = run(tmp_path)
    assert report.write(report.of_run(opened)) == opened.path / "report/index.html"
    assert report.write(report.of_run(opened)).read_text().lower().startswith("<!doctype html>")
    found = triage(tmp_path / "triages")
    assert report.write_triage(found) == found.path / "report/index.html"
    assert [path.name for path in (found.path / "report").iterdir()] == ["index.html"]


def test_a_place_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write"):
        report.write(report.of_run(run(tmp_path / "runs")), tmp_path / "file" / "index.html")


def test_every_kind_of_finding_has_a_word_and_a_sign(tmp_path: Path) -> None:
    from aoti_debug.triage.results import finding_kinds

    subject = report.of_run(run(tmp_path))
    for kind in finding_kinds.by_value().values():
        page = report.html(replace(subject, finding=replace(subject.finding, kind=kind)))
        assert f'<p class="kind"><span class="sign" aria-hidden="true">{kind.sign}</span> {kind.title}</p>' in page


def test_the_title_says_the_verdict_and_the_model(tmp_path: Path) -> None:
    subject = replace(report.of_triage(triage(tmp_path)), command=("aoti-debug", "triage", "exported/model.pt2", "-v"))
    assert f"<title>fault: model.pt2, triage {subject.name}</title>" in report.html(subject)
    without = replace(subject, command=())
    assert f"<title>fault: triage {subject.name}</title>" in report.html(without)
    head = report.html(subject).partition('<header class="top bad">')[2].partition("</header>")[0]
    assert 'title="model.pt2">model.pt2</span>' in head
    assert "✖</span> fault" in head


def test_a_call_stack_is_a_closed_list_of_frames(tmp_path: Path) -> None:
    subject = report.of_triage(triage(tmp_path))
    page = report.html(replace(subject, finding=replace(subject.finding, stack=("check at op.cpp:3", "<lambda>"))))
    stack = page.partition("<dt>call stack</dt><dd>")[2].partition("</dd>")[0]
    assert stack.strip().startswith('<details class="stack"><summary>2 frames, innermost first</summary>')
    assert "<li>check at op.cpp:3</li><li>&lt;lambda&gt;</li>" in stack


def test_what_was_prepared_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = [Kernel("cpp_fused_0", "cpp", "int x;", "0"), Kernel("shim", "cpp", "", "0")]
    prepare(kernels)
    hits = source_text.highlight_kernel.cache_info().hits
    assert "int" in source_text.highlight_kernel(kernels[0]).html
    assert source_text.highlight_kernel.cache_info().hits == hits + 1
    assert page._asset.cache_info().currsize >= len((*page.LIBRARIES, *page.SCRIPTS, *page.STYLES, *page.LICENCES))


def test_a_kernel_without_source_is_left_out() -> None:
    before = source_text.highlight_kernel.cache_info().currsize
    prepare([Kernel("aoti_torch_cpu_mm_out", "cpp", "", "0")])
    assert source_text.highlight_kernel.cache_info().currsize == before


COLUMNS = (
    Column("bytes", align_right=True),
    Column("kernel", share=1),
    Column("module", share=2),
    Column("hint", share=2),
)


def test_names_are_cut_and_sentences_are_not() -> None:
    module = f"layers.0.{'a_long_name_of_a_module_' * 4}"
    sentence = "little work for each launch: " * 4
    ((size, kernel, path, hint),) = static_rows(
        COLUMNS, [["4 B", "cpp_fused_relu_0", ModuleCell((module,)), Sentence(sentence)]]
    )
    assert size == StaticCell("4 B", "4 B", is_name=False)
    assert kernel == StaticCell("cpp_fused_relu_0", "cpp_fused_relu_0", is_name=True)
    assert (path.text, len(path.shown), path.is_name) == (module, LONGEST, True)
    assert hint == StaticCell(sentence, sentence, is_name=False)

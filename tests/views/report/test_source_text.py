from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.package.manifest import Kind, ModelLine
from aoti_debug.runs.diagnosis.findings import Place
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from aoti_debug.views.report import report
from aoti_debug.views.report.report import RedactedPart
from aoti_debug.views.report.source_text import CONTEXT_LINES, context_in, context_of, editor_links, model_lines_of
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, tensor
from tests.views.report.markup import Tags
from tests.views.report.subjects import PROVENANCE, data_of

LINES = [f"line_{n} = {n}" for n in range(1, 41)]


def test_the_line_stands_among_its_neighbours() -> None:
    context = context_in(ModelLine("m.py", 20, "forward", "line_20 = 20"), LINES)
    assert [line.number for line in context.lines] == list(range(20 - CONTEXT_LINES, 20 + CONTEXT_LINES + 1))
    assert [line.text for line in context.lines if line.marked] == ["line_20 = 20"]
    assert context.remark == ""


def test_at_the_ends_of_a_file_there_are_fewer() -> None:
    assert context_in(ModelLine("m.py", 1, "f", "line_1 = 1"), LINES).lines[0].marked
    assert context_in(ModelLine("m.py", 40, "f", "  line_40 = 40"), LINES).lines[-1].marked


def test_a_file_that_changed_is_not_shown() -> None:
    for frame in (
        ModelLine("m.py", 20, "f", "line_21 = 21"),
        ModelLine("m.py", 99, "f", "x"),
        ModelLine("m.py", 20, "f", ""),
    ):
        context = context_in(frame, LINES)
        assert [line.text for line in context.lines] == ([frame.text] if frame.text else [])
        assert "has changed" in context.remark


def test_files_are_read_where_they_are(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text("\n".join(LINES))
    assert len(context_of(ModelLine(str(path), 20, "f", "line_20 = 20")).lines) == 2 * CONTEXT_LINES + 1
    gone = context_of(ModelLine(str(tmp_path / "gone.py"), 20, "f", "line_20 = 20"))
    assert (len(gone.lines), "was not read" in gone.remark) == (1, True)


def test_only_python_files_are_read(tmp_path: Path) -> None:
    secret = tmp_path / "id_rsa"
    secret.write_text("secret\n")
    context = context_of(ModelLine(str(secret), 1, "f", "secret"))
    assert "not a Python file" in context.remark
    large = tmp_path / "large.py"
    large.write_bytes(b"x = 1\n" * (1 << 20))
    assert "too large" in context_of(ModelLine(str(large), 1, "f", "x = 1")).remark
    binary = tmp_path / "binary.py"
    binary.write_bytes(b"\xff\xfe")
    assert "was not read" in context_of(ModelLine(str(binary), 1, "f", "x")).remark


def test_each_line_is_shown_once() -> None:
    one, two = ModelLine("m.py", 1, "f", "a"), ModelLine("m.py", 2, "f", "b")
    assert model_lines_of(Place(frame=one), None, Place(), Place(frame=two), Place(frame=one)) == (one, two)


def recorded(base: Path, *files: Path) -> RunDir:
    """A run of a launch for each file."""
    lines = [ModelLine(str(file), 7, "forward", "x = y") for file in files]
    sites = [
        site(f"cpp_fused_{n}", arg("x"), kind=Kind.CPP, provenance=replace(PROVENANCE, source=(line,)))
        for n, line in enumerate(lines)
    ]
    writer = JournalWriter()
    writer.call_begin()
    for n in range(len(files)):
        writer.launch(n, n, tensor(2))
    return open_run(run_directory(base, make_manifest(*sites), writer))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "a model #1.py"
    path.write_text("x = y\n")
    return path


def test_only_files_of_this_machine(tmp_path: Path, model: Path) -> None:
    run = recorded(tmp_path, model, tmp_path / "gone.py", Path("relative.py"))
    assert editor_links([run]) == {str(model): f"vscode://file{tmp_path}/a%20model%20%231.py"}
    assert editor_links([]) == {}
    other = tmp_path / "other.py"
    other.write_text("")
    assert set(editor_links([run], [ModelLine(str(other), 1, "f", "")])) == {str(model), str(other)}


def test_none_for_a_run_of_somebody_else(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = recorded(tmp_path, model)
    monkeypatch.setattr(RunDir, "is_made_here", False)
    assert editor_links([run]) == {}


def test_the_page_has_them_unless_it_is_redacted(tmp_path: Path, model: Path) -> None:
    subject = report.of_run(recorded(tmp_path, model))
    page = report.html(subject)
    assert data_of(page)["links"] == {str(model): f"vscode://file{tmp_path}/a%20model%20%231.py"}
    for part in RedactedPart:
        assert data_of(report.html(subject, [part]))["links"] == {}


def test_the_place_of_a_finding_is_a_link(tmp_path: Path, model: Path) -> None:
    from tests.views.report.subjects import triage

    subject = report.of_triage(triage(tmp_path / "triages"))
    assert subject.finding.where is not None
    frame = ModelLine(str(model), 28, "forward", "x = y")
    finding = replace(subject.finding, where=replace(subject.finding.where, frame=frame))
    page = report.html(replace(subject, finding=finding))
    links = [value for name, value in Tags(page).attributes if name == "href" and value and "vscode" in value]
    assert links == [f"vscode://file{tmp_path}/a%20model%20%231.py:28"] * 2
    redacted = report.html(replace(subject, finding=finding), [RedactedPart.TENSORS])
    assert "vscode:" not in redacted

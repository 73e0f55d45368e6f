"""Links to lines of the model in an editor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.package.manifest import Kind, ModelLine
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from aoti_debug.views.report import report
from aoti_debug.views.report.editor_links import editor_links
from aoti_debug.views.report.report import RedactedPart
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, tensor
from tests.views.report.markup import Tags
from tests.views.report.subjects import PROVENANCE, data_of


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

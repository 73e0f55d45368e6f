from __future__ import annotations

from pathlib import Path

from aoti_debug.package.manifest import ModelLine
from aoti_debug.runs.diagnosis.findings import Place
from aoti_debug.views.report.source_text import CONTEXT_LINES, context_in, context_of, model_lines_of

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

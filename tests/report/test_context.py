from __future__ import annotations

from pathlib import Path

from aoti_debug.diagnosis.findings import Place
from aoti_debug.manifest import ModelLine
from aoti_debug.report.context import AROUND, around, context_of, places_with_lines

LINES = [f"line_{n} = {n}" for n in range(1, 41)]


def test_the_line_stands_among_its_neighbours() -> None:
    found = around(ModelLine("m.py", 20, "forward", "line_20 = 20"), LINES)
    assert [line.number for line in found.lines] == list(range(20 - AROUND, 20 + AROUND + 1))
    assert [line.text for line in found.lines if line.marked] == ["line_20 = 20"]
    assert found.remark == ""


def test_at_the_ends_of_a_file_there_are_fewer() -> None:
    assert around(ModelLine("m.py", 1, "f", "line_1 = 1"), LINES).lines[0].marked
    assert around(ModelLine("m.py", 40, "f", "  line_40 = 40"), LINES).lines[-1].marked


def test_a_file_that_changed_is_not_shown() -> None:
    for frame in (
        ModelLine("m.py", 20, "f", "line_21 = 21"),
        ModelLine("m.py", 99, "f", "x"),
        ModelLine("m.py", 20, "f", ""),
    ):
        found = around(frame, LINES)
        assert [line.text for line in found.lines] == ([frame.text] if frame.text else [])
        assert "not as it was" in found.remark


def test_files_are_read_where_they_are(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text("\n".join(LINES))
    assert len(context_of(ModelLine(str(path), 20, "f", "line_20 = 20")).lines) == 2 * AROUND + 1
    gone = context_of(ModelLine(str(tmp_path / "gone.py"), 20, "f", "line_20 = 20"))
    assert (len(gone.lines), "not read here" in gone.remark) == (1, True)


def test_only_python_files_are_read(tmp_path: Path) -> None:
    secret = tmp_path / "id_rsa"
    secret.write_text("secret\n")
    found = context_of(ModelLine(str(secret), 1, "f", "secret"))
    assert "no Python file" in found.remark
    large = tmp_path / "large.py"
    large.write_bytes(b"x = 1\n" * (1 << 20))
    assert "too large" in context_of(ModelLine(str(large), 1, "f", "x = 1")).remark
    binary = tmp_path / "binary.py"
    binary.write_bytes(b"\xff\xfe")
    assert "not read here" in context_of(ModelLine(str(binary), 1, "f", "x")).remark


def test_each_line_is_shown_once() -> None:
    one, two = ModelLine("m.py", 1, "f", "a"), ModelLine("m.py", 2, "f", "b")
    assert places_with_lines(Place(frame=one), None, Place(), Place(frame=two), Place(frame=one)) == (one, two)

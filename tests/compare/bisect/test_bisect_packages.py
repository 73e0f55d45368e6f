"""`aoti-debug bisect` as it is called, on a model whose two launches of relu are wrong: 0.2 and 0.4."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from aoti_debug.app.cli.main import group
from aoti_debug.base.errors import ArtifactError, UsageError
from tests.wrong_model import Wrong


def bisect(folder: Path, *words: str | Path) -> Result:
    return CliRunner().invoke(group, ["bisect", *map(str, words), "--out", str(folder / "bisects")])


def test_both_culprits_in_four_runs(wrong: Wrong, tmp_path: Path) -> None:
    result = bisect(tmp_path, wrong.good, wrong.bad)
    assert result.exit_code == 1, result.output
    lines = result.stdout.splitlines()
    culprits = [line.split()[1] for line in lines if line.startswith("CULPRIT")]
    assert culprits == ["0.2", "0.4"]
    assert "  model    " in result.stdout
    assert lines[-1] == "PROVED with the results of 0.2, 0.4 replaced, the outputs match again; 4 runs"


def test_a_package_and_itself_are_the_same(wrong: Wrong, tmp_path: Path) -> None:
    result = bisect(tmp_path, wrong.good, wrong.good)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == "SAME; 3 runs"


def test_bad_input(wrong: Wrong, tmp_path: Path) -> None:
    result = bisect(tmp_path, wrong.good, tmp_path / "missing.pt2")
    assert isinstance(result.exception, ArtifactError)


def test_another_program_is_refused(wrong: Wrong, faulty_package: Path, tmp_path: Path) -> None:
    result = bisect(tmp_path, wrong.good, faulty_package)
    assert isinstance(result.exception, UsageError | ArtifactError)

"""What a release is made of: an sdist that depends on its files alone, and the list of what a wheel holds."""

from __future__ import annotations

import os
import re
import tarfile
from pathlib import Path

import pytest
from setuptools import Distribution

from aoti_debug.base.machine.compiler import OLDEST_TORCH
from release.archives import ReproducibleSdist
from tests.paths import PACKAGE, ROOT

MINUTES = 60


def sdist(folder: Path, now: int, monkeypatch: pytest.MonkeyPatch, mode: int = 0o644) -> bytes:
    """The archive of three files that were written at this time."""
    (folder / "p-1/b").mkdir(parents=True)
    for name in ("b/z.py", "a.py", "run.sh"):
        path = folder / "p-1" / name
        path.write_text(name)
        path.chmod(0o755 if name == "run.sh" else mode)
        os.utime(path, (now, now))
    monkeypatch.chdir(folder)
    written = ReproducibleSdist(Distribution()).make_archive("p-1", "gztar", base_dir="p-1")
    return Path(written).read_bytes()


def test_an_sdist_depends_on_its_files_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    first = sdist(tmp_path / "1", 10 * MINUTES, monkeypatch)
    assert sdist(tmp_path / "2", 20 * MINUTES, monkeypatch, mode=0o664) == first
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000001")
    assert sdist(tmp_path / "3", 10 * MINUTES, monkeypatch) != first
    with tarfile.open(tmp_path / "1/p-1.tar.gz") as archive:
        members = {member.name: (oct(member.mode), member.mtime, member.uid) for member in archive}
    assert list(members) == ["p-1", "p-1/a.py", "p-1/b", "p-1/b/z.py", "p-1/run.sh"]
    assert members["p-1/a.py"] == ("0o644", 1700000000, 0)
    assert members["p-1/run.sh"] == ("0o755", 1700000000, 0)


def test_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="not zip"):
        ReproducibleSdist(Distribution()).make_archive("p-1", "zip", base_dir="p-1")


def test_a_wheel_holds_every_file_that_is_read_when_it_is_used() -> None:
    """Every kind of file beside the modules is named in pyproject.toml."""
    distribution = Distribution({"src_root": str(ROOT)})
    distribution.parse_config_files([str(ROOT / "pyproject.toml")])
    named = {
        path
        for package, patterns in distribution.package_data.items()
        for folder in ([PACKAGE, *PACKAGE.rglob("*/")] if package == "*" else [ROOT / package.replace(".", "/")])
        for pattern in patterns
        for path in folder.glob(pattern)
    }
    others = {path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix not in {".py", ".pyc"}}
    assert others - named == set()


def test_actions_are_pinned_by_hash() -> None:
    """A tag can be moved to other code; a hash cannot. The comment names the version that it is."""
    workflows = sorted((ROOT / ".github/workflows").glob("*.yml"))
    used = [line.strip().removeprefix("- ") for path in workflows for line in path.read_text().splitlines()]
    used = [line for line in used if line.startswith("uses: ")]
    assert len(used) > 10
    assert [line for line in used if not re.fullmatch(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []


def test_workflows_call_what_there_is() -> None:
    """`make` targets, scripts, and every Python of the classifiers."""
    text = "\n".join(path.read_text() for path in sorted((ROOT / ".github/workflows").glob("*.yml")))
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bmake (\w+)", text)) - targets == set()
    assert {path for path in re.findall(r"\brelease/\w+\.sh", text) if not (ROOT / path).is_file()} == set()
    pythons = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert re.findall(r"python: (\[.*\])", text) == [str(pythons).replace("'", '"')] * 2


def test_the_recipe_for_conda_needs_what_the_wheel_needs() -> None:
    """Conda's torch is named pytorch; it is no dependency of the wheel, which uses what is there."""
    recipe = (ROOT / "release/conda/recipe.yaml").read_text()
    wanted = dict(re.findall(r"^    - ([\w-]+) >=([\d.]+)", recipe.partition("\n  run:\n")[2], re.MULTILINE))
    project = (ROOT / "pyproject.toml").read_text().partition("\ndependencies = [")[2].partition("]")[0]
    assert wanted == {
        **dict(re.findall(r'"([\w-]+)>=([\d.]+)', project)),
        "python": "3.10",
        "pytorch": OLDEST_TORCH,
    }

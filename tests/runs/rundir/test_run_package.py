"""The package of a run: where its link leads, or a file with the same manifest near the run."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aoti_debug.base.errors import RunDirError
from aoti_debug.package import manifest as manifests
from aoti_debug.package.pt2 import trust
from aoti_debug.runs.rundir import run_directory as run_directories
from aoti_debug.runs.rundir.run_directory import open_run
from aoti_debug.runs.rundir.run_json import EMBEDDED, LoadedFrom
from tests import archives
from tests.factories import arg, make_manifest, run_directory, site

PACKAGE = make_manifest(site("cpp_fused_0", arg("x")))


def run_in(base: Path, **fields: Any) -> Path:
    """A run directory without a package in the directory `base`/runs."""
    (base / "runs").mkdir(parents=True, exist_ok=True)
    return run_directory(base / "runs", PACKAGE, **fields)


def package_of(run: Path, path: Path, weights: bytes = b"1") -> Path:
    """Writes the instrumented package of a run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = (run / run_directories.MANIFEST).read_bytes()
    return archives.write(path, {**archives.PACKAGE, manifests.MEMBER: text, "data/weights/w": weights})


def problem_of(run: Path) -> str:
    with pytest.raises(RunDirError, match="was not found") as caught:
        _ = open_run(run).required_package
    assert f"ln -s PACKAGE.pt2 {run / 'package.pt2'}" in caught.value.hint
    return str(caught.value)


def linked(run: Path, target: Path) -> Path:
    (run / "package.pt2").symlink_to(target)
    return run


def test_a_run_of_another_program_finds_the_package_where_it_was_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run = run_in(tmp_path, host=EMBEDDED)
    package = package_of(run, tmp_path / "elsewhere/m.pt2")
    trust.remember_place(PACKAGE.sha256, package)
    assert open_run(run).required_package == package
    archives.write(package, {**archives.PACKAGE, manifests.MEMBER: b"{}"})
    assert "has its manifest" in problem_of(run)


def test_a_link_is_followed(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    package = package_of(run, tmp_path / "elsewhere" / "m.pt2")
    assert open_run(linked(run, package)).required_package == package


def test_a_run_copied_with_its_package_finds_it_where_its_link_led_from_there(tmp_path: Path) -> None:
    old = tmp_path / "machine" / "project"
    run = run_in(old)
    package_of(run, old / "built" / "m.pt2")
    linked(run, old / "built" / "m.pt2")
    new = tmp_path / "other" / "copied"
    shutil.copytree(old, new, symlinks=True)
    shutil.rmtree(old)
    assert open_run(new / "runs" / run.name).required_package == new / "built" / "m.pt2"


@pytest.mark.parametrize("place", ["runs/{run}/other.pt2", "runs/m.pt2", "m.pt2"])
def test_a_run_of_another_program_finds_the_package_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / "away").mkdir()
    monkeypatch.chdir(tmp_path / "away")
    run = run_in(tmp_path, host=EMBEDDED)
    assert "the program that loaded it did not show where it lies" in problem_of(run)
    package = package_of(run, tmp_path / place.format(run=run.name))
    archives.write(tmp_path / "a.pt2", archives.PROGRAM)
    (tmp_path / "b.pt2").write_text("no archive")
    assert open_run(run).required_package == package


def test_a_run_of_another_program_finds_the_package_that_it_had_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "away").mkdir()
    monkeypatch.chdir(tmp_path / "away")
    a, b, other = (tmp_path / "models" / f"{name}.pt2" for name in ("a", "b", "other"))
    run = run_in(tmp_path, host=EMBEDDED, loaded_from=LoadedFrom("/tmp/x/m.so", (str(other), str(a), str(b))))
    archives.write(package_of(run, other), archives.PROGRAM)
    problem = problem_of(run)
    assert f"it is none of those that the program which loaded it had open or names: {other}, {a}, {b}" in problem
    package_of(run, a)
    assert open_run(run).required_package == a
    package_of(run, b, b"other weights")
    assert f"not all the same content: {a}, {b}" in problem_of(run)


@pytest.mark.parametrize("place", ["x/model.so", "m/data/aotinductor/model/x.so"])
def test_a_run_of_another_program_finds_the_package_above_its_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / "away").mkdir()
    monkeypatch.chdir(tmp_path / "away")
    run = run_in(tmp_path / "server", host=EMBEDDED, loaded_from=LoadedFrom(str(tmp_path / "models" / place)))
    package = package_of(run, tmp_path / "models" / "m.pt2")
    assert open_run(run).required_package == package


def test_it_is_found_in_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_in(tmp_path / "far" / "away")
    package = package_of(run, tmp_path / "m.pt2")
    monkeypatch.chdir(tmp_path)
    assert open_run(run).required_package == package


def test_another_package_is_not_taken(tmp_path: Path) -> None:
    run = linked(run_in(tmp_path), Path("/no/such/m.pt2"))
    other = run_in(tmp_path / "other")
    text = (other / "manifest.json").read_text()
    (other / "manifest.json").write_text(text.replace('"cpu"', '"cuda"'))
    package_of(other, tmp_path / "m.pt2")
    assert "/no/such/m.pt2 does not exist, and no .pt2 file in " in problem_of(run)
    package_of(run, tmp_path / "right.pt2")
    assert open_run(run).required_package == tmp_path / "right.pt2"


def test_of_two_with_other_weights_none_is_taken_but_the_linked_one(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    a, b = (package_of(run, tmp_path / f"{name}.pt2", name.encode()) for name in "ab")
    assert f"these have its manifest, but not all the same content: {a}, {b}" in problem_of(run)
    linked(run, Path("/old/b.pt2"))
    assert open_run(run).required_package == b


def test_two_of_the_same_content_are_one(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    a, _ = (package_of(run, tmp_path / f"{name}.pt2") for name in "ab")
    assert open_run(run).required_package == a


def test_a_package_that_was_built_again_is_another_one(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    text = replace(PACKAGE, source_sha256="other").json_text
    linked(run, archives.write(tmp_path / "m.pt2", {**archives.PACKAGE, manifests.MEMBER: text.encode()}))
    with pytest.raises(RunDirError, match="is another package than that of run"):
        _ = open_run(run).required_package


def test_a_run_of_another_program_cannot_be_repeated(tmp_path: Path) -> None:
    run = run_in(tmp_path, host=EMBEDDED)
    linked(run, package_of(run, tmp_path / "m.pt2"))
    with pytest.raises(RunDirError, match="passed its own inputs, which are not recorded"):
        open_run(run).require_repeatable()
    other = run_in(tmp_path / "other")
    linked(other, package_of(other, tmp_path / "other.pt2"))
    open_run(other).require_repeatable()

"""The addresses of a release are those of the repository whose workflow builds it, or none."""

from __future__ import annotations

from email.parser import HeaderParser
from pathlib import Path

import pytest
from setuptools import Distribution

from release import urls
from tests.paths import ROOT

GITHUB = {"GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "somebody/aoti-debug"}
REPOSITORY = "https://github.com/somebody/aoti-debug"


def information(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The metadata that a build in this folder writes."""
    monkeypatch.chdir(folder)
    (folder / "p").mkdir(exist_ok=True)
    distribution = Distribution({"name": "p", "version": "1", "packages": [], "script_name": "setup.py"})
    distribution.metadata.long_description = (folder / "README.md").read_text()
    command = urls.EggInfo(distribution)
    command.ensure_finalized()
    command.run()
    return folder / "p.egg-info" / "PKG-INFO"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "README.md").write_text(
        "[how](docs/how.md#a) ![page](docs/a.png) [torch](https://pytorch.org) [b](#b)\n"
    )
    for name, value in GITHUB.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def test_a_workflow_knows_its_repository(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = HeaderParser().parsestr(information(checkout, monkeypatch).read_text())
    assert written.get_all("Project-URL") == [
        f"Repository, {REPOSITORY}",
        f"Documentation, {REPOSITORY}/blob/HEAD/docs/README.md",
        f"Issues, {REPOSITORY}/issues",
        f"Changelog, {REPOSITORY}/blob/HEAD/CHANGELOG.md",
    ]
    assert str(written.get_payload()).strip() == (
        f"[how]({REPOSITORY}/blob/HEAD/docs/how.md#a) ![page]({REPOSITORY}/raw/HEAD/docs/a.png) "
        "[torch](https://pytorch.org) [b](#b)"
    )


def test_elsewhere_there_are_none(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_REPOSITORY")
    text = information(checkout, monkeypatch).read_text()
    assert "Project-URL" not in text
    assert "[how](docs/how.md#a)" in text


def test_an_sdist_keeps_them(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = information(checkout, monkeypatch).read_text()
    (checkout / "PKG-INFO").write_text(made)
    for name in GITHUB:
        monkeypatch.delenv(name)
    assert information(checkout, monkeypatch).read_text() == made


def test_the_files_that_they_lead_to_exist() -> None:
    inside = [url.partition("/blob/HEAD/")[2] for url in urls.of_workflow(GITHUB).values() if "/blob/" in url]
    assert inside == [path for path in inside if (ROOT / path).is_file()] != []


def test_the_build_writes_them() -> None:
    distribution = Distribution({"src_root": str(ROOT)})
    distribution.parse_config_files([str(ROOT / "pyproject.toml")])
    assert distribution.cmdclass["egg_info"].__name__ == urls.EggInfo.__name__

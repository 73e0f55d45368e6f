"""Received runs whose repro would execute untrusted code."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.app.cli import main
from aoti_debug.package.manifest import Kind, ProxyArgument
from tests.received import a_manifest, a_run, edit_json, received

INJECTED = [
    "mylib::op.default(x) or __import__('os').system('touch owned')  #",
    "mylib::op.default\nimport os",
    "mylib::op",
    "mylib::op.default.more",
    "mylib::import.default",
    "os.system('x')::op.default",
]


@pytest.mark.parametrize("kind", [Kind.PROXY, Kind.SHIM_OUT, Kind.CUSTOM_SHIM])
@pytest.mark.parametrize("op", INJECTED)
def test_an_operator_is_three_identifiers(
    tmp_path: Path, kind: Kind, op: str, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = a_manifest()
    operands = (ProxyArgument("self", False, '{"as_tensor": {"name": "x"}}'),)
    site = replace(manifest.sites[0], kind=kind, op=op, operands=operands)
    run = a_run(tmp_path, replace(manifest, sites=(site, manifest.sites[1])))
    assert main.run(["repro", "first", "--run", str(run), "-o", str(tmp_path / "repro")]) == 2
    assert "is not the name of an operator" in capsys.readouterr().err
    assert not (tmp_path / "repro").exists()


def test_an_argument_of_an_operator_is_an_identifier(tmp_path: Path) -> None:
    manifest = a_manifest()
    operands = (ProxyArgument("self, **__import__('os').environ, x", True, '{"as_tensor": {"name": "x"}}'),)
    site = replace(manifest.sites[0], kind=Kind.PROXY, op="aten::relu.default", operands=operands)
    run = a_run(tmp_path, replace(manifest, sites=(site, manifest.sites[1])))
    assert main.run(["repro", "first", "--run", str(run), "-o", str(tmp_path / "repro")]) == 2


@pytest.fixture
def untrusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A received run without tensors, with a package and a module to import, both untrusted."""
    run = received(tmp_path, imports=("evil_module",))
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "evil_module.py").write_text(f"open({str(tmp_path / 'owned')!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(str(modules))
    monkeypatch.setenv("PYTHONPATH", str(modules))
    (run / "package.pt2").symlink_to(tmp_path / "package.pt2")
    return run


@pytest.mark.parametrize("with_tensors", [True, False])
def test_a_repro_of_a_received_run_asks_first(
    tmp_path: Path, untrusted: Path, with_tensors: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    if not with_tensors:
        (untrusted / "journal.bin").write_bytes((a_run(tmp_path / "other") / "journal.bin").read_bytes())
        edit_json(untrusted / "manifest.json", lambda data: None)
    assert main.run(["repro", "first", "--run", str(untrusted), "-o", str(tmp_path / "repro")]) == 2
    error = capsys.readouterr().err
    assert "was not made on this account" in error
    assert "would run the operator aten.relu.out" in error
    assert "after the import of evil_module" in error
    assert "--trust" in error
    assert not (tmp_path / "owned").exists()
    assert not (tmp_path / "repro").exists()
    assert main.run(["repro", "first", "--run", str(untrusted), "-o", str(tmp_path / "repro"), "--trust"]) == 0


def test_imports_that_somebody_added_to_a_run_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = a_run(tmp_path)
    assert main.run(["repro", "first", "--run", str(run), "-o", str(tmp_path / "one")]) == 0
    edit_json(run / "run.json", lambda data: data.update(imports=["later_module"]))
    assert main.run(["repro", "first", "--run", str(run), "-o", str(tmp_path / "two")]) == 2
    assert "later_module" in capsys.readouterr().err


def test_a_bundle_of_ones_own_run_comes_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import zipfile

    run = a_run(tmp_path)
    assert main.run(["bundle", str(run), "-o", str(tmp_path / "b.zip")]) == 0
    with zipfile.ZipFile(tmp_path / "b.zip") as archive:
        archive.extractall(tmp_path / "back")
    (back,) = (tmp_path / "back").iterdir()
    assert json.loads((back / "manifest.json").read_text()) == json.loads((run / "manifest.json").read_text())
    assert main.run(["repro", "first", "--run", str(back), "-o", str(tmp_path / "repro")]) == 6
    assert "saved no tensors of launch 0.0" in capsys.readouterr().err  # and not that it asks for trust

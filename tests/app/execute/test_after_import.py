"""Functions that are called when a module has been imported."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from types import ModuleType

import pytest

from aoti_debug.app.execute.after_import import AfterImport


def test_a_module_is_changed_when_it_has_been_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_once.py").write_text("VALUE = 1\ndef f() -> int:\n    return VALUE\n")
    monkeypatch.syspath_prepend(tmp_path)

    def change(module: ModuleType) -> None:
        vars(module)["VALUE"] += 1

    finders = [AfterImport({"imported_once": change}) for _ in range(2)]
    monkeypatch.setattr(sys, "meta_path", [*finders, *sys.meta_path])
    module = importlib.import_module("imported_once")
    monkeypatch.delitem(sys.modules, "imported_once")
    assert module.f() == 3
    assert "return VALUE" in inspect.getsource(module.f)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("imported_never")

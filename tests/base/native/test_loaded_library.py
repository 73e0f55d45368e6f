"""Functions of loaded libraries."""

from __future__ import annotations

import _ctypes
import ctypes
import shutil
from pathlib import Path

from aoti_debug.base.native import loaded_library


def test_a_function_of_a_library_that_was_loaded(tmp_path: Path) -> None:
    shutil.copy(Path(_ctypes.__file__), tmp_path / "copy.so")
    before = loaded_library.paths()
    library = ctypes.CDLL(str(tmp_path / "copy.so"))
    (tmp_path / "copy.so").unlink()
    new = loaded_library.paths() - before
    assert new == {str(tmp_path / "copy.so")}
    assert loaded_library.function("no_such_function", new) is None
    found = loaded_library.function("PyInit__ctypes", new)
    assert found is not None
    address = ctypes.cast(found, ctypes.c_void_p).value
    assert address == ctypes.cast(library.PyInit__ctypes, ctypes.c_void_p).value
    _ctypes.dlclose(library._handle)
    assert not loaded_library.paths() & new
    assert loaded_library.function("PyInit__ctypes", new) is None

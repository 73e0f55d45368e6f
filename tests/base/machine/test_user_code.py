from __future__ import annotations

import sys
from pathlib import Path

import pytest

from aoti_debug.base.errors import UsageError
from aoti_debug.base.machine.user_code import UserCode, UserFunction, files_of, folders_of


def named(text: str) -> UserFunction:
    return UserFunction("--option", text, "names a function")


def test_the_function_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "my.py").write_text("def f(x):\n    return x + 1\n")
    function = named(f"{tmp_path / 'my.py'}:f")
    function.check()
    assert function.load()(2) == 3


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("my.py", "--option my.py is not FILE.py:FUNCTION"),
        ("nosuch.py:f", "--option: nosuch.py does not exist"),
        ("my.py:nosuch", "--option: my.py has no function nosuch"),
        ("my.py:number", "--option: my.py has no function number"),
        ("broken.py:f", "--option broken.py:f fails: ValueError: one"),
        ("ends.py:f", "--option ends.py:f fails: SystemExit: 3"),
    ],
)
def test_what_cannot_be_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, problem: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.py").write_text("number = 1\n")
    Path("broken.py").write_text("raise ValueError('one\\ntwo')\n")
    Path("ends.py").write_text("raise SystemExit(3)\n")
    with pytest.raises(UsageError) as caught:
        named(name).load()
    assert str(caught.value) == problem
    assert caught.value.hint == "--option FILE.py:FUNCTION names a function"


def test_a_file_imports_its_neighbours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "a_neighbour.py").write_text("number = 4\n")
    (tmp_path / "my.py").write_text("def f():\n    import a_neighbour\n    return a_neighbour.number\n")
    assert named(f"{tmp_path / 'my.py'}:f").load()() == 4


def test_modules_of_the_current_folder_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "operators_of_mine.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])  # as of a console script
    assert folders_of(("operators_of_mine", "torch")) == (str(tmp_path),)
    assert list(files_of(("operators_of_mine",))) == [tmp_path / "operators_of_mine.py"]


def test_a_package_without_an_init_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "operators").mkdir()
    (tmp_path / "operators" / "mine.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert folders_of(("operators.mine",)) == (str(tmp_path),)
    assert list(files_of(("operators.mine",))) == [tmp_path / "operators" / "mine.py"]


def test_libraries_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert UserCode(libraries=(Path("a.so"), Path("/b.so"))).library_paths == (str(tmp_path / "a.so"), "/b.so")


def test_code_after_other_code() -> None:
    own = UserCode(("b", "c"), (Path("b.so"),), trusted=True)
    assert own.after(["a", "b"], ["a.so"]) == UserCode(("a", "b", "c"), (Path("a.so"), Path("b.so")), trusted=True)

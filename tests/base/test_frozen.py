"""The lazy frozen dataclass is like that of the standard library, but the code of a class is made at its first use."""

from __future__ import annotations

import ast
import copy
import dataclasses
import inspect
import pickle
import types
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, ClassVar

import pytest

from aoti_debug.base.frozen import dataclass
from tests.paths import package_sources


@dataclass(frozen=True)
class Lazy:
    """A class with all that fields of aoti-debug have."""

    shared: ClassVar[int] = 1
    name: str
    numbers: tuple[int, ...] = (1, 2)
    by_name: Mapping[str, int] = field(default_factory=dict)
    hidden: int = field(default=0, repr=False)
    aside: int = field(default=0, compare=False)


@dataclasses.dataclass(frozen=True)
class Standard:
    """The same class of the standard library."""

    shared: ClassVar[int] = 1
    name: str
    numbers: tuple[int, ...] = (1, 2)
    by_name: Mapping[str, int] = field(default_factory=dict)
    hidden: int = field(default=0, repr=False)
    aside: int = field(default=0, compare=False)


@dataclass(frozen=True, kw_only=True)
class LazyByName:
    """A class whose fields are passed by name."""

    number: int = 1
    name: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class StandardByName:
    """The same class of the standard library."""

    number: int = 1
    name: str


@dataclass(frozen=True)
class Empty:
    """A class without fields."""


@dataclass(frozen=True)
class Single:
    """A class with one field."""

    value: float


@dataclass(frozen=True)
class OtherSingle:
    """Another class with that field."""

    value: float


@dataclass(frozen=True)
class Checked:
    """A class that checks its values."""

    value: int

    def __post_init__(self) -> None:
        if self.value < 0:
            raise ValueError("negative")


@pytest.mark.parametrize(
    "use",
    [
        lambda cls: repr(cls("a", hidden=3)).partition("(")[2],
        lambda cls: vars(cls("a", (3,), {"b": 1}, 4, 5)),
        lambda cls: cls("a") == cls("a", aside=3),
        lambda cls: cls("a") == cls("a", hidden=3),
        lambda cls: cls("a") == ("a", (1, 2), {}, 0),
        lambda cls: cls("a").by_name is cls("a").by_name,
        lambda cls: dataclasses.asdict(cls("a", by_name={"b": 1})),
        lambda cls: vars(dataclasses.replace(cls("a"), numbers=())),
        lambda cls: [(f.name, f.default, f.repr, f.compare) for f in dataclasses.fields(cls)],
        lambda cls: cls.__match_args__,
        lambda cls: [(p.name, p.annotation) for p in inspect.signature(cls).parameters.values()],
        lambda cls: inspect.signature(cls).parameters["numbers"].default,
        lambda cls: vars(copy.deepcopy(cls("a", by_name={"b": 1}))),
        lambda cls: pickle.loads(pickle.dumps(cls("a"))) == cls("a"),
        lambda cls: cls.shared,
    ],
)
def test_it_is_like_the_standard_one(use: Callable[[Any], object]) -> None:
    assert use(Lazy) == use(Standard)


def error_of(misuse: Callable[[Any], object], cls: type) -> Exception:
    try:
        misuse(cls)
    except (TypeError, AttributeError) as error:
        return error
    raise AssertionError("no error")


@pytest.mark.parametrize(
    "misuse",
    [
        lambda cls: cls(),
        lambda cls: cls("a", 1, 2, 3, 4, 5),
        lambda cls: cls("a", other=1),
        lambda cls: setattr(cls("a"), "name", "b"),
        lambda cls: delattr(cls("a"), "name"),
        lambda cls: hash(cls("a")),  # of a dict
        lambda cls: cls("a") < cls("b"),
    ],
)
def test_it_refuses_what_the_standard_one_refuses(misuse: Callable[[Any], object]) -> None:
    error, expected = error_of(misuse, Lazy), error_of(misuse, Standard)
    assert type(error) is type(expected)
    assert str(error) == str(expected).replace("Standard", "Lazy")


@pytest.mark.parametrize(
    "use",
    [
        lambda cls: vars(cls(name="a")),
        lambda cls: vars(dataclasses.replace(cls(name="a"), number=2)),
        lambda cls: cls.__match_args__,
        lambda cls: [(p.name, p.kind, p.default) for p in inspect.signature(cls).parameters.values()],
    ],
)
def test_fields_that_are_passed_by_name(use: Callable[[Any], object]) -> None:
    assert use(LazyByName) == use(StandardByName)


@pytest.mark.parametrize("misuse", [lambda cls: cls("a"), lambda cls: cls(1, name="a"), lambda cls: cls(number=1)])
def test_fields_by_name_are_refused_by_position(misuse: Callable[[Any], object]) -> None:
    error, expected = error_of(misuse, LazyByName), error_of(misuse, StandardByName)
    assert type(error) is type(expected)
    assert str(error) == str(expected).replace("Standard", "Lazy")


def test_equal_ones_have_equal_hashes() -> None:
    assert hash(Single(1.0)) == hash(Single(1))
    assert {Single(1.0), Single(1), Single(2.0)} == {Single(1), Single(2)}
    assert Empty() == Empty()
    assert hash(Empty()) == hash(Empty())


def test_other_classes_are_not_equal() -> None:
    others: list[object] = [OtherSingle(1.0), 1.0]
    assert Single(1.0) not in others


def test_a_value_that_is_not_equal_to_itself_is_compared_by_identity() -> None:
    nan = float("nan")
    assert Single(nan) == Single(nan)
    assert Single(nan) != Single(float("nan"))


def test_its_own_check_runs() -> None:
    assert Checked(1).value == 1
    with pytest.raises(ValueError, match="negative"):
        Checked(-1)


def test_a_class_may_inherit_from_it() -> None:
    class Named(Single):
        def __init__(self, value: float) -> None:
            super().__init__(value)

    assert Named(2.0).value == 2.0


def test_the_code_of_a_class_is_made_once() -> None:
    @dataclass(frozen=True)
    class Point:
        x: int

    assert not inspect.isfunction(vars(Point)["__init__"])
    assert [Point(1).x, Point(2).x] == [1, 2]
    assert inspect.isfunction(vars(Point)["__init__"])


def test_a_field_that_is_no_parameter_is_refused() -> None:
    def body(namespace: dict[str, Any]) -> None:
        namespace["__annotations__"] = {"x": "int"}
        namespace["x"] = field(init=False, default=1)

    odd: Any = types.new_class("Odd", exec_body=body)
    with pytest.raises(TypeError, match=r"Odd\.x: only fields that are parameters"):
        dataclass(frozen=True)(odd)(1)


LAZY = ("dataclass(frozen=True)", "dataclass(frozen=True, kw_only=True)")


def is_frozen_dataclass(node: ast.AST) -> bool:
    if not isinstance(node, ast.ClassDef):
        return False
    return any(ast.unparse(decorator) in LAZY for decorator in node.decorator_list)


def decorator_modules(tree: ast.Module) -> set[str | None]:
    """The modules that a name `dataclass` is imported from."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {node.module for node in imports if any(alias.name == "dataclass" for alias in node.names)}


def test_every_frozen_dataclass_is_lazy() -> None:
    """Those of replays apart, which import nothing of aoti-debug."""
    trees = {path: ast.parse(path.read_text()) for path in package_sources() if path.parent.name != "templates"}
    using = {path: tree for path, tree in trees.items() if any(map(is_frozen_dataclass, ast.walk(tree)))}
    assert {path for path, tree in using.items() if decorator_modules(tree) != {"aoti_debug.base.frozen"}} == set()

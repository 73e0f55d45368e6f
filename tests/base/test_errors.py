from __future__ import annotations

from collections.abc import Iterator

from aoti_debug.base import errors
from aoti_debug.base.errors import AotiDebugError, InputMismatch, Mismatch


def derived(cls: type[AotiDebugError]) -> Iterator[type[AotiDebugError]]:
    yield cls
    for subclass in cls.__subclasses__():
        yield from derived(subclass)


def test_the_table_of_names_holds_every_error() -> None:
    """Other modules derive classes that are sent as the nearest one in the table."""
    by_name = {cls.__name__: cls for cls in derived(AotiDebugError) if cls.__module__ == errors.__name__}
    assert by_name == errors.BY_NAME


def test_an_input_that_differs_twice_is_named_once() -> None:
    sentence = "input 0 (x) is float32[9]; the model takes int64[8]"
    pairs = (("dtype", "convert it"), ("shape", "its shape has to be [8]"))
    differences = [Mismatch("x", 0, kind, "int64[8]", "float32[9]", sentence, advice) for kind, advice in pairs]
    error = InputMismatch(differences)
    assert str(error) == sentence
    assert error.hint == "convert it; its shape has to be [8]"

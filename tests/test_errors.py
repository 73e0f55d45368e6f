from __future__ import annotations

from collections.abc import Iterator

from aoti_debug import errors
from aoti_debug.errors import AotiDebugError


def derived(cls: type[AotiDebugError]) -> Iterator[type[AotiDebugError]]:
    yield cls
    for subclass in cls.__subclasses__():
        yield from derived(subclass)


def test_the_table_of_names_holds_every_error() -> None:
    by_name = {cls.__name__: cls for cls in derived(AotiDebugError) if cls.__module__.startswith("aoti_debug.")}
    assert by_name == errors.BY_NAME

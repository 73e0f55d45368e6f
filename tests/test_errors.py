from __future__ import annotations

from collections.abc import Iterator

from aoti_debug import errors
from aoti_debug.errors import AotiDebugError


def derived(cls: type[AotiDebugError]) -> Iterator[type[AotiDebugError]]:
    yield cls
    for found in cls.__subclasses__():
        yield from derived(found)


def test_the_table_of_names_holds_every_error() -> None:
    found = {cls.__name__: cls for cls in derived(AotiDebugError) if cls.__module__.startswith("aoti_debug.")}
    assert found == errors.BY_NAME

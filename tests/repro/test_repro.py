"""What a repro says of tensors that a run did not save."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aoti_debug.base.errors import RunDirError
from aoti_debug.repro import repro

SPARSE = "buf2 after the launch (not read: layout sparse_coo)"
LARGE = "buf1 before the launch (larger than 1024 bytes)"


@pytest.mark.parametrize(
    ("missing", "hint"),
    [
        ((SPARSE,), "tensors of this layout are never saved; aoti-debug show 0.1 shows what is recorded"),
        ((LARGE,), repro._LIMITS),
        ((SPARSE, LARGE), repro._LIMITS),
    ],
)
def test_the_hint_names_limits_only_where_they_may_help(missing: tuple[str, ...], hint: str) -> None:
    arguments: Any = SimpleNamespace(missing=lambda *, fault: iter(missing))
    launch: Any = SimpleNamespace(id="0.1", fault=None, site=SimpleNamespace(kernel="k"))
    run: Any = SimpleNamespace(timeline=SimpleNamespace(notes=()))
    with pytest.raises(RunDirError, match=r"launch 0\.1 of k cannot be replayed; not saved: ") as caught:
        repro._check_complete(run, launch, arguments)
    assert caught.value.hint == hint

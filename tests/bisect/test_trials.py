"""The file of finished trials: an interrupted bisection goes on, a finished one begins anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from aoti_debug.bisect.trials import NAME, Trial, Trials
from aoti_debug.errors import RunDirError

AS_IT_IS = Trial("as it is", wrong="0.1 relu is wrong", seconds=2.5)
LIMITED = Trial("no lowerings", applied=("relu", "addmm"))


def test_an_interrupted_bisection_goes_on(tmp_path: Path) -> None:
    first = Trials(tmp_path, "key", {"freezing": True})
    first.add(AS_IT_IS)
    first.add(LIMITED)
    again = Trials(tmp_path, "key", {"freezing": True})
    assert (again.all, again.known) == ((AS_IT_IS, LIMITED), 2)
    assert again.find("no lowerings") == LIMITED
    assert again.find("no post_grad_passes") is None


@pytest.mark.parametrize(("key", "is_done"), [("other", False), ("key", True)])
def test_another_or_a_finished_bisection_begins_anew(tmp_path: Path, key: str, is_done: bool) -> None:
    first = Trials(tmp_path, "key", {})
    first.add(AS_IT_IS)
    if is_done:
        first.finish()
    assert Trials(tmp_path, key, {}).all == ()


def test_a_damaged_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text('{"format": 1, "key": 3}')
    with pytest.raises(RunDirError, match="is damaged"):
        Trials(tmp_path, "key", {})


def test_a_trial_that_could_not_be_built_is_not_right() -> None:
    assert not Trial("x", failure="it does not compile").is_right
    assert Trial("x").is_right

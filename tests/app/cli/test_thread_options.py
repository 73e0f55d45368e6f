from __future__ import annotations

import pytest
from click.testing import CliRunner

from aoti_debug.app.cli.main import group
from aoti_debug.base.errors import UsageError


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--runners", "2"), "--runners needs --threads"),
        (("--update-weights",), "--update-weights needs --threads"),
        (("--jitter",), "--jitter needs --threads"),
        (("--jitter", "7"), "--jitter needs --threads"),
        (("--threads", "2", "--repeat", "3"), "--threads and --repeat exclude each other"),
        (("--threads", "2", "--guards"), "--threads and --guards exclude each other"),
    ],
)
def test_options_that_do_not_go_together(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        CliRunner().invoke(group, ["run", "model.pt2", *words], catch_exceptions=False)


def test_one_thread_is_none() -> None:
    result = CliRunner().invoke(group, ["run", "model.pt2", "--threads", "1"])
    assert (result.exit_code, "1 is not in the range x>=2" in result.output) == (2, True)

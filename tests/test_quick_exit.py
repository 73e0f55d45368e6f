from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import atexit
from tests import quick_exit

class Freed:
    def __del__(self):
        print("freed")

freed = Freed()
atexit.register(print, "at exit", flush=True)
"""


@pytest.mark.parametrize(
    ("last", "said"),
    [
        ("", ["at exit", "freed"]),
        ("quick_exit.leave()", ["at exit"]),
        ("quick_exit.leave_at_exit()", ["at exit"]),
    ],
)
def test_exit_handlers_are_called_and_nothing_is_freed(last: str, said: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT + last], capture_output=True, text=True, check=True)
    assert (done.stdout.splitlines(), done.stderr) == (said, "")

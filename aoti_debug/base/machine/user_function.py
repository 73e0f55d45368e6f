"""A function of the user's own that an option names: FILE.py:FUNCTION."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aoti_debug.base import wording
from aoti_debug.base.errors import UsageError
from aoti_debug.base.frozen import dataclass


@dataclass(frozen=True)
class UserFunction:
    """A function that an option names.

    Attributes:
        option: "--metric".
        text: "my.py:f".
        purpose: what the option names, the end of a hint: "names a function of two tensors".
    """

    option: str
    text: str
    purpose: str

    @property
    def hint(self) -> str:
        """The form that the option takes."""
        return f"{self.option} FILE.py:FUNCTION {self.purpose}"

    def check(self) -> None:
        """Checks that the text is "FILE.py:FUNCTION" and that there is such a file.

        Raises:
            UsageError: it is not, or there is none.
        """
        file, colon, _ = self.text.rpartition(":")
        if not colon:
            raise UsageError(f"{self.option} {self.text} is not FILE.py:FUNCTION", hint=self.hint)
        if not Path(file).is_file():
            raise UsageError(f"{self.option}: {file} does not exist", hint=self.hint)

    def load(self) -> Callable[..., Any]:
        """Executes the file and returns the function; the file may import its neighbours, also later.

        Raises:
            UsageError: there is no such file or function, or the file fails.
        """
        self.check()
        file, _, name = self.text.rpartition(":")
        folder = str(Path(file).resolve().parent)
        if folder not in sys.path:
            sys.path.append(folder)
        try:
            function = runpy.run_path(file).get(name)
        except (Exception, SystemExit) as error:  # the user's file may raise anything
            raise UsageError(f"{self.option} {self.text} fails: {_described(error)}", hint=self.hint) from error
        if not callable(function):
            raise UsageError(f"{self.option}: {file} has no function {name}", hint=self.hint)
        found: Callable[..., Any] = function
        return found


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {wording.first_line(str(error))}"

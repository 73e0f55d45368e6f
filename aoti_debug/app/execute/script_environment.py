"""The environment of a script's processes: what has Python import sitecustomize, unseen by the script.

Each process takes these variables out of `os.environ`, and leaves them in the environment that C functions see: that is
what processes get that it starts without an environment of their own. Modules are changed as soon as they are imported.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug.base.machine import current_rank

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType


class AfterImport:
    """Finds modules as Python does, and calls a function as soon as one of them has been executed."""

    def __init__(self, actions: Mapping[str, Callable[[Any], None]]) -> None:
        self._actions = actions

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the spec that the other finders find."""
        action = self._actions.get(name)
        if action is None:
            return None
        position = sys.meta_path.index(self)
        others = (finder.find_spec(name, path, target) for finder in sys.meta_path[position + 1 :])
        spec = next((found for found in others if found is not None), None)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            action(module)

        vars(spec.loader)["exec_module"] = exec_module
        return spec


_STARTUP = Path(__file__).with_name("startup")
_SEARCH = "PYTHONPATH"
_USERS = "_AOTI_DEBUG_PYTHONPATH"  # which startup/sitecustomize.py restores
_CHILD = "_AOTI_DEBUG_CHILD"  # set in the processes that the script starts
_KEEPS_ALL = "_AOTI_DEBUG_KEEPS_ALL"  # set where the inputs of every call are to be kept
_TORCH_COMPILE = "_AOTI_DEBUG_TORCH_COMPILE"  # set where graphs of torch.compile are to be recorded
_RUN = "AOTI_DEBUG_RUN"
_DIR = "AOTI_DEBUG_DIR"
_SCRIPT_RUN = "_AOTI_DEBUG_SCRIPT_RUN"  # the run directory of the script, in the processes that a rank starts
_WITHOUT_MODELS = ("aoti_debug", "torch._inductor")  # whose processes compile


def with_startup(variables: Mapping[str, str], *, keeps_all: bool, torch_compile: bool = False) -> dict[str, str]:
    """The environment of a script's process. Arguments: as of ScriptSettings."""
    users = variables.get(_SEARCH)
    added = {_SEARCH: os.pathsep.join([str(_STARTUP), *([users] if users else [])])}
    if users is not None:
        added[_USERS] = users
    if keeps_all:
        added[_KEEPS_ALL] = "1"
    if torch_compile:
        added[_TORCH_COMPILE] = "1"
    return {**variables, **added}


class Shared(Enum):
    """The form in which other processes of a script find a package that this one compiles, beside its file."""

    NOTHING = "nothing"
    PROGRAM = "program"  # they instrument the package with its model lines when they load it
    PACKAGE = "package"  # the instrumented one: it is built at once, as other ranks wait for that


class ScriptSettings:
    """The settings of a process of a script, which its environment tells.

    Attributes:
        run: the run directory.
        keeps_all: the inputs of every call are to be kept.
        torch_compile: graphs of `torch.compile` are to be recorded.
        is_child: the script has started the process.
        is_rank: it is one of several ranks, as torchrun starts them.
    """

    def __init__(self) -> None:
        """Takes the variables out of os.environ."""
        self.run = Path(os.environ.pop(_SCRIPT_RUN, "") or os.environ[_RUN])
        self.keeps_all = os.environ.pop(_KEEPS_ALL, "") == "1"
        self.torch_compile = os.environ.pop(_TORCH_COMPILE, "") == "1"
        self.is_child = os.environ.pop(_CHILD, "") == "1"
        self.is_rank = self.is_child and current_rank.of_environment() is not None
        if self.is_rank:  # the runtime makes a run of ranks, in the run directory of the script
            os.environ.pop(_RUN, None)
            os.environ[_DIR] = str(self.run)

    @property
    def shared(self) -> Shared:
        """The form in which other processes find a package that this one compiles."""
        return Shared.PACKAGE if self.is_rank else Shared.PROGRAM

    def cover_children(self) -> None:
        """Has the Python processes that this one starts do the same.

        Not those that get an environment without the variables of the run.
        """
        for name, value in self._of_child(os.environ).items():
            if os.environ.get(name) != value:
                os.putenv(name, value)
        if "subprocess" in sys.modules:
            self._replace(sys.modules["subprocess"])
        else:
            sys.meta_path.insert(0, AfterImport({"subprocess": self._replace}))

    def _of_child(self, variables: Mapping[str, str]) -> dict[str, str]:
        covered = with_startup(variables, keeps_all=self.keeps_all, torch_compile=self.torch_compile)
        return {**covered, _CHILD: "1", **({_SCRIPT_RUN: str(self.run)} if self.is_rank else {})}

    def _is_covered(self, variables: Mapping[str, str]) -> bool:
        """True if an environment has what this one has of the run."""
        return variables.get(_DIR) == str(self.run) if self.is_rank else _RUN in variables

    def _replace(self, subprocess: Any) -> None:
        original = subprocess.Popen.__init__

        @functools.wraps(original)
        def __init__(process: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            variables = kwargs.get("env")
            if isinstance(variables, Mapping) and self._is_covered(variables) and not _compiles(sys._getframe(1)):
                kwargs["env"] = self._of_child(variables)
            original(process, *args, **kwargs)

        subprocess.Popen.__init__ = __init__


def _compiles(frame: Any) -> bool:
    """True if a process is started by code whose processes compile."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name != "subprocess":
            return name.startswith(_WITHOUT_MODELS)
        frame = frame.f_back
    return False

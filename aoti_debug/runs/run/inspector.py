"""Calls a Python function on the tensors of launches while a package runs in this process.

`inspect` is `aoti_debug.inspect`; `aoti-debug run --inspect` makes an `Inspector` in the process of the model.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from aoti_debug.base import wording
from aoti_debug.base.abi import CallKind, Phase, Variable
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import current_rank as machine_ranks
from aoti_debug.base.machine.processes.child_process import changed_environment
from aoti_debug.base.machine.user_code import UserFunction
from aoti_debug.package.manifest import Form, Manifest, ModelLine, Role, Site
from aoti_debug.package.printing.template import InspectedTensor
from aoti_debug.package.pt2 import archive
from aoti_debug.runs.run.load_model import load
from aoti_debug.runs.rundir.formats.journal_records import LaunchKey


class InspectorError(RuntimeError):
    """An inspector that raised an exception, which is the cause of this one, or that changed a tensor."""


@dataclass(frozen=True)
class InspectedLaunch:
    """The place of a tensor that an inspector is called on.

    Attributes:
        id: "0.3".
        kernel: the kernel's name.
        argument: the tensor's name in the launch: "buf4".
        phase: "before" if the launch is about to begin, "after" if it has been started.
        role: "in", "out" or "inout": whether the launch reads the tensor, writes it, or both; "unknown".
        source: the model line, "model.py:23"; "" if it is not known.
        place: what an inspector in the model (`aoti_debug.inspector`) is told; None for other launches.
    """

    id: str
    kernel: str
    argument: str
    phase: str
    role: str
    source: str
    place: InspectedTensor | None = None

    @property
    def tag(self) -> str:
        """The tag of the inspector in the model; "" for other launches."""
        return "" if self.place is None else self.place.tag

    def __str__(self) -> str:
        return f"{self.id} {self.kernel} {self.argument}" + (f", tag {self.tag}" if self.tag else "")


InspectorFunction = Callable[[Any, InspectedLaunch], object]


class _Inspection(ctypes.Structure):
    """AotiDebugInspection of aoti_debug.h."""

    _fields_ = (
        ("kernel", ctypes.c_char_p),
        ("argument", ctypes.c_char_p),
        ("tensor", ctypes.c_void_p),
        ("call", ctypes.c_uint32),
        ("launch", ctypes.c_uint32),
        ("site", ctypes.c_uint32),
        ("kind", ctypes.c_uint8),
        ("phase", ctypes.c_uint8),
        ("role", ctypes.c_uint8),
        ("reserved", ctypes.c_uint8),
    )


_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(_Inspection))
_KEPT: list[Any] = []  # callbacks whose address a package may still have


class Inspector:
    """A function of the user, as the runtime of a package calls it.

    Attributes:
        variable: the value of `Variable.INSPECT` that has the packages of this process call it.
        failure: the error of the last call; None while there is none.
    """

    def __init__(self, function: InspectorFunction, manifest: Manifest, name: str, tag: str = "") -> None:
        """Prepares the calls.

        Args:
            manifest: of the package.
            name: of the function, for errors.
            tag: a pattern: only inspectors in the model of such a tag; "" for every launch.
        """
        self._function = function
        self._manifest = manifest
        self._name = name
        self._tag = tag
        self._capsule = _capsule_maker()
        callback = _CALLBACK(self._called)
        _KEPT.append(callback)
        self.variable = f"{os.getpid()}:{ctypes.cast(callback, ctypes.c_void_p).value:x}"
        self.failure: InspectorError | None = None

    def check(self) -> None:
        """Raises the error of the function, if there is one.

        Raises:
            InspectorError: the function raised an exception, or has changed a tensor.
        """
        if self.failure is not None:
            raise self.failure

    def _called(self, inspection: Any) -> int:
        import torch

        told = inspection.contents
        launch = self._launch(told)
        if not told.tensor:
            self._changed(launch)
            return 1
        # the function for one tensor copies and leaks the handle (torch/csrc/inductor/aoti_runner/pybind.cpp)
        (tensor,) = torch._C._aoti.alloc_tensors_by_stealing_from_void_ptrs([self._capsule(told.tensor, None, None)])
        if self.failure is not None:
            return 1
        if self._tag and (launch.place is None or not fnmatchcase(launch.tag, self._tag)):
            return 0
        try:
            version = _version(tensor)
            self._function(tensor, launch)
            if _version(tensor) != version:
                self._changed(launch)
        except BaseException as error:  # noqa: BLE001 - reported when the model has ended
            what = f"{type(error).__name__}: {wording.first_line(str(error))}"
            self.failure = InspectorError(f"the inspector {self._name} raised {what}, in {launch}")
            self.failure.__cause__ = error
            traceback.print_exception(error)
        return 0 if self.failure is None else 1

    def _changed(self, launch: InspectedLaunch) -> None:
        self.failure = InspectorError(f"the inspector {self._name} has changed the tensor in {launch}")

    def _launch(self, told: Any) -> InspectedLaunch:
        source: tuple[ModelLine, ...] = ()
        argument = told.argument.decode()
        place: InspectedTensor | None = None
        if told.site < len(self._manifest.sites):
            site = self._manifest.sites[told.site]
            source, place = site.provenance.source, place_in_model(site, argument)
        return InspectedLaunch(
            id=str(LaunchKey(CallKind(told.kind), told.call, told.launch)),
            kernel=told.kernel.decode(),
            argument=argument,
            phase=Phase(told.phase).name.lower(),
            role=Role(told.role).name.lower(),
            source=source[0].place if source else "",
            place=place,
        )


def place_in_model(site: Site, argument: str) -> InspectedTensor | None:
    """The place of a tensor of an inspector in the model; None for other launches."""
    if site.op != "aoti_debug.inspect_.default":
        return None
    texts = {arg.param: arg.text.strip('"') for arg in site.args if arg.form is Form.STRING}
    index = next((arg.element for arg in site.args if arg.form is Form.LIST and arg.name == argument), 0)
    return InspectedTensor(texts.get("tag", ""), texts.get("phase", "forward"), index)


def tags(package: Manifest) -> list[str]:
    """The tags of the inspectors in a model, in the order of the program."""
    places = (place_in_model(site, "") for site in package.sites)
    return list(dict.fromkeys(place.tag for place in places if place is not None))


def user_function(text: str) -> UserFunction:
    """The user's function "FILE.py:FUNCTION" of --inspect."""
    return UserFunction("--inspect", text, "names a function of a tensor and its launch")


def _version(tensor: Any) -> int | None:
    """How often a tensor was written in place; None for one that does not count it."""
    return None if tensor.is_inference() else int(tensor._version)


def _capsule_maker() -> Callable[[int, None, None], Any]:
    maker = ctypes.pythonapi.PyCapsule_New
    maker.restype = ctypes.py_object
    maker.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return maker


@contextlib.contextmanager
def inspect(
    package: str | Path,
    function: InspectorFunction | None = None,
    *,
    filters: Sequence[str] = (),
    phase: str | None = None,
    tag: str = "",
    ranks: Collection[int] | None = None,
) -> Iterator[Callable[..., Any]]:
    """Loads an instrumented package and yields it as a callable that calls `function` on the tensors of its launches.

        with aoti_debug.inspect("model.instrumented.pt2", f, filters=("triton_*",)) as model:
            model(x)

    Args:
        function: called as `function(tensor, launch)` with the tensor itself, on its device, without a copy, and an
            `aoti_debug.runs.run.inspector.InspectedLaunch`; what a launch reads before it, what it writes after it.
            None: the functions of the inspectors of this process (`aoti_debug.inspector`), found by their tags in the
            model.
        filters: patterns of kernel names; "!PATTERN" excludes. Empty: every launch.
        phase: "before", "after" or "both", instead.
        tag: a pattern: only tensors of inspectors in the model that have such a tag.
        ranks: of torch.distributed, or of the variable RANK, on which the function is called; None for all.

    Raises:
        ArtifactError: the package cannot be read.
        InspectorError: when the model is called: the function raised an exception, or has changed a tensor.
    """
    artifact = archive.inspect(package)
    manifest = artifact.manifest()
    inspector = (
        Inspector(_call_own, manifest, "in the model", tag or "*")
        if function is None
        else Inspector(function, manifest, getattr(function, "__qualname__", repr(function)), tag)
    )
    variables = {
        Variable.INSPECT: inspector.variable if machine_ranks.selected(ranks) else "",
        Variable.FILTER: ",".join(filters),
        Variable.PHASE: phase or "",
        Variable.LEVEL: os.environ.get(Variable.LEVEL.value) or "3",
        Variable.PRINT: os.environ.get(Variable.PRINT.value) or "none",
    }
    with changed_environment({variable.value: value for variable, value in variables.items()}):
        model = load(artifact, manifest.model, manifest.device)

        def call(*args: Any, **kwargs: Any) -> Any:
            import torch

            try:
                with torch.no_grad():
                    return model(*args, **kwargs)
            finally:
                inspector.check()

        yield call


def _call_own(tensor: Any, launch: InspectedLaunch) -> None:
    from aoti_debug.package.printing import inspectors

    if launch.place is not None:
        inspectors.call_registered(launch.place.tag, launch.place.phase, launch.place.index, tensor)

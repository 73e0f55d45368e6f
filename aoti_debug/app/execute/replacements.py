"""Replaces the compilers and the loaders of models in this process, as soon as torch is imported.

They are looked up when they are called, by all functions of torch that compile or load a package, or a bare library.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from aoti_debug.app.execute.operator_modules import OperatorModules
from aoti_debug.app.execute.script_environment import AfterImport, ScriptSettings
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.native import crash_stacks

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import TracebackType

    from aoti_debug.app.execute.kept_inputs import PackageUse
    from aoti_debug.app.execute.recorded_packages import RecordedPackages
    from aoti_debug.base.machine.processes.messages import ErrorData
    from aoti_debug.base.machine.user_code import UserCode

_PYTHON_STACKS = "python.txt"
_OF_MODEL = "_aoti_debug_of_model"  # the attribute of an exception that a call of a model has raised
_HERE = Path(__file__).parent
_OWN_FILES = (  # whose frames lie between the script and torch
    str(_HERE),
    str(_HERE.parent / "python" / "recorded_model.py"),
    str(_HERE.parents[1] / "runs" / "run" / "load_model.py"),
)
_LONGEST_CHAIN = 20  # of exceptions that were raised while another one was handled
_RUNNER = "AOTIModelContainerRunner"  # of a bare library; the name of its device follows
_RUNNERS = tuple(f"{_RUNNER}{device}" for device in ("Cpu", "Cuda"))
_OTHER_RUNNERS = tuple(f"{_RUNNER}{device}" for device in ("Xpu", "Mps"))
_WITH_BINARIES = f"{_RUNNER}Cuda"  # takes the folder of the kernels' binaries
_DEFAULTS = (1, "cuda")  # of what that takes before it
_MODEL = "model"  # the name of a package's only model
_INDUCTOR = "inductor"  # the backend of torch.compile
COMPILED = "compiled"  # the folder of a run directory with the packages of graphs
USE = "_aoti_debug_use"  # the attribute of a loader that holds its PackageUse
_CALLS = ("run", "boxed_run")  # the methods of a loader that call its model
_CHANGES = (  # and those that may launch something besides
    "load_constants",
    "update_constant_buffer",
    "update_constant_buffer_from_cpu",
    "update_constant_buffer_from_blob",
    "swap_constant_buffer",
    "free_inactive_constant_buffer",
)


class ReplacedPackages(Protocol):
    """The packages that are loaded in the place of others."""

    def remember_program(self, compiled: Any, program: Callable[[], Any], configs: Mapping[str, Any]) -> None:
        """Receives each package or library that was compiled, a path or a file in memory, or a list of files."""

    def use(self, path: str, model: str) -> PackageUse:
        """The package that a loader is to load in the place of another one, or of a library."""


def install() -> None:
    """Prepares the replacements in a process of a script.

    If the script itself dies or hangs, not a process that it has started, Python's call stack is written to the run
    directory.
    """
    settings = ScriptSettings()
    if not settings.is_child:
        crash_stacks.enable_python(settings.run / _PYTHON_STACKS, crash_stacks.REQUEST)
    atexit.register(_keep_error, settings.run)
    settings.cover_children()
    modules = OperatorModules()
    modules.watch()
    packages = functools.cache(lambda: _packages(settings, modules))
    graphs = GraphPackages(settings.run / COMPILED, lambda: packages().operators())
    Replacements(packages, graphs if settings.torch_compile else None).install()


@dataclass(frozen=True)
class GraphPackages:
    """The packages of graphs of `torch.compile`.

    Attributes:
        folder: where they are made.
        operators: what registers the operators of the process, in an environment in which other processes find it.
    """

    folder: Path
    operators: Callable[[], AbstractContextManager[UserCode]]


class Replacements:
    """Replaces the compiler and the loaders, and puts back what was there before.

    Args:
        packages: is called when a package is compiled or loaded.
        graphs: of `torch.compile`; None where that is not replaced.
    """

    def __init__(self, packages: Callable[[], ReplacedPackages], graphs: GraphPackages | None = None) -> None:
        self._originals: list[tuple[Any, str, Any, Any]] = []
        self._actions: dict[str, Callable[[Any], None]] = {
            "torch": lambda torch: self._replace(torch._C._aoti, loaders(torch._C._aoti, packages)),
            "torch._inductor": lambda inductor: self._replace(inductor, compilers(inductor, packages)),
        }
        if graphs is not None:
            self._actions["torch"] = functools.partial(self._replace_all, packages=packages, graphs=graphs)
        self._finder = AfterImport(self._actions)

    def install(self) -> None:
        """Replaces compilers and loaders: those of imported modules now, others as soon as their module is imported."""
        for name, action in self._actions.items():
            if name in sys.modules:
                action(sys.modules[name])
        sys.meta_path.insert(0, self._finder)

    def remove(self) -> None:
        """Puts back what was there before, unless somebody has replaced it since."""
        sys.meta_path.remove(self._finder)
        for owner, name, original, own in self._originals:
            if getattr(owner, name) is own:
                setattr(owner, name, original)
        self._originals = []

    def _replace_all(self, torch: Any, packages: Callable[[], ReplacedPackages], graphs: GraphPackages) -> None:
        self._replace(torch._C._aoti, loaders(torch._C._aoti, packages))
        self._replace(torch, {"compile": _compiling(torch, graphs)})

    def _replace(self, owner: Any, new: Mapping[str, Any]) -> None:
        for name, value in new.items():
            self._originals.append((owner, name, getattr(owner, name), value))
            setattr(owner, name, value)


def _of_others(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of what replaces torch's functions."""
    kept = []
    while traceback is not None:
        if not traceback.tb_frame.f_code.co_filename.startswith(_OWN_FILES):
            kept.append(traceback)
        traceback = traceback.tb_next
    following = None
    for one in reversed(kept):
        one.tb_next = following
        following = one
    return following


def _unseen(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that raises the exceptions of another one, with tracebacks as if torch had been called itself."""

    @functools.wraps(function)
    def unseen(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True  # pytest shows the caller
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            error.__traceback__ = _of_others(error.__traceback__)
            raise  # which adds no frame

    return unseen


def error_file(run: Path, process: int | str) -> Path:
    """The file of the error that ended a process of a script."""
    return run / f"error-{process}.json"


def kept_error(file: Path) -> ErrorData | None:
    """The error of a model or a device that ended a process of a script; the file is deleted."""
    from aoti_debug.base.machine.files import json_data
    from aoti_debug.base.machine.processes.messages import ErrorData

    try:
        error = json_data.parse(ErrorData, file.read_bytes())
    except (OSError, json_data.DamagedJsonError):  # there was none, or the process was killed while it wrote
        return None
    file.unlink()
    return error


def _keep_error(run: Path) -> None:
    """Writes down the error that ended the process, if a model or a device has raised it: a launch may be the cause."""
    error = getattr(sys, "last_value", None)  # which Python sets for an exception that nobody has caught
    for _ in range(_LONGEST_CHAIN):
        if error is None or isinstance(getattr(error, "error_code", None), int) or hasattr(error, _OF_MODEL):
            break
        error = error.__cause__ or error.__context__
    else:
        error = None
    if error is not None:
        from aoti_debug.base.machine.files import json_data
        from aoti_debug.base.machine.processes.messages import ErrorData

        file = error_file(run, os.getpid())
        file.write_text(json_data.to_text(ErrorData.from_exception(error)), encoding="utf-8")


def _packages(settings: ScriptSettings, modules: OperatorModules) -> RecordedPackages:
    from aoti_debug.app.execute.recorded_packages import RecordedPackages  # only a script that has a package waits

    return RecordedPackages(settings.run, modules, keeps_all=settings.keeps_all, shared=settings.shared)


def compilers(inductor: Any, packages: Callable[[], ReplacedPackages]) -> dict[str, Any]:
    """The replacements of the compilers in torch._inductor: they remember the programs of packages and libraries."""
    package, library = inductor.aoti_compile_and_package, inductor.aot_compile

    @functools.wraps(package)
    def aoti_compile_and_package(*args: Any, **kwargs: Any) -> Any:
        result = package(*args, **kwargs)
        program = args[0] if args else kwargs["exported_program"]
        packages().remember_program(result, lambda: program, kwargs.get("inductor_configs") or {})
        return result

    @functools.wraps(library)
    def aot_compile(gm: Any, args: Any, kwargs: Any = None, *, options: Any = None) -> Any:
        result = library(gm, args, kwargs, options=options)
        packages().remember_program(result, functools.partial(_program_of, gm, args, kwargs), options or {})
        return result

    return {"aoti_compile_and_package": _unseen(aoti_compile_and_package), "aot_compile": _unseen(aot_compile)}


def _program_of(graph: Any, args: Any, kwargs: Any) -> Any:
    from aoti_debug.app.execute.bare_libraries import exported  # only a script that has one waits

    return exported(graph, args, kwargs)


def _compiling(torch: Any, graphs: GraphPackages) -> Any:
    """A `torch.compile` that compiles with the backend "aoti_debug" what Inductor would have compiled."""
    original = torch.compile

    @functools.wraps(original)
    def compile(model: Any = None, **kwargs: Any) -> Any:
        if kwargs.get("backend", _INDUCTOR) == _INDUCTOR and not kwargs.get("disable"):
            from aoti_debug.app.torch_compile import backend

            configs = backend.inductor_configs(kwargs.pop("mode", None), kwargs.pop("options", None))
            options = backend.options_of_environment(graphs.folder, configs, graphs.operators)
            kwargs |= {"backend": backend.aoti_debug, "options": options}
        return original(model, **kwargs)

    return _unseen(compile)


def loaders(aoti: Any, packages: Callable[[], ReplacedPackages]) -> dict[str, Any]:
    """The replacements of the loaders in torch._C._aoti, by their names."""
    runners = {name: _recording_runner(getattr(aoti, name), packages) for name in _RUNNERS if hasattr(aoti, name)}
    others = {name: _announcing(getattr(aoti, name)) for name in _OTHER_RUNNERS if hasattr(aoti, name)}
    return {"AOTIModelPackageLoader": _recording(aoti.AOTIModelPackageLoader, packages), **runners, **others}


def _recording(loader: Any, packages: Callable[[], ReplacedPackages]) -> Any:
    """A loader that loads the instrumented package of each package."""

    def __init__(self: Any, model_package_path: str, model_name: str = _MODEL, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        def load(path: str) -> None:
            loader.__init__(self, path, model_name, *args, **kwargs)

        _load(self, packages().use(model_package_path, model_name), model_package_path, load)

    return _subclass(loader, __init__)


def _recording_runner(runner: Any, packages: Callable[[], ReplacedPackages]) -> Any:
    """A runner of bare libraries that loads the library of the instrumented package of each."""

    def __init__(self: Any, model_so_path: str, *args: Any) -> None:  # noqa: N807
        def load(path: str) -> None:
            library, words = path, args
            if path != model_so_path:
                from aoti_debug.app.execute.bare_libraries import unpacked

                library = str(unpacked(path))
                has_binaries = runner.__name__ == _WITH_BINARIES
                words = _with_binaries(args, os.path.dirname(library)) if has_binaries else args
            runner.__init__(self, library, *words)

        _load(self, packages().use(model_so_path, _MODEL), model_so_path, load)

    return _subclass(runner, __init__)


def _load(loader: Any, use: PackageUse, path: str, load: Callable[[str], None]) -> None:
    """Loads the package of a use, or else the script's own, as without aoti-debug.

    Args:
        path: that the script loads.
        load: is given the path of what is to be loaded.
    """
    reason = _failure(use, path, load)
    if reason:
        from aoti_debug.app.execute.kept_inputs import PackageUse  # a script that loads nothing does without

        use = PackageUse(path)
        load(path)  # where that fails as well, the script sees its error, and nothing is to be said
        name = os.path.basename(path)
        print(f"aoti-debug: {name} is not recorded: what was instrumented cannot be loaded: {reason}", file=sys.stderr)
    setattr(loader, USE, use)
    use.loaded(loader)


def _failure(use: PackageUse, path: str, load: Callable[[str], None]) -> str:
    """Loads the package of a use; the reason if it is an instrumented one that cannot be loaded, or else ""."""
    try:
        use.change(lambda: load(use.path))
    except Exception as error:
        if use.path == path:
            raise
        return str(error).partition("\n")[0] or type(error).__name__
    return ""


def _with_binaries(args: tuple[Any, ...], folder: str) -> tuple[Any, ...]:
    """The arguments of a runner with the folder of the kernels' binaries, which follows count and device."""
    given = len(_DEFAULTS)
    return (*args[:given], *_DEFAULTS[len(args) :], folder, *args[given + 1 :])


def _subclass(loader: Any, init: Callable[..., None]) -> Any:
    """A loader whose calls, and changes of weights, go through its PackageUse."""
    members: dict[str, Any] = {"__init__": _unseen(init), "__module__": loader.__module__}
    members |= {name: _called(getattr(loader, name)) for name in _CALLS if hasattr(loader, name)}
    members |= {name: _changed(name, getattr(loader, name)) for name in _CHANGES if hasattr(loader, name)}
    return type(loader.__name__, (loader,), members)


def _called(method: Any) -> Any:
    """A call of the model, which marks the exceptions of the model; they are unseen as those of `_unseen`."""

    @functools.wraps(method)
    def call(self: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True  # pytest shows the caller
        try:
            return getattr(self, USE).call(functools.partial(method, self), inputs, *args, **kwargs)
        except BaseException as error:
            if isinstance(error, Exception):
                vars(error)[_OF_MODEL] = True
            error.__traceback__ = _of_others(error.__traceback__)
            raise  # which adds no frame

    return call


def _changed(name: str, method: Any) -> Any:
    @functools.wraps(method)
    def change(self: Any, *args: Any, **kwargs: Any) -> Any:
        use = getattr(self, USE)
        result = use.change(functools.partial(method, self, *args, **kwargs))
        tensors = next((value for value in (*args, *kwargs.values()) if isinstance(value, Mapping)), {})
        inactive = kwargs.get("use_inactive", args[1] if len(args) > 1 else False)
        in_place = kwargs.get("user_managed", args[3] if len(args) > 3 else False)
        use.weights_changed(name, tensors, inactive=bool(inactive), in_place=bool(in_place))
        return result

    return _unseen(change)


def _announcing(runner: Any) -> Any:
    """A runner of a bare library, which says once of each library that it is not recorded."""
    known = set()

    def __init__(self: Any, model_so_path: str, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        if model_so_path not in known:
            known.add(model_so_path)
            print(
                f"aoti-debug: {model_so_path} is not recorded: its device is neither a CPU nor a CUDA GPU",
                file=sys.stderr,
            )
        runner.__init__(self, model_so_path, *args, **kwargs)

    return type(runner.__name__, (runner,), {"__init__": __init__, "__module__": runner.__module__})

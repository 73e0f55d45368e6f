"""Makes `triton.language` and what kernels call beside it run on a builder, for as long as a launch takes.

Differences between versions of Triton are handled here.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter as triton_interpreter
from triton.runtime.jit import JITFunction

from .interpreter_reduce import reduce_blocks, scan_blocks
from .interpreter_rewrite import rewrite, rewrite_namespace
from .kernel import NotInterpretableError

BUILTIN = tl.core.TRITON_BUILTIN
_ABSENT = object()
# Kernels that may overlap wait for the one before them, and let the one after them begin: there is none here.
_NEIGHBOURS = ("gdc_wait", "gdc_launch_dependents")


def python_function(function: Any) -> FunctionType:
    """The Python function under `triton.jit`, `triton.autotune` and the like."""
    while not isinstance(function, FunctionType):
        function = function.fn
    return function


class Language:
    """Kernels and their helpers as Python functions that compute on a builder."""

    def __init__(self, builder: Any) -> None:
        self.semantic = TritonSemantic(builder)
        self._functions: dict[FunctionType, Callable[..., Any]] = {}
        self._replaced: dict[int, Any] = {}  # by the id of what a kernel may have imported by name
        self._changes: list[tuple[Any, str, Any]] = []

    def function(self, function: Any) -> Callable[..., Any]:
        """A jit function as it runs here."""
        python = python_function(function)
        if python not in self._functions:
            self._functions[python] = self._rewritten(python)
        return self._functions[python]

    def call(self, function: Any, *arguments: Any, **named: Any) -> Any:
        """Calls a jit function."""
        return self.function(function)(*arguments, **named)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """A context in which the modules of Triton run on the builder."""
        try:
            self._install()
            yield
        finally:
            for owner, name, value in reversed(self._changes):
                if value is _ABSENT:
                    delattr(owner, name)
                else:
                    setattr(owner, name, value)
            self._changes.clear()

    def set_attr(self, owner: Any, name: str, value: Any) -> None:
        """Replaces an attribute until the context ends; Triton's own patches call this method, too."""
        self._changes.append((owner, name, vars(owner).get(name, _ABSENT)))
        setattr(owner, name, value)

    def _install(self) -> None:
        cuda = importlib.import_module("triton.language.extra.cuda.libdevice")
        extras = (importlib.import_module("triton.language.extra.cuda"), tl.extra.cuda)  # two modules of one file
        for owner, name in itertools.product(extras, _NEIGHBOURS):
            if hasattr(owner, name):
                self._replaced[id(getattr(owner, name))] = _nothing
                self.set_attr(owner, name, _nothing)
        for owner in (tl.core, tl, tl.math, *extras, cuda):
            self._bind(owner)
        for owner in (tl.core.tensor, getattr(tl.core, "tensor_descriptor_base", None)):
            if owner is not None:
                self._bind(owner)
        for module in (tl.core, tl):
            triton_interpreter._patch_lang_core(module, self)
        triton_interpreter._patch_lang_tensor(tl.core.tensor, self)
        self.set_attr(tl.core.tensor, "__index__", lambda tensor: int(tensor.handle.data.item()))
        if hasattr(tl, "condition"):
            self.set_attr(tl.condition, "__bool__", lambda condition: bool(condition.condition))
        for module in (tl.core, tl):
            self.set_attr(module, "reduce", self._reduce)
            self.set_attr(module, "associative_scan", self._scan)
        self._install_libdevice(cuda)
        if any(module.load not in self._replaced.values() for module in (tl, tl.core)):
            raise NotInterpretableError(f"triton.language.load is {tl.load}, not Triton's own")
        for name, member in list(vars(tl.core.tensor).items()):
            if isinstance(member, JITFunction):
                self.set_attr(tl.core.tensor, name, self._method(member))
        for kind in (JITFunction, triton_interpreter.InterpretedFunction):
            self.set_attr(kind, "__call__", lambda function, *given, **named: self.call(function, *given, **named))

    def _method(self, function: Any) -> Callable[..., Any]:
        """A jit function as a method of tensors."""

        def method(tensor: Any, *arguments: Any, **named: Any) -> Any:
            return self.call(function, tensor, *arguments, **named)

        return method

    def _bind(self, owner: Any) -> None:
        """Binds every built-in function of a module or class to the builder's semantics, as the compiler does."""
        for name, member in inspect.getmembers(owner, inspect.isfunction):
            builtin = _under_tritons_patch(member)
            if getattr(builtin, BUILTIN, False) is True:
                if id(builtin) not in self._replaced:
                    self._replaced[id(builtin)] = self._bound(builtin)
                self._replaced[id(member)] = self._replaced[id(builtin)]
                self.set_attr(owner, name, self._replaced[id(builtin)])

    def _bound(self, member: Any) -> Callable[..., Any]:
        def bound(*arguments: Any, **named: Any) -> Any:
            named["_semantic"] = self.semantic
            return member(*arguments, **named)

        return bound

    def _foreign(self, member: Any) -> Callable[..., Any]:
        """A built-in function that is not Triton's: it is given constants as the compiler gives them."""

        def constant(value: Any) -> Any:
            return tl.constexpr(value) if value is None or isinstance(value, bool | int | float | str) else value

        def bound(*arguments: Any, **named: Any) -> Any:
            given = {name: constant(value) for name, value in named.items() if name != "_semantic"}
            return member(*map(constant, arguments), **given, _semantic=self.semantic)

        return bound

    def _install_libdevice(self, cuda: ModuleType) -> None:
        """`triton.language.extra.libdevice` only declares; the compiler takes the target's functions of those names."""
        declared = importlib.import_module("triton.language.extra.libdevice")
        for name, stub in list(vars(declared).items()):
            if isinstance(stub, FunctionType) and stub.__module__ == declared.__name__:
                self._replaced[id(stub)] = getattr(cuda, name, None) or _missing(name)
                self.set_attr(declared, name, self._replaced[id(stub)])

    def _reduce(self, input: Any, axis: Any, combine_fn: Any, keep_dims: Any = None, **_: Any) -> Any:
        return reduce_blocks(self.call, input, axis, combine_fn, keep_dims=bool(keep_dims))

    def _scan(self, input: Any, axis: Any, combine_fn: Any, reverse: Any = None, **_: Any) -> Any:
        return scan_blocks(self.call, input, axis, combine_fn, reverse=bool(reverse))

    def _rewritten(self, python: FunctionType) -> Callable[..., Any]:
        namespace = self._namespace(python)
        exec(rewrite(python), namespace)
        function: Callable[..., Any] = namespace[python.__name__]
        return function

    def _namespace(self, python: FunctionType) -> dict[str, Any]:
        known = {**rewrite_namespace(self.semantic), **python.__globals__, **inspect.getclosurevars(python).nonlocals}
        for value in known.values():
            if isinstance(value, ModuleType | SimpleNamespace):
                self._bind_foreign(value)
        return {name: self._substitute(value) for name, value in known.items()}

    def _substitute(self, value: Any) -> Any:
        if id(value) in self._replaced:
            return self._replaced[id(value)]
        if isinstance(value, tl.constexpr):
            return value.value  # constants are plain values here, those of parameters too
        return self._foreign(value) if isinstance(value, FunctionType) and hasattr(value, BUILTIN) else value

    def _bind_foreign(self, owner: ModuleType | SimpleNamespace) -> None:
        for name, member in list(vars(owner).items()):
            if isinstance(member, FunctionType):
                substitute = self._substitute(member)
                if substitute is not member:
                    self.set_attr(owner, name, substitute)


def _under_tritons_patch(member: Any) -> Any:
    """The built-in function that Triton's own interpreter has replaced: it may leave its replacements behind."""
    if getattr(member, "__module__", "") != triton_interpreter.__name__:
        return member
    return (getattr(member, "__kwdefaults__", None) or {}).get("member", member)


def _nothing() -> None:
    pass


def _missing(name: str) -> Callable[..., Any]:
    def missing(*_: Any, **__: Any) -> Any:
        raise NotInterpretableError(f"the libdevice function {name} is not known")

    return missing

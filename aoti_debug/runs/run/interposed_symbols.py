"""Selects the symbols to interpose: the functions that a model's library calls to launch kernels and operators."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum

from aoti_debug.base.frozen import dataclass
from aoti_debug.instrument.wrapper.launches import forms_shim
from aoti_debug.instrument.wrapper.launches.c_functions import Prototype, form_of, number_type, operator_of, qualified
from aoti_debug.instrument.wrapper.launches.sites import is_launch_name
from aoti_debug.package.manifest import Arg, Certainty, CType, Form, Kind, Provenance, Role, Site

PROXY = "aoti_torch_proxy_executor_call_function"
OTHER_KERNEL = "a kernel of an unknown name"
_OWN_KERNEL = re.compile(r"(cpp|cuda)_fused\w*\Z")
_NAME = re.compile(r"\w+\Z", re.ASCII)
_NO_PROVENANCE = Provenance(Certainty.NONE)
_LENGTH_SUFFIXES = ("_len_", "num_indices")


class SymbolUse(int, Enum):
    """AotiDebugAction of interposer.h."""

    LAUNCH = 0
    NODE = 1
    KERNEL = 2
    CONFIG = 3
    NAME = 4


_DRIVER = {
    "cuLaunchKernel": SymbolUse.KERNEL,
    "cuLaunchCooperativeKernel": SymbolUse.KERNEL,
    "cuLaunchKernelEx": SymbolUse.CONFIG,
    "cuModuleGetFunction": SymbolUse.NAME,
}


@dataclass(frozen=True)
class Symbol:
    """An interposed symbol.

    Attributes:
        sites: the launch sites: one, or one for each operator or kernel that it can start; none if it starts nothing.
        params: the C types of its parameters; () if they are not known.
        returns_status: True if it returns a number that is 0 for success.
    """

    name: str
    action: SymbolUse
    sites: tuple[Site, ...]
    params: tuple[CType, ...] = ()
    returns_status: bool = True


def interposed_symbols(
    called: Iterable[str],
    shims: Mapping[str, Prototype],
    targets: Sequence[str],
    kernels: Sequence[str],
) -> tuple[Symbol, ...]:
    """The symbols to interpose, sorted by name; their sites are numbered from 0.

    Args:
        called: names that the library calls through its linkage table, its own or those of other libraries.
        shims: prototypes of the C shim functions.
        targets: names of the proxy executor's operators, by their index.
        kernels: names of the device kernels in the package, by their index.
    """
    symbols: list[Symbol] = []
    count = 0
    for name in sorted(set(called)):
        symbol = _symbol(name, shims, targets, kernels)
        if symbol is not None:
            sites = tuple(replace(site, id=count + i) for i, site in enumerate(symbol.sites))
            count += len(sites)
            symbols.append(replace(symbol, sites=sites))
    return tuple(symbols)


def _symbol(
    name: str,
    shims: Mapping[str, Prototype],
    targets: Sequence[str],
    kernels: Sequence[str],
) -> Symbol | None:
    if not _NAME.match(name):
        return None
    if kernel := _OWN_KERNEL.match(name):
        cpp = kernel.group(1) == "cpp"
        return Symbol(name, SymbolUse.LAUNCH, (_site(name, Kind.CPP if cpp else Kind.CUTLASS, name),), (), not cpp)
    if name in _DRIVER:
        launched = (*kernels, OTHER_KERNEL) if _DRIVER[name] is not SymbolUse.NAME else ()
        sites = tuple(replace(_site(k, Kind.TRITON, name), launches=(k,)) for k in launched)
        return Symbol(name, _DRIVER[name], sites)
    if name == PROXY:
        names = (*(qualified(target) for target in targets), "an operator of an unknown name")
        return Symbol(name, SymbolUse.NODE, tuple(replace(_site(op, Kind.PROXY, name), op=op) for op in names))
    if not is_launch_name(name, {}):
        return None
    prototype = shims.get(name)
    if prototype is None:
        return Symbol(name, SymbolUse.LAUNCH, (_site(name, Kind.CUSTOM_SHIM, name),))
    if not any("AtenTensorHandle" in param.ctype for param in prototype.params):
        return None
    kind = forms_shim.kind_of(name, prototype)
    site = replace(_site(name, kind, name), args=_args(kind, prototype), op=operator_of(name, {}))
    return Symbol(name, SymbolUse.LAUNCH, (site,), tuple(_ctype(param.ctype) for param in prototype.params))


def _site(kernel: str, kind: Kind, callee: str) -> Site:
    return Site(
        id=0, kernel=kernel, kind=kind, function="run_impl", callee=callee, line=0, args=(), provenance=_NO_PROVENANCE
    )


def _args(kind: Kind, prototype: Prototype) -> tuple[Arg, ...]:
    """The tensor, number and string parameters of a function; without lists, whose length no prototype contains."""
    written = forms_shim.written(kind, prototype)
    args: dict[str, Arg] = {}
    for i, param in enumerate(prototype.params):
        form = form_of(param)
        if form in (Form.LIST, Form.OPTIONAL_LIST, Form.INTS, Form.OPAQUE) or param.name.endswith(_LENGTH_SUFFIXES):
            continue
        tensor = form in (Form.TENSOR, Form.OUTPUT_SLOT, Form.OPTIONAL)
        role = (Role.OUT if form is Form.OUTPUT_SLOT else written.get(param.name, Role.IN)) if tensor else Role.NONE
        name = param.name or f"arg{i}"
        referent = number_type(param.ctype.removesuffix("*")) if form is Form.SCALAR_REF else CType.NONE
        args[name] = Arg(name, param.name, form, role, param.ctype, "", i, referent=referent)
    return tuple(args.values())


def _ctype(ctype: str) -> CType:
    """The form in which a parameter is passed: a handle, a number, or an address for any other pointer."""
    if ctype.removeprefix("const ") == "AtenTensorHandle":
        return CType.HANDLE
    number = number_type(ctype)
    return CType.ADDRESS if number is CType.NONE else number

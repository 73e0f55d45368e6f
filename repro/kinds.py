"""Which module writes the repro of which kind of launch.

A kind is a module with two functions: `refusal(launch, manifest)` says why a launch cannot be replayed ("" if it can),
and `script(launch, manifest, arguments)` gives what the kind contributes to repro.py.
"""

from __future__ import annotations

from typing import Protocol

from aoti_debug.errors import UsageError
from aoti_debug.manifest import Kind, Manifest
from aoti_debug.repro import aten, cpp, proxy, triton
from aoti_debug.repro.arguments import ReproArguments
from aoti_debug.repro.recorded import RecordedLaunch
from aoti_debug.repro.script import Script


class ReproKind(Protocol):
    def refusal(self, launch: RecordedLaunch, manifest: Manifest) -> str: ...

    def script(self, launch: RecordedLaunch, manifest: Manifest, arguments: ReproArguments) -> Script: ...


KINDS: dict[Kind, ReproKind] = {
    Kind.CPP: cpp,
    Kind.SHIM_OUT: aten,
    Kind.SHIM_ALLOC: aten,
    Kind.SHIM_INPLACE: aten,
    Kind.CLONE: aten,
    Kind.CUSTOM_SHIM: aten,
    Kind.PROXY: proxy,
    Kind.TRITON: triton,
}

_WITHOUT = {
    Kind.ITEM: "it only reads a number from a tensor; its argument is saved in the run",
    Kind.CUTLASS: "the generated CUDA source would have to be compiled with nvcc",
}


def kind_of(launch: RecordedLaunch, manifest: Manifest) -> ReproKind:
    """
    Raises:
        UsageError: launches of this kind cannot be replayed, or this one cannot.
    """
    kind = KINDS.get(launch.site.kind)
    why = _WITHOUT.get(launch.site.kind, "") if kind is None else kind.refusal(launch, manifest)
    if kind is None or why:
        raise UsageError(
            f"launch {launch.id}, {launch.site.kernel} ({launch.site.kind.value}), cannot be replayed alone: {why}",
            hint=f"aoti-debug show {launch.id} shows what was recorded of it",
        )
    return kind

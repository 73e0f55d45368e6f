"""The modules that write repros, by kind of launch.

A kind is a module with two functions: `refusal(launch, manifest)` returns the reason why a launch cannot be replayed
("" if it can), and `script(launch, manifest, arguments)` returns what the kind contributes to repro.py.
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
    """A module that writes the repros of some kinds of launches."""

    def refusal(self, launch: RecordedLaunch, manifest: Manifest) -> str:
        """Returns the reason why a launch cannot be replayed; "" if it can."""

    def script(self, launch: RecordedLaunch, manifest: Manifest, arguments: ReproArguments) -> Script:
        """Returns what the launch contributes to repro.py."""


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

_NOT_REPLAYED = {
    Kind.ITEM: "it only reads a number from a tensor; its argument is saved in the run",
    Kind.CUTLASS: "the generated CUDA source would have to be compiled with nvcc",
}


def kind_of(launch: RecordedLaunch, manifest: Manifest) -> ReproKind:
    """Returns the module that writes the repro of a launch.

    Raises:
        UsageError: launches of this kind cannot be replayed, or this one cannot.
    """
    kind = KINDS.get(launch.site.kind)
    reason = _NOT_REPLAYED.get(launch.site.kind, "") if kind is None else kind.refusal(launch, manifest)
    if kind is None or reason:
        raise UsageError(
            f"launch {launch.id}, {launch.site.kernel} ({launch.site.kind.value}), cannot be replayed alone: {reason}",
            hint=f"aoti-debug show {launch.id} shows what was recorded of it",
        )
    return kind

"""Which module writes the repro of which kind of launch.

A kind is a module with two functions: `refusal(launch, manifest)` says why a launch cannot be replayed ("" if it can),
and `script(launch, manifest, arguments)` gives what the kind contributes to repro.py.
"""

from __future__ import annotations

from typing import Protocol

from aoti_debug.errors import UsageError
from aoti_debug.manifest import Manifest
from aoti_debug.repro import aten, cpp, proxy, triton
from aoti_debug.repro.arguments import Arguments
from aoti_debug.repro.recorded import RecordedLaunch
from aoti_debug.repro.script import Script
from aoti_debug.wrapper.forms import traits_of


class ReproKind(Protocol):
    def refusal(self, launch: RecordedLaunch, manifest: Manifest) -> str: ...

    def script(self, launch: RecordedLaunch, manifest: Manifest, arguments: Arguments) -> Script: ...


# By the name that a kind of launch gives in its LaunchTraits.
REPLAYS: dict[str, ReproKind] = {"aten": aten, "cpp": cpp, "proxy": proxy, "triton": triton}


def kind_of(launch: RecordedLaunch, manifest: Manifest) -> ReproKind:
    """
    Raises:
        UsageError: launches of this kind cannot be replayed, or this one cannot.
    """
    traits = traits_of(launch.site.kind)
    kind = REPLAYS[traits.replay] if traits.replay else None
    why = traits.not_replayed if kind is None else kind.refusal(launch, manifest)
    if kind is None or why:
        raise UsageError(
            f"launch {launch.id}, {launch.site.kernel} ({launch.site.kind.value}), cannot be replayed alone: {why}",
            hint=f"aoti-debug show {launch.id} shows what was recorded of it",
        )
    return kind

"""The modules that write repros, by kind of launch.

A kind is a module with two functions: `refusal(launch, manifest)` returns the reason why a launch cannot be replayed
("" if it can), and `script(launch, manifest, arguments)` returns what the kind contributes to repro.py.
"""

from __future__ import annotations

from typing import Protocol

from aoti_debug.base.errors import UsageError
from aoti_debug.instrument.wrapper.launches.launch_traits import traits_of
from aoti_debug.package.manifest import Manifest
from aoti_debug.repro import aten, cpp, proxy, triton
from aoti_debug.repro.arguments import ReproArguments
from aoti_debug.repro.recorded_launch import RecordedLaunch
from aoti_debug.repro.script import Script


class ReproKind(Protocol):
    """A module that writes the repros of some kinds of launches."""

    def refusal(self, launch: RecordedLaunch, manifest: Manifest) -> str:
        """Returns the reason why a launch cannot be replayed; "" if it can."""

    def script(self, launch: RecordedLaunch, manifest: Manifest, arguments: ReproArguments) -> Script:
        """Returns what the launch contributes to repro.py."""


# By the name that a kind of launch gives in its LaunchTraits.
REPLAYS: dict[str, ReproKind] = {"aten": aten, "cpp": cpp, "proxy": proxy, "triton": triton}


def kind_of(launch: RecordedLaunch, manifest: Manifest) -> ReproKind:
    """Returns the module that writes the repro of a launch.

    Raises:
        UsageError: launches of this kind cannot be replayed, or this one cannot.
    """
    traits = traits_of(launch.site.kind)
    kind = REPLAYS[traits.replay] if traits.replay else None
    reason = traits.not_replayed if kind is None else kind.refusal(launch, manifest)
    if kind is None or reason:
        raise UsageError(
            f"launch {launch.id}, {launch.site.kernel} ({launch.site.kind.value}), cannot be replayed alone: {reason}",
            hint=f"aoti-debug show {launch.id} shows what was recorded of it",
        )
    return kind

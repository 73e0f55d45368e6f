"""The options of a replay."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.base.lazy.dataclass import dataclass

BASE = "aoti_debug_replays"


@dataclass(frozen=True)
class ReplayOptions:
    """A run to repeat, and what is done otherwise.

    Attributes:
        run: its directory or name; None for the latest.
        substitutions: "0.36=eager" (substitution.py).
        to: stop before this launch, "0.37"; "" to go on to the end.
        begin: do not launch what is before this launch, but give it the recorded results; "" to launch everything.
        out: the directory in which the directory of the replay is made.
        imports, libraries, trusted: as for `run`.
    """

    run: Path | None = None
    substitutions: tuple[str, ...] = ()
    to: str = ""
    begin: str = ""
    out: Path = Path(BASE)
    imports: tuple[str, ...] = ()
    libraries: tuple[Path, ...] = ()
    trusted: bool = False

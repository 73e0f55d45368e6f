"""The time of a call as a tree: the modules of the model, in them model lines, in these launches."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.package.recording.site_filter import common_module, containing
from aoti_debug.runs.show import text
from aoti_debug.views.profile.model_profile import ModelProfile, SiteProfile

GAPS, NO_LINE = "between launches", "no model line"


class FrameKind(str, Enum):
    """The meaning of a frame."""

    CALL = "call"
    MODULE = "module"
    LINE = "line"
    LAUNCH = "launch"
    GAPS = "gaps"


@dataclass(frozen=True)
class Frame:
    """A part of the time of a call.

    Attributes:
        name: the words in it: "layers.0", "model.py:23", "cpp_fused_relu_0".
        module: the path of the innermost module; "" for the model itself.
        seconds: of all frames in it, medians of the calls.
        children: in the order of their first execution.
        site: of a launch, else None.
    """

    kind: FrameKind
    name: str
    module: str
    seconds: float
    children: tuple[Frame, ...] = ()
    site: SiteProfile | None = None

    @property
    def sites(self) -> Iterator[SiteProfile]:
        """Yields the launches in it."""
        if self.site is not None:
            yield self.site
        for child in self.children:
            yield from child.sites


def frame_tree(profile: ModelProfile) -> Frame:
    """The call with everything in it; a kernel of several modules is in the innermost one that contains them all."""
    root = _Open(FrameKind.CALL, profile.model.name, "")
    for site in sorted(profile.sites, key=lambda one: one.launch.key):
        inner = root
        provenance = site.site.provenance
        common = common_module(provenance.modules)
        for path in containing(common) if common else ():
            inner = inner.child(FrameKind.MODULE, _module_name(path), path, path)
        place = provenance.source[0].place if provenance.source else ""
        line = inner.child(FrameKind.LINE, text.model_line(provenance) if place else NO_LINE, inner.module, place)
        line.closed.append(Frame(FrameKind.LAUNCH, site.site.kernel, inner.module, site.seconds, (), site))
    root.closed.append(Frame(FrameKind.GAPS, GAPS, "", profile.gap_seconds))
    return root.close()


def _module_name(path: str) -> str:
    """The last part of a path, with the one before it if it is a number: "layers.0"."""
    head, _, last = path.rpartition(".")
    return f"{head.rpartition('.')[2]}.{last}" if last.isdigit() and head else last


class _Open:
    """A frame whose parts are still collected."""

    def __init__(self, kind: FrameKind, name: str, module: str) -> None:
        self.kind, self.name, self.module = kind, name, module
        self.closed: list[Frame] = []
        self._inner: dict[tuple[FrameKind, str], _Open] = {}

    def child(self, kind: FrameKind, name: str, module: str, identity: str) -> _Open:
        """The part of a kind and identity; a new one if there is none."""
        return self._inner.setdefault((kind, identity), _Open(kind, name, module))

    def close(self) -> Frame:
        """The frame."""
        children = (*(inner.close() for inner in self._inner.values()), *self.closed)
        return Frame(self.kind, self.name, self.module, sum(child.seconds for child in children), children)

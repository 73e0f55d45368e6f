"""One line about what could make launches faster."""

from __future__ import annotations

from aoti_debug.views.profile.model_profile import SiteProfile
from aoti_debug.views.profile.roofline import Bound

_NEAR = 0.7  # of the roofline
_CACHED = 1.05


def hint(site: SiteProfile) -> str:
    """A way to make the launches of a site faster; "" if nothing is known."""
    placement = site.placement
    if placement is None:
        return ""
    if placement.bound is Bound.LAUNCH:
        return "little work for each launch: fuse it, or give it larger tensors"
    if placement.bound is Bound.MEMORY:
        if placement.share > _CACHED:
            return "its tensors stay in caches"
        if placement.share >= _NEAR:
            return "only fewer bytes help: fusion, or a smaller dtype"
        return "moves memory slowly: strided access, few threads, or more arithmetic than is counted"
    if placement.share >= _NEAR:
        return "only fewer operations help, or a lower precision"
    return "computes below this machine's rate: small or odd sizes; try max_autotune"

from __future__ import annotations

import pytest

from aoti_debug.manifest import Kind
from aoti_debug.repro import kinds
from aoti_debug.wrapper.launch_traits import traits_of


@pytest.mark.parametrize("kind", Kind)
def test_a_kind_is_replayed_or_says_why_not(kind: Kind) -> None:
    traits = traits_of(kind)
    assert bool(traits.replay) != bool(traits.not_replayed)
    assert not traits.replay or traits.replay in kinds.REPLAYS

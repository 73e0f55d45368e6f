from __future__ import annotations

import pytest

from aoti_debug.package.launch_traits import traits_of
from aoti_debug.package.manifest import Kind
from aoti_debug.repro import generate_texts


@pytest.mark.parametrize("kind", Kind)
def test_a_kind_is_replayed_or_says_why_not(kind: Kind) -> None:
    traits = traits_of(kind)
    assert bool(traits.replay) != bool(traits.not_replayed)
    assert not traits.replay or traits.replay in generate_texts.REPLAYS


@pytest.mark.parametrize(
    ("trait", "kinds_"),
    [
        ("compiled_for_layouts", {Kind.CPP, Kind.TRITON, Kind.CUTLASS}),
        ("keeps_old_elements", {Kind.CPP, Kind.TRITON}),
        ("user_operator", {Kind.CUSTOM_SHIM, Kind.PROXY}),
        ("allocates_outputs", {Kind.PROXY}),
        ("waits_for_device", {Kind.ITEM}),
    ],
)
def test_kinds_that_have_a_trait(trait: str, kinds_: set[Kind]) -> None:
    assert {kind for kind in Kind if getattr(traits_of(kind), trait) is True} == kinds_
    assert {kind for kind in Kind if getattr(traits_of(kind), trait) is False} == set(Kind) - kinds_

"""Every case of the corpus."""

from __future__ import annotations

from tests.corpus import addresses, clean_layers, clean_tensors, contracts, eager, numbers, operators, wrong_values
from tests.corpus.case import Case, together

FAULTS: tuple[Case, ...] = (
    *(*addresses.CASES, *numbers.CASES, *contracts.CASES, *operators.CASES, *wrong_values.CASES),
    *eager.CASES,
)
CLEAN: tuple[Case, ...] = (*clean_layers.CASES, *clean_tensors.CASES)
_OF_EACH_KIND = (
    "attention_boolean_mask",
    "guarded_layers",
    "pictures",
    "infinite_bounds",
    "cond",
    "mutation_and_views",
)
TOGETHER = together("clean_together", [case for case in CLEAN if case.name in _OF_EACH_KIND])


def faults(device: str) -> tuple[Case, ...]:
    """The cases with a fault on a device; those for "cuda" need triton to be read."""
    if device != "cuda":
        return tuple(case for case in FAULTS if device in case.devices)
    from tests.corpus import cuda

    return tuple(case for case in (*FAULTS, *cuda.CASES) if device in case.devices)


def clean(device: str) -> tuple[Case, ...]:
    return tuple(case for case in CLEAN if device in case.devices)

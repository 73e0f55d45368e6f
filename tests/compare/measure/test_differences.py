"""Outputs that are measured a part at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from aoti_debug.compare.measure import differences
from aoti_debug.compare.measure.evaluated import Evaluated, Subject
from aoti_debug.compare.measure.measure import measure
from aoti_debug.compare.protocol.measurement import Measurement
from tests.compare.anonymous_memory import growth

SUBJECT = Subject("buf0", "mul", "aten.mul.Tensor")


def exact(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def output(values: torch.Tensor, dtype: torch.dtype = torch.float32) -> Evaluated:
    return Evaluated(
        actual=(values * (1 + 1e-7)).to(dtype), eager=values.to(dtype), kernel=values.float(), double=values
    )


def wrong(found: Evaluated) -> Evaluated:
    actual = found.actual.clone()
    actual[..., 3] += 1
    return replace(found, actual=actual, perturbed=(found.double * (1 + 1e-7), found.double * (1 - 1e-7)))


def nonfinite(found: Evaluated) -> Evaluated:
    actual, eager = found.actual.clone(), found.eager.clone()
    actual[1, 2] = eager[1, 2] = found.double[1, 2] = float("nan")
    actual[4, 0] = float("inf")
    return replace(found, actual=actual, eager=eager)


def truncated(values: torch.Tensor) -> Evaluated:
    bits = values.float().view(torch.int32) & -65536
    return Evaluated(
        actual=bits.view(torch.float32).bfloat16(), eager=values.bfloat16(), kernel=values.float(), double=values
    )


CASES = {
    "rounded": output(exact(7, 33)),
    "of three dimensions": output(exact(3, 5, 11)),
    "in another order": output(exact(33, 7).T),
    "wrong": wrong(output(exact(7, 33))),
    "not finite": nonfinite(output(exact(7, 33))),
    "leaning to one side": truncated(exact(40, 33)),
    "equal to eager": replace(output(exact(7, 33)), actual=output(exact(7, 33)).eager),
}


@pytest.mark.parametrize("name", CASES)
def test_parts_are_measured_like_the_whole(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    whole = measure(SUBJECT, CASES[name])
    monkeypatch.setattr(differences, "_PART", 20)
    parts = measure(SUBJECT, CASES[name])
    assert bool(whole.wrong) == (name in ("wrong", "not finite", "leaning to one side"))
    for member in Measurement.__dataclass_fields__:
        first, second = getattr(whole, member), getattr(parts, member)
        assert second == (pytest.approx(first, rel=1e-12) if isinstance(first, float) else first), member


def test_a_large_output_takes_little_memory() -> None:
    found = output(exact(4 << 20))
    with growth() as grown:
        measure(SUBJECT, found)
    assert grown.bytes < 14 * found.actual.nbytes  # errors in ULP in float64 are twice its size; a part is 1/4 of it

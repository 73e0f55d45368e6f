from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from aoti_debug.runs.rundir import run_directory
from aoti_debug.runs.rundir.summaries import Summaries
from aoti_debug.views.summaries.measures import (
    MIN_CALLS,
    PRECISIONS,
    document,
    drift,
    overflow_headroom,
    underflow_headroom,
)
from tests import factories
from tests.schema import DOCS, problems
from tests.views.summaries.sampled import empty, of_replays, sample, series


def test_numbers_that_json_has_not(tmp_path: Path) -> None:
    run = run_directory.open_run(factories.run_directory(tmp_path, factories.make_manifest()))
    floats, integers = series([sample(0), empty(1)]), series([sample()], dtype="int64")
    found = document(run, Summaries((floats, integers), 1, 1, 0), (floats, integers))
    assert problems(found, json.loads((DOCS / "summaries.schema.json").read_text())) == []
    json.dumps(found, allow_nan=False)
    first, second = found["tensors"]
    assert first["samples"][1]["mean"] == "nan"
    assert first["drift"] == ["not finite from call 1 on"]
    assert second["headroom"] == {}


def test_replays(tmp_path: Path) -> None:
    run = run_directory.open_run(factories.run_directory(tmp_path, factories.make_manifest()))
    calls, replays = series([sample(0)]), of_replays([sample(1, replay=2), sample(1, replay=3, n_nan=1)])
    found = document(run, Summaries((calls, replays), 1, 1, 0, 6), (calls, replays))
    assert problems(found, json.loads((DOCS / "summaries.schema.json").read_text())) == []
    assert (found["calls"], found["replays"], found["missed"]) == (1, [{"captured_call": 1, "replays": 2}], 6)
    first, second = found["tensors"]
    assert (first["captured_call"], first["samples"][0]["replay"]) == (None, None)
    assert (second["captured_call"], [s["replay"] for s in second["samples"]]) == (1, [2, 3])
    assert second["drift"] == ["not finite from replay 3 on"]


CALLS = 40


def noisy(seed: int, **trends: float) -> tuple[str, ...]:
    """The drift of a tensor whose quantities grow by this much over the calls, with noise of a tenth."""
    draw = random.Random(seed)
    base = {"mean": 0.0, "std": 1.0, "max": 3.0, "n_zero": 20.0}
    numbers: list[dict[str, Any]] = [
        {name: base[name] + trends.get(name, 0.0) * n / CALLS + 0.1 * draw.gauss(0, 1) for name in base}
        for n in range(CALLS)
    ]
    return drift(series(sample(n, **values) for n, values in enumerate(numbers)))


@pytest.mark.parametrize("seed", range(8))
def test_noise_is_no_drift(seed: int) -> None:
    assert noisy(seed) == ()


@pytest.mark.parametrize("seed", range(4))
def test_changes_beyond_the_noise(seed: int) -> None:
    assert noisy(seed, mean=2.0)[0].startswith("mean moved by +1.")
    assert [text.split()[0] for text in noisy(seed, std=4.0)] == ["std"]
    assert [text.split()[0] for text in noisy(seed, max=20.0)] == ["absmax"]
    assert noisy(seed, n_zero=40.0)[0].startswith("zeros +")


def test_a_change_that_is_small_for_the_tensor_is_none() -> None:
    assert drift(series(sample(n, mean=0.2 * n / CALLS) for n in range(CALLS))) == ()


def test_few_calls_tell_nothing() -> None:
    assert drift(series(sample(n, mean=float(n)) for n in range(MIN_CALLS - 1))) == ()
    assert drift(series(sample(n, mean=float(n)) for n in range(MIN_CALLS))) != ()


def test_elements_that_stop_being_finite() -> None:
    assert drift(series([sample(0), sample(10), sample(20, n_nan=1)])) == ("not finite from call 20 on",)
    assert drift(series([sample(0, n_nan=1), sample(10, n_nan=1)])) == ()
    assert drift(series(empty(n) for n in range(CALLS))) == ()


FP16, BF16, E4M3, E5M2 = PRECISIONS


def test_bits_to_the_largest_number() -> None:
    assert overflow_headroom(sample(min=-65504.0), FP16) == 0
    assert overflow_headroom(sample(max=4 * 65504.0), FP16) == pytest.approx(-2)
    assert overflow_headroom(sample(max=224.0), E4M3) == 1
    assert overflow_headroom(sample(min=0.0, max=0.0), FP16) == math.inf


def test_bits_to_the_smallest_normal_number() -> None:
    assert underflow_headroom(sample(mean=0.0, std=2.0**-14), FP16) == 0
    assert underflow_headroom(sample(mean=2.0**-15, std=0.0), E5M2) == -1
    assert underflow_headroom(sample(), BF16) == 126
    assert math.isnan(underflow_headroom(sample(mean=0.0, std=0.0), FP16))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_without_finite_elements_there_is_none(precision: object) -> None:
    assert math.isnan(overflow_headroom(empty(), precision))  # type: ignore[arg-type]
    assert math.isnan(underflow_headroom(empty(), precision))  # type: ignore[arg-type]


def test_the_limits_are_torchs() -> None:
    import torch

    for precision in PRECISIONS:
        info = torch.finfo(getattr(torch, precision.dtype))
        assert (precision.largest, precision.smallest) == (info.max, info.smallest_normal)

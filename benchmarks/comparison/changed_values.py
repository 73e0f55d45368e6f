"""The values that launches wrote in one run and not in another."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from aoti_debug.base.abi import Phase
from aoti_debug.compare.compare_run import reference_of
from aoti_debug.compare.measure.ulp import relative_difference, ulp
from aoti_debug.compare.protocol.measurement import LARGEST
from aoti_debug.compare.regions.regions import find_regions
from aoti_debug.runs.rundir import load_tensors
from aoti_debug.runs.rundir.run_directory import RunDir

_LEAST = 64 * 2.0**-23  # of float32: rounding differs where a wrong lowering leads to another fusion


def first_changed(run: RunDir, original: RunDir, share: float) -> str | None:
    """The first launch that wrote another value of the graph than the launch of the right package did.

    Args:
        share: of the relative difference, root mean square, from which on a change counts: of _LEAST, or of one ULP in
            half precision. An edit may change no more than the order of a sum.
    """
    right = {value: path for (_, value), path in _values(original).items()}
    for (launch, value), path in _values(run).items():
        if value in right and _differs(path, right[value], share):
            return launch
    return None


def _differs(path: Path, right: Path, share: float) -> bool:
    actual, expected = load_tensors.load_file(path), load_tensors.load_file(right)
    if torch.equal(actual.nan_to_num(), expected.nan_to_num()):
        return False
    if actual.shape != expected.shape or not actual.is_floating_point():
        return True
    least = torch.finfo(actual.dtype).eps if actual.element_size() == 2 else _LEAST
    return relative_difference(actual, expected.double()) > share * least


def steady(run: RunDir, original: RunDir) -> frozenset[tuple[str, str]]:
    """The values that are the same in two runs of the same package: no random numbers, no order of threads."""
    right, again = _values(original), _values(run)
    return frozenset(key for key, path in again.items() if key in right and not _change(path, right[key]))


def first_other_bit(run: RunDir, original: RunDir, same: frozenset[tuple[str, str]]) -> tuple[str, float] | None:
    """The first launch that wrote another value than the right package's, and the largest change in ULP."""
    right = _values(original)
    for key, path in _values(run).items():
        if key in same and (change := _change(path, right[key])):
            return key[0], change
    return None


def _change(path: Path, right: Path) -> float:
    """The largest change of an element, in ULP, or of integers by how much; signs of zero do not count."""
    actual, expected = load_tensors.load_file(path), load_tensors.load_file(right)
    if actual.shape != expected.shape or not actual.numel():
        return float(actual.shape != expected.shape)
    if actual.is_complex():
        actual, expected = torch.view_as_real(actual), torch.view_as_real(expected)
    same = (actual == expected) | (actual.isnan() & expected.isnan())
    if bool(same.all()):
        return 0.0
    wide = actual.double()[~same], expected.double()[~same]
    change = (wide[0] - wide[1]).abs()
    if actual.is_floating_point():
        change = change / ulp(wide[1], actual.dtype)
    return float(change.nan_to_num(LARGEST, LARGEST).amax()) or 1.0


def _values(run: RunDir) -> Mapping[tuple[str, str], Path]:
    """The file of each value that a launch wrote in the first call, by launch and value."""
    reference, _ = reference_of(run)
    found: dict[tuple[str, str], Path] = {}
    for writes in find_regions(run, reference).values.writes.values():
        for write in writes:
            saved = write.argument.files.get(Phase.AFTER)
            if write.value is not None and saved is not None and saved.path and not write.launch.key.call:
                place = f"{write.launch.site.subgraph}:{write.launch.loops}:{write.value}"
                found[write.launch.id, place] = run.tensor_path(saved)
    return found

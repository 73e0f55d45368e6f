"""The differences of two runs as JSON data: docs/diff.schema.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from aoti_debug.base.machine.files import json_data
from aoti_debug.compare.diff.difference import (
    Diff,
    DiffExplanation,
    LaunchDifference,
    ModuleDifference,
    TensorDifference,
)
from aoti_debug.compare.diff.repeated_calls import RepeatedCalls
from aoti_debug.package import recording_settings
from aoti_debug.package.argument_values import unravel
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir

FORMAT = 1


def document(diff: Diff, excesses: Sequence[str] | None = None) -> dict[str, Any]:
    """The object that `aoti-debug diff --json` prints.

    Args:
        excesses: what exceeds the budget; None without a budget.
    """
    first = diff.first
    return {
        "format": FORMAT,
        "a": _run(diff.a),
        "b": _run(diff.b),
        "same": diff.is_same and diff.is_compared,
        "paired_by": diff.by.value,
        "launches": {
            "paired": diff.paired,
            "same": diff.same,
            "different": len(diff.launches),
            "not_recorded": diff.not_recorded,
        },
        "rounding": diff.is_rounding,
        "unexplained": [_named(item.launch) for item in diff.unexplained],
        "unexplained_reason": diff.unexplained_reason,
        "wrong_alone": [{"side": x.side, **_named(x.launch), "reason": x.reason} for x in diff.wrong_alone],
        "first": None if first is None else first.launch.id,
        "settings": [{"name": item.name, "a": item.a, "b": item.b} for item in diff.settings],
        "inputs": [{"name": item.name, **_tensor(item.tensor)} for item in diff.inputs],
        "differences": [_launch(item) for item in diff.launches],
        "only_a": [_named(launch) for launch in diff.only_a],
        "only_b": [_named(launch) for launch in diff.only_b],
        "unpaired_outputs": list(diff.unpaired_outputs),
        "unfinished": list(diff.unfinished),
        "notes": list(diff.notes),
        "excesses": None if excesses is None else list(excesses),
    }


def modules_document(modules: Sequence[ModuleDifference]) -> list[dict[str, Any]]:
    """The member `modules` of that object."""
    return [
        {
            "name": module.part.name,
            "launches": [launch.id for launch in module.part.launches],
            "also": list(module.part.also),
            "different": [item.launch.id for item in module.items],
            "errors": dict(zip("ab", map(_number, module.errors), strict=True)),
            "largest": None
            if module.worst is None
            else {"launch": module.worst[0].launch.id, "name": module.worst[1].name, **_tensor(module.worst[1])},
        }
        for module in modules
    ]


def repeat_document(repeated: RepeatedCalls) -> dict[str, Any]:
    """The member of `aoti-debug run --repeat --json` about the calls."""
    return {
        "calls": repeated.calls,
        "launches": [
            {**_named(item.launch), "calls": list(item.calls), "causes": list(item.causes)}
            for item in repeated.launches
        ],
        "changed_state": repeated.changed_state,
        "following": repeated.following,
        "not_recorded": repeated.not_recorded,
    }


def _run(run: RunDir) -> dict[str, Any]:
    return {
        "run": str(run.path),
        "level": recording_settings.written_level(run.level),
        "device": run.manifest.device,
        "torch": run.info.torch_version,
        "launches": len(run.launches),
    }


def _named(launch: Launch) -> dict[str, str]:
    return {"launch": launch.id, "kernel": launch.kernel}


def _launch(item: LaunchDifference) -> dict[str, Any]:
    lines = item.launch.site.provenance.source
    return {
        **_named(item.launch),
        "outcome": item.outcome.value,
        "counterparts": [_named(launch) for launch in item.pair.counterparts],
        "model": lines[0].place if lines else None,
        "tensors": [{"name": tensor.name, **_tensor(tensor)} for tensor in item.tensors],
        "notes": list(item.notes),
        "explanation": _explanation(item.explanation),
    }


def _explanation(found: DiffExplanation | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "cause": found.cause.value,
        "explained": found.is_explained,
        "wrong": list(found.wrong),
        "reason": found.reason,
    }


def _tensor(difference: TensorDifference) -> dict[str, Any]:
    found, layout = difference.elements, difference.pair.b.argument.layout
    errors = _errors(difference)
    if found is None or layout is None:
        return {"reason": difference.reason, **errors}
    return {
        "elements": found.elements,
        "different": found.different,
        "first": list(unravel(found.first, layout.shape)),
        "worst": list(unravel(found.worst, layout.shape)),
        "values": None if found.values is None else [_number(value) for value in found.values],
        "ulp": _number(found.max_ulp),
        "atol": _number(found.max_absolute),
        "rtol": _number(found.max_relative),
        **errors,
    }


def _errors(difference: TensorDifference) -> dict[str, Any]:
    if difference.errors == (None, None):
        return {}
    a, b = (None if error is None else asdict(error) for error in difference.errors)
    return {"errors": {"a": a, "b": b, "nearer": difference.nearer or None}}


def _number(value: Any) -> Any:
    """A number as JSON has it; complex numbers as text."""
    return str(value) if isinstance(value, complex) else json_data.number(value)

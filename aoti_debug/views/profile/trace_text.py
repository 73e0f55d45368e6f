"""Slices of time as the text of a trace that Perfetto and chrome://tracing open."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from aoti_debug.views.profile.slices import TimeSlice

_NS_PER_UNIT = 1000  # times of the format are in microseconds
_PROCESS = 1


def trace_text(slices: Iterable[TimeSlice], title: str) -> str:
    """A trace in Chrome's JSON format: a slice that lies within another one of its thread is drawn below it.

    Args:
        title: the name of the process.
    """
    events = [_name("process_name", title, 0)]
    ordered = sorted(slices, key=lambda one: (one.begin_ns, -one.duration_ns))
    for on_device, thread in sorted({(one.on_device, one.thread) for one in ordered}):
        events.append(_name("thread_name", f"{'GPU stream' if on_device else 'thread'} {thread}", thread))
    events += [_event(one) for one in ordered]
    lines = ",\n".join(json.dumps(event, ensure_ascii=False) for event in events)
    return f'{{"displayTimeUnit": "ns", "traceEvents": [\n{lines}\n]}}\n'


def _name(what: str, name: str, thread: int) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": _PROCESS, "tid": thread, "args": {"name": name}}


def _event(one: TimeSlice) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": one.name,
        "cat": one.category,
        "ts": one.begin_ns / _NS_PER_UNIT,
        "dur": one.duration_ns / _NS_PER_UNIT,
        "pid": _PROCESS,
        "tid": one.thread,
        "args": dict(one.facts),
    }

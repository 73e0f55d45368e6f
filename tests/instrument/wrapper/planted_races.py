"""Wrappers of several streams without a race, and each of them without one of its records or waits.

The wrappers are those that torch 2.14.1 generates (cuda_models.py). Two of them have a race, and are mended: one where
Inductor reuses a buffer that a side stream still reads, one where a kernel of a side stream is given the call's stream.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from aoti_debug.instrument.wrapper.analysis import Analysis, analyse
from aoti_debug.package.stream_order import StreamOrder
from tests.instrument.wrapper import texts

VERSION = "2.14.1"
_STATEMENT = re.compile(r"^ *AOTI_RUNTIME_CUDA_CHECK\(cuda(?:EventRecord|StreamWaitEvent)\(.*\n", re.MULTILINE)
_EVENT = re.compile(r"_aoti_event_cache\.get\((\d+)")
_SIDE = re.compile(r"_aoti_aux_stream_cache\.get\((\d+)")

Pair = tuple[str, str, str]  # two kernels in the order of their launches, and the memory

_RELU, _MM = "triton_poi_fused_relu_0", "aoti_torch_cuda_mm_out"
_TANH, _CAT = "triton_poi_fused_tanh_1", "triton_poi_fused_tanh_1"
_ADD, _ADD_SIN = "triton_poi_fused_add_2", "triton_poi_fused_add_sin_2"


@dataclass(frozen=True)
class Planted:
    """A wrapper that lacks a statement.

    Attributes:
        lacks: "record of event 3 on stream 1".
        pairs: the races that it has by that.
    """

    wrapper: str
    lacks: str
    text: str
    pairs: frozenset[Pair]


# The races of each wrapper without a record or wait, worked out by hand from its launches, by event and stream.
_EXPECTED: dict[str, dict[str, tuple[Pair, ...]]] = {
    "fork_join": {
        "record of event 2 on stream 0": ((_RELU, _MM, "buf0"),),
        "wait for event 2 on stream 1": ((_RELU, _MM, "buf0"),),
        "record of event 3 on stream 1": ((_MM, _ADD, "buf5"),),
        "wait for event 3 on stream 0": ((_MM, _ADD, "buf5"),),
    },
    "pipeline": {
        "record of event 3 on stream 0": ((_RELU, _MM, "buf0"),),
        "wait for event 3 on stream 1": ((_RELU, _MM, "buf0"),),
        "record of event 4 on stream 1": ((_MM, _MM, "buf5"), (_MM, _ADD, "buf0")),
        "wait for event 4 on stream 2": ((_MM, _MM, "buf5"), (_MM, _ADD, "buf0")),
        "record of event 5 on stream 2": ((_MM, _ADD, "buf12"), (_MM, _ADD, "buf0")),
        "wait for event 5 on stream 0": ((_MM, _ADD, "buf12"), (_MM, _ADD, "buf0")),
    },
    "side_kernels": {
        "record of event 2 on stream 0": ((_RELU, _MM, "buf0"),),
        "wait for event 2 on stream 1": ((_RELU, _MM, "buf0"),),
        "record of event 3 on stream 1": ((_MM, _ADD_SIN, "buf7"),),
        "wait for event 3 on stream 0": ((_MM, _ADD_SIN, "buf7"),),
    },
    "there_and_back": {
        "record of event 2 on stream 0": ((_RELU, _MM, "buf0"),),
        "wait for event 2 on stream 1": ((_RELU, _MM, "buf0"),),
        "record of event 3 on stream 1": ((_MM, _TANH, "buf5"), (_MM, _TANH, "buf0")),
        "wait for event 3 on stream 0": ((_MM, _TANH, "buf5"), (_MM, _TANH, "buf0")),
        "record of event 4 on stream 0": ((_TANH, _MM, "buf0"), (_TANH, _MM, "buf5")),
        "wait for event 4 on stream 1": ((_TANH, _MM, "buf0"), (_TANH, _MM, "buf5")),
        "record of event 5 on stream 1": ((_MM, _ADD, "buf5"),),
        "wait for event 5 on stream 0": ((_MM, _ADD, "buf5"),),
    },
    "two_branches": {
        "record of event 3 on stream 0": ((_RELU, _MM, "buf0"),),
        "wait for event 3 on stream 1": ((_RELU, _MM, "buf0"),),
        "record of event 4 on stream 1": ((_MM, _CAT, "buf18"),),
        "wait for event 3 on stream 2": ((_RELU, _MM, "buf0"),),
        "record of event 5 on stream 2": ((_MM, _CAT, "buf18"),),
        "wait for event 4 on stream 0": ((_MM, _CAT, "buf18"),),
        "wait for event 5 on stream 0": ((_MM, _CAT, "buf18"),),
    },
}
NAMES = tuple(_EXPECTED)


def as_generated(name: str) -> str:
    """The wrapper as torch generates it."""
    return texts.text(f"torch_{VERSION}_streams_{name}")


def clean(name: str) -> str:
    """The wrapper without a race."""
    text = as_generated(name)
    if name == "fork_join":
        moved = "    auto buf9 = std::move(buf0);  // reuse\n"
        assert moved in text
        text = text.replace(moved, "    AtenTensorHandle buf9_handle;\n    RAIIAtenTensorHandle buf9(buf9_handle);\n")
    if name == "side_kernels":
        launch = "(buf5, buf6, 4096L, this->device_idx_, stream, kernels"
        assert launch in text
        text = text.replace(launch, "(buf5, buf6, 4096L, this->device_idx_, stream1, kernels")
    return text


def planted() -> Iterator[Planted]:
    """Every wrapper without one statement, in the order of the text."""
    for name in NAMES:
        text = clean(name)
        statements = list(_STATEMENT.finditer(text))
        assert len(statements) == len(_EXPECTED[name])
        for statement in statements:
            lacks = _named(statement[0])
            without = text[: statement.start()] + "\n" + text[statement.end() :]  # lines keep their numbers
            yield Planted(name, lacks, without, frozenset(_EXPECTED[name][lacks]))


def _named(statement: str) -> str:
    event, side = _EVENT.search(statement), _SIDE.search(statement)
    assert event is not None
    what = "record of" if "EventRecord" in statement else "wait for"
    return f"{what} event {event[1]} on stream {side[1] if side else 0}"


def analysed(text: str) -> Analysis:
    """The analysis of a wrapper of several streams."""
    headers = [(texts.WRAPPERS / "shim.h.txt").read_text()]
    return analyse(text, headers=headers, operators=texts.OPERATORS, schemas=texts.SCHEMAS)


def order_of(text: str) -> StreamOrder:
    """The order of its launches."""
    order = analysed(text).stream_order
    assert order is not None
    return order


def races_of(text: str) -> frozenset[Pair]:
    """The races that are found in a wrapper, those with a doubt left out."""
    analysis = analysed(text)
    assert analysis.stream_order is not None
    return frozenset(
        (analysis.sites[race.first.site].kernel, analysis.sites[race.second.site].kernel, race.memory)
        for race in analysis.stream_order.races
        if not race.doubt
    )

"""The Python side of runtime_shims/formats/flight_recorder_format.h; tests/base/test_abi.py compares them."""

from __future__ import annotations

from enum import Enum

from aoti_debug.base.abi import Struct

MAGIC = b"AOTIDBF1"
VERSION = 1


class FlightStatus(int, Enum):
    """FlightStatus of flight_recorder_format.h: whether an input was kept, or the reason why not."""

    KEPT = 0
    TOO_LARGE = 1
    UNREADABLE = 2
    NOT_COPIED = 3
    BUSY = 4
    FULL = 5


HEADER = Struct(
    "FlightHeader",
    (
        ("magic", "8s"),
        ("version", "I"),
        ("pid", "I"),
        ("keep", "I"),
        ("n_launches", "I"),
        ("n_tensors", "I"),
        ("reserved", "I"),
        ("data", "Q"),
        ("data_bytes", "Q"),
        ("host_bytes", "Q"),
        ("reserved2", "Q"),
    ),
)
LAUNCH = Struct(
    "FlightLaunch",
    (
        ("generation", "Q"),
        ("arrived", "I"),
        ("thread", "I"),
        ("call", "I"),
        ("launch", "I"),
        ("kind", "B"),
        ("reserved", "7B"),
        ("stream", "Q"),
        ("model", "Q"),
        ("host_begin", "Q"),
        ("host_end", "Q"),
        ("device_begin", "Q"),
        ("device_end", "Q"),
        ("first", "I"),
        ("n_tensors", "I"),
        ("n_left_out", "I"),
        ("reserved2", "I"),
    ),
)
TENSOR = Struct(
    "FlightTensor",
    (
        ("generation", "I"),
        ("slot", "H"),
        ("status", "B"),
        ("reserved", "B"),
        ("address", "Q"),
        ("begin", "Q"),
        ("bytes", "Q"),
    ),
)

STRUCTS = (HEADER, LAUNCH, TENSOR)

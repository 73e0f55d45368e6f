"""Writes flight.bin as the runtime does."""

from __future__ import annotations

from dataclasses import dataclass, field

from aoti_debug.base.abi import CallKind
from aoti_debug.runs.rundir import flight_recorder
from aoti_debug.runs.rundir.flight_recorder import FlightStatus

DATA = 8192  # where the bytes begin
LAUNCHES, TENSORS, BYTES = 8, 32, 4096


@dataclass(frozen=True)
class Given:
    """A tensor of a launch."""

    slot: int
    data: bytes
    begin: int  # from DATA
    status: FlightStatus = FlightStatus.KEPT
    place: int = 0
    hash: tuple[int, int] = (0, 0)


@dataclass
class FlightFile:
    keep: int = 2
    generation: int = 0
    weights: str = ""
    _launches: dict[int, bytes] = field(default_factory=dict)
    _tensors: dict[int, bytes] = field(default_factory=dict)
    _given: int = 0
    _data: bytearray = field(default_factory=lambda: bytearray(BYTES))

    def launch(
        self,
        launch: int,
        *given: Given,
        call: int = 0,
        arrived: bool = True,
        device: bool = False,
        stream: int = 0,
        left_out: int = 0,
    ) -> None:
        """A launch whose tensors lie behind one another. Bytes of one that has not arrived are not written."""
        self.generation += 1
        ends = [(t.begin, t.begin + len(t.data)) for t in given if t.status is FlightStatus.KEPT]
        room = (min(b for b, _ in ends), max(e for _, e in ends)) if ends else (0, 0)
        rooms = (0, 0, *room) if device else (*room, 0, 0)
        first = self._given % TENSORS
        for tensor in given:
            packed = flight_recorder.TENSOR.codec.pack(
                self.generation,
                tensor.slot,
                tensor.status,
                0x1000,
                tensor.begin,
                len(tensor.data),
                tensor.place,
                *tensor.hash,
            )
            self._tensors[self._given % TENSORS] = packed
            self._given += 1
            if arrived and tensor.status is FlightStatus.KEPT:
                self._data[tensor.begin : tensor.begin + len(tensor.data)] = tensor.data
        self._launches[self.generation % LAUNCHES] = flight_recorder.LAUNCH.codec.pack(
            self.generation,
            self.generation if arrived else 0,
            0,
            call,
            launch,
            CallKind.MODEL,
            stream,
            0xABC,
            *rooms,
            first,
            len(given),
            left_out,
        )

    def bytes(self, magic: bytes = flight_recorder.MAGIC, version: int = flight_recorder.VERSION) -> bytes:
        header = flight_recorder.HEADER.codec.pack(
            magic, version, 4711, self.keep, LAUNCHES, TENSORS, len(self.weights), DATA, BYTES, BYTES
        )
        launches = b"".join(self._launches.get(i, bytes(flight_recorder.LAUNCH.size)) for i in range(LAUNCHES))
        tensors = b"".join(self._tensors.get(i, bytes(flight_recorder.TENSOR.size)) for i in range(TENSORS))
        return (header + launches + tensors + self.weights.encode()).ljust(DATA, b"\0") + bytes(self._data)

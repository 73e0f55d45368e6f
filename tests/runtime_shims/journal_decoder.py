"""Decodes a journal on its own, from the text of journal_format.h alone: the product's reader is not involved."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TYPES = {
    1: "call_begin",
    2: "call_end",
    3: "layout",
    4: "launch_begin",
    5: "grid",
    6: "launch_end",
    7: "tensor_file",
    8: "tensor_stats",
    9: "fault",
    10: "note",
    11: "run_end",
    12: "guard",
    16: "watch",
    19: "print",
    17: "watch_hit",
    18: "watch_count",
    20: "replay_stats",
    21: "clock",
}
STRUCTS = {
    "call_begin": ("<IBBHQQ", "call kind level stream_slot model stream"),
    "call_end": ("<IBBHII", "call kind failed _ launches _"),
    "clock": ("<Q", "unix_ns"),
    "layout": ("<IihhhHqq", "id dtype device_type device_index layout ndim storage_offset storage_bytes"),
    "launch_begin": (
        "<IBBHIIII4I",
        "call kind n_loops stream_slot launch site sequence n_values loop0 loop1 loop2 loop3",
    ),
    "grid": ("<IIIB3xIIIIII", "call launch kernel kind x y z num_warps shared_bytes n_arguments"),
    "launch_end": ("<IIiBBH", "call launch status kind _ n_values"),
    "tensor_file": ("<IIHBBB3xQQQII", "call launch slot kind phase status bytes hash0 hash1 path_bytes reason_bytes"),
    "tensor_stats": (
        "<IIHBBB3xQQQQQqqQQddQII",
        "call launch slot kind phase integer numel n_nan n_pos_inf n_neg_inf n_zero min_bits max_bits "
        "min_index max_index mean std hash value_bytes layout",
    ),
    "replay_stats": (
        "<IIIIHBBB3xQQQQQqqQQddQII",
        "replay begun call launch slot kind phase integer numel n_nan n_pos_inf n_neg_inf n_zero min_bits max_bits "
        "min_index max_index mean std hash value_bytes layout",
    ),
    "fault": ("<IIBBHiII", "call launch kind in_launch domain code text_bytes _"),
    "note": ("<II", "code text_bytes"),
    "guard": ("<IIIB3xQQqqQ16s", "call launch allocation kind data bytes first last damaged found"),
    "print": ("<IIIB3x", "call launch text_bytes kind"),
    "watch": ("<II", "watch text_bytes"),
    "watch_hit": (
        "<IIIIIHBBIIqdQ",
        "call launch site watch thread slot kind phase statistic replay element value number",
    ),
    "watch_count": ("<IIQQ", "watch unread hits evaluated"),
    "run_end": ("<", ""),
}


@dataclass
class Record:
    type: str
    flags: int
    time_ns: int
    thread: int
    block: int  # its sequence
    fields: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.fields[name]
        except KeyError:
            raise AttributeError(name) from None


@dataclass
class Journal:
    header: dict[str, int]
    blocks: int  # with a magic
    records: list[Record]  # by time

    def of(self, type_: str) -> list[Record]:
        assert type_ in STRUCTS
        return [record for record in self.records if record.type == type_]


def decode(path: Path) -> Journal:
    data = path.read_bytes()
    magic, version, block_bytes, pid, level, start, reused, every, lost, open_calls = struct.unpack_from(
        "<8sIIIIQQQQQ", data
    )
    assert magic == b"AOTIDBJ1"
    assert version == 1
    header = {"pid": pid, "level": level, "start": start, "reused": reused, "every": every}
    header |= {"lost": lost, "open_calls": open_calls}
    blocks = []
    for offset in range(64, len(data), block_bytes):
        block_magic, thread, sequence = struct.unpack_from("<IIQ", data, offset)
        if block_magic == 0x4B4C4231:
            blocks.append((sequence, thread, data[offset : offset + block_bytes]))
    blocks.sort()
    assert len({sequence for sequence, _, _ in blocks}) == len(blocks)
    records = [record for sequence, thread, block in blocks for record in _records(block, thread, sequence)]
    records.sort(key=lambda record: record.time_ns)
    return Journal(header, len(blocks), records)


def _records(block: bytes, thread: int, sequence: int) -> list[Record]:
    records: list[Record] = []
    layouts: dict[int, Any] = {}
    at = 16
    while at + 16 <= len(block):
        size, type_, flags, time_ns = struct.unpack_from("<IHHQ", block, at)
        if size == 0:
            break
        assert size % 8 == 0
        assert 16 <= size <= len(block) - at
        name = TYPES[type_]
        form, names = STRUCTS[name]
        fields = dict(zip(names.split(), struct.unpack_from(form, block, at + 16), strict=True))
        _decode_tail(name, fields, block, at + 16 + struct.calcsize(form), layouts)
        if name == "layout":
            layouts[fields["id"]] = fields
        else:
            records.append(Record(name, flags, time_ns, thread, sequence, fields))
        at += size
    return records


def _decode_tail(name: str, fields: dict[str, Any], block: bytes, at: int, layouts: dict[int, Any]) -> None:
    if name == "layout":
        dims = struct.unpack_from(f"<{2 * fields['ndim']}q", block, at)
        fields["shape"], fields["strides"] = dims[: fields["ndim"]], dims[fields["ndim"] :]
    elif name in ("launch_begin", "launch_end"):
        values = struct.iter_unpack("<BBHIQ", block[at : at + 16 * fields["n_values"]])
        fields["values"] = {
            slot: (tag, type_, bits, layouts[layout] if tag == 2 else None) for tag, type_, slot, layout, bits in values
        }
    elif name == "grid":
        fields["arguments"] = struct.unpack_from(f"<{fields['n_arguments']}Q", block, at)
    elif name == "tensor_file":
        middle = at + fields["path_bytes"]
        fields["path"] = block[at:middle].decode()
        fields["reason"] = block[middle : middle + fields["reason_bytes"]].decode()
    elif name in ("tensor_stats", "replay_stats"):
        fields["layout"] = layouts[fields["layout"]]
        fields["tail"] = block[at : at + fields["value_bytes"]]
    elif name in ("fault", "note", "watch", "print"):
        fields["text"] = block[at : at + fields["text_bytes"]].decode()

"""The columnar file of summaries: summaries.parquet where pyarrow is installed, otherwise summaries.npz.

Each row is one tensor of one launch. Numbers are columns; texts are columns of Parquet, and in the other file indices,
`series`, into the tables `kernel`, `argument`, `module` and `dtype`. Files of earlier versions have no rows of replays:
`replay` and `missed` are left out there.
"""

from __future__ import annotations

import importlib.util
import io
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aoti_debug.base.errors import RunDirError
from aoti_debug.base.machine.files import atomic_write, untrusted_files

NPZ, PARQUET = "summaries.npz", "summaries.parquet"
INTEGERS = ("call", "replay", "launch", "site", "repeated", "numel", "nan", "pos_inf", "neg_inf", "zeros")
FLOATS = ("min", "max", "mean", "std")
TEXTS = ("kernel", "argument", "module", "dtype")
_SETTINGS = ("asked", "every", "lost", "missed")
_REPLAY, _MISSED = "replay", "missed"  # the names that earlier versions do not write
_LARGEST = 1 << 30  # bytes, also unpacked
_DAMAGE = (ValueError, TypeError, KeyError, OverflowError, OSError, EOFError, zipfile.BadZipFile, zlib.error)


@dataclass
class Columns:
    """The rows by columns.

    Attributes:
        numbers: a list for each of INTEGERS and FLOATS.
        series: for each row, the index of its texts.
        texts: kernel, argument, modules and dtype.
    """

    asked: int
    every: int
    lost: int
    missed: int
    numbers: list[list[float]] = field(default_factory=lambda: [[] for _ in (*INTEGERS, *FLOATS)])
    series: list[int] = field(default_factory=list)
    texts: dict[tuple[str, ...], int] = field(default_factory=dict)

    def add(self, numbers: tuple[float, ...], texts: tuple[str, ...]) -> None:
        """Adds a row."""
        for column, number in zip(self.numbers, numbers, strict=True):
            column.append(number)
        self.series.append(self.texts.setdefault(texts, len(self.texts)))

    def rows(self) -> Iterator[tuple[tuple[float, ...], tuple[str, ...]]]:
        """Yields the rows: their numbers, and their texts."""
        tables = list(self.texts)
        for numbers, series in zip(zip(*self.numbers, strict=True), self.series, strict=True):
            yield numbers, tables[series]


def write(folder: Path, columns: Columns) -> Path:
    """Writes the file, whole or not at all; returns its path.

    Raises:
        RunDirError: it cannot be written.
    """
    has_arrow = importlib.util.find_spec("pyarrow") is not None
    path = folder / (PARQUET if has_arrow else NPZ)
    try:
        with atomic_write.replace_file(path) as temporary:
            (_write_parquet if has_arrow else _write_npz)(temporary, columns)
    except OSError as error:
        raise RunDirError(f"cannot write {path}: {error.strerror}", hint="free some disk space") from error
    return path


def read(folder: Path) -> Columns | None:
    """Reads the file of a folder; None if it has none.

    Raises:
        RunDirError: it is damaged, or is Parquet and pyarrow is missing.
    """
    for name, read_file in ((NPZ, _read_npz), (PARQUET, _read_parquet)):
        try:
            data = untrusted_files.read_bytes(folder, name, _LARGEST)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise RunDirError(f"cannot read {folder / name}: {error.strerror}") from error
        try:
            return _checked(read_file(data))
        except ImportError as error:
            raise RunDirError(
                f"{folder / name} needs pyarrow: {error}", hint="install pyarrow, as where the run was made"
            ) from error
        except _DAMAGE as error:
            raise RunDirError(f"{folder / name} is damaged: {error}", hint="run the package again") from error
    return None


def _checked(columns: Columns) -> Columns:
    """The columns, whose values have the types that they should have.

    Raises:
        ValueError, TypeError, OverflowError: they have not.
    """
    if any(len(column) != len(columns.series) for column in columns.numbers):
        raise ValueError("its columns have different lengths")
    if not all(0 <= index < len(columns.texts) for index in columns.series):
        raise ValueError("a row has no texts")
    if not all(isinstance(text, str) for texts in columns.texts for text in texts):
        raise TypeError("a text is none")
    kinds = [int] * len(INTEGERS) + [float] * len(FLOATS)
    columns.numbers = [[kind(value) for value in column] for kind, column in zip(kinds, columns.numbers, strict=True)]
    return columns


def _write_npz(path: Path, columns: Columns) -> None:
    import numpy as np

    arrays: dict[str, Any] = {name: np.array(getattr(columns, name), "<u8") for name in _SETTINGS}
    for name, values in zip((*INTEGERS, *FLOATS), columns.numbers, strict=True):
        arrays[name] = np.array(values, "<u8" if name in INTEGERS else "<f8")
    arrays["series"] = np.array(columns.series, "<u4")
    for index, name in enumerate(TEXTS):
        arrays[name] = np.array([texts[index] for texts in columns.texts], "<U")
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)


def _read_npz(data: bytes) -> Columns:
    import numpy as np

    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if sum(member.file_size for member in archive.infolist()) > _LARGEST:
            raise ValueError(f"it unpacks to more than {_LARGEST} bytes")
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        asked, every, lost, missed = (
            int(arrays[name]) if name != _MISSED or name in arrays else 0 for name in _SETTINGS
        )
        tables = zip(*(arrays[name].tolist() for name in TEXTS), strict=True)
        columns = Columns(asked, every, lost, missed, texts={texts: index for index, texts in enumerate(tables)})
        columns.series = arrays["series"].tolist()
        no_replays: list[float] = [0] * len(columns.series)
        columns.numbers = [
            arrays[name].tolist() if name != _REPLAY or name in arrays else no_replays for name in (*INTEGERS, *FLOATS)
        ]
    return columns


def _write_parquet(path: Path, columns: Columns) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays: dict[str, Any] = {}
    for name, values in zip((*INTEGERS, *FLOATS), columns.numbers, strict=True):
        arrays[name] = pa.array(values, pa.uint64() if name in INTEGERS else pa.float64())
    tables = list(columns.texts)
    for index, name in enumerate(TEXTS):
        texts = pa.array([texts[index] for texts in tables], pa.string())
        arrays[name] = pa.DictionaryArray.from_arrays(pa.array(columns.series, pa.int32()), texts)
    settings = {f"aoti_debug.{name}": str(getattr(columns, name)) for name in _SETTINGS}
    pq.write_table(pa.table(arrays).replace_schema_metadata(settings), path, compression="zstd")


def _read_parquet(data: bytes) -> Columns:
    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(data))
    metadata = table.schema.metadata or {}
    metadata = {f"aoti_debug.{_MISSED}".encode(): b"0", **metadata}
    asked, every, lost, missed = (int(metadata[f"aoti_debug.{name}".encode()]) for name in _SETTINGS)
    columns = Columns(asked, every, lost, missed)
    no_replays = [0] * table.num_rows
    names = (*INTEGERS, *FLOATS)
    numbers = zip(
        *(table[name].to_pylist() if name != _REPLAY or name in table.column_names else no_replays for name in names),
        strict=True,
    )
    texts = zip(*(table[name].to_pylist() for name in TEXTS), strict=True)
    for row, words in zip(numbers, texts, strict=True):
        columns.add(row, words)
    return columns

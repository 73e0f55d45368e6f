"""A part of a launch: some of its programs, or some rows of its arguments. A part of rows is written as a repro."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path

import torch
from safetensors.torch import save_file

from .job import Job
from .kernel import Settings
from .memory import LaunchArgument, LaunchMemory, Result
from .unpack import MARK

SHOWN = 4  # ranges of programs


@dataclass(frozen=True)
class Rows:
    """Rows `begin` to `end` of every argument that has `size` of them (dimension 0).

    Attributes:
        scalars: numbers of the call that equal `size` become the number of rows.
    """

    size: int
    begin: int
    end: int
    scalars: bool = False

    def __str__(self) -> str:
        return f"rows {self.begin} to {self.end - 1} of {self.size}"


@dataclass(frozen=True)
class LaunchPart:
    """A part of a launch.

    Attributes:
        programs: ranges of program numbers, x fastest; () for all.
        grid: a smaller grid; () for the recorded one.
    """

    programs: tuple[tuple[int, int], ...] = ()
    grid: tuple[int, ...] = ()
    rows: tuple[Rows, ...] = ()

    def to_json(self) -> str:
        """The part as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> LaunchPart:
        """Reads what `to_json` wrote."""
        data = json.loads(text)
        programs = tuple((begin, end) for begin, end in data["programs"])
        return cls(programs, tuple(data["grid"]), tuple(Rows(**rows) for rows in data["rows"]))

    @classmethod
    def of_programs(cls, numbers: Sequence[int]) -> LaunchPart:
        """The part that has these programs of the grid."""
        runs = [[n for _, n in run] for _, run in groupby(enumerate(sorted(numbers)), lambda item: item[1] - item[0])]
        return cls(programs=tuple((run[0], run[-1] + 1) for run in runs))

    def with_rows(self, rows: Rows) -> LaunchPart:
        """The part with these rows, in place of others of the same size."""
        return replace(self, rows=(*(r for r in self.rows if r.size != rows.size), rows))

    def chosen(self, grid: tuple[int, ...]) -> tuple[tuple[int, int, int], ...]:
        """Its programs as (x, y, z)."""
        wide, high, _ = (*grid, 1, 1, 1)[:3]
        numbers = (n for begin, end in self.programs for n in range(begin, end))
        return tuple((n % wide, n // wide % high, n // (wide * high)) for n in numbers)

    def settings(self, settings: Settings, grid: tuple[int, ...]) -> Settings:
        """The settings that run this part only."""
        x, y, z = (*self.grid, 1, 1, 1)[:3]
        scalars = {rows.size: rows.end - rows.begin for rows in self.rows if rows.scalars}
        return replace(
            settings, programs=self.chosen(grid), grid=(x, y, z) if self.grid else settings.grid, scalars=scalars
        )

    def narrowed(self, memory: LaunchMemory) -> LaunchMemory:
        """The arguments with their rows of it."""
        return replace(memory, views={name: self.cut(view) for name, view in memory.views.items()})

    def cut(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor's rows that belong to the part."""
        rows = self.rows_of(tuple(tensor.shape))
        return tensor if rows is None else tensor.narrow(0, rows.begin, rows.end - rows.begin)

    def rows_of(self, shape: tuple[int, ...]) -> Rows | None:
        """The rows that are kept of a tensor of this shape; None for all."""
        return next((rows for rows in self.rows if shape and shape[0] == rows.size), None)

    def cut_argument(self, argument: LaunchArgument) -> LaunchArgument:
        """An argument with only the rows that belong to the part."""
        rows = self.rows_of(argument.shape)
        if rows is None:
            return argument
        shape = (rows.end - rows.begin, *argument.shape[1:])
        return replace(argument, shape=shape, offset=argument.offset + rows.begin * argument.stride[0])

    def cut_result(self, result: Result) -> Result:
        """A result with only the rows that belong to the part."""
        rows = self.rows_of(result.shape)
        return result if rows is None else replace(result, shape=(rows.end - rows.begin, *result.shape[1:]))

    def __str__(self) -> str:
        texts = [str(rows) for rows in self.rows]
        if self.grid:
            texts.append(f"grid {tuple(self.grid)}")
        if self.programs:
            ranges = [f"{begin} to {end - 1}" if end - begin > 1 else f"{begin}" for begin, end in self.programs]
            more = f" and {len(ranges) - SHOWN} more ranges" if len(ranges) > SHOWN else ""
            several = "s" if len(self.programs) > 1 or self.programs[0][1] - self.programs[0][0] > 1 else ""
            texts.append(f"program{several} {', '.join(ranges[:SHOWN])}{more}")
        return ", ".join(texts) or "the whole launch"


def write_reduced(job: Job, part: LaunchPart, script: Path) -> Path:
    """Writes the folder `reduced/` with a script that has the smaller arguments."""
    folder = job.folder / "reduced"
    if folder.exists():
        shutil.rmtree(folder)
    (folder / "tensors").mkdir(parents=True)
    shutil.copytree(Path(__file__).parent, folder / "replay", ignore=shutil.ignore_patterns("__pycache__"))
    for argument in job.arguments:
        _save(part.cut(job.before(argument)), folder / "tensors" / f"before_{argument.name}.safetensors")
    for output in job.outputs:
        if (job.folder / "tensors" / f"after_{output.name}.safetensors").exists():
            _save(part.cut(job.after(output)), folder / "tensors" / f"after_{output.name}.safetensors")
    text = script.read_text(encoding="utf-8").rpartition(MARK)[0] or script.read_text(encoding="utf-8")
    text = text.replace("unpack(Path(__file__).resolve())", "Path(__file__).resolve().parent")
    text = _with_table(text, "ARGUMENTS", [_argument(part.cut_argument(a)) for a in job.arguments])
    text = _with_table(text, "RESULTS", [_result(part.cut_result(r)) for r in job.results])
    for rows in part.rows:
        if rows.scalars:
            text = re.sub(rf"(ctypes\.c_u?int(?:32|64)?\(){rows.size}\)", rf"\g<1>{rows.end - rows.begin})", text)
    (folder / "repro.py").write_text(text, encoding="utf-8")
    return folder


def _with_table(text: str, name: str, rows: Sequence[str]) -> str:
    """The text with another list of that name."""
    lines = [f"{name} = [", *(f"    {row}," for row in rows), "]"]
    return re.sub(rf"(?ms)^{name} = \[.*?^\]$", lambda _: "\n".join(lines), text, count=1)


def _argument(a: LaunchArgument) -> str:
    return (
        f'LaunchArgument("{a.name}", "{a.role}", {a.dtype}, shape={a.shape!r}, stride={a.stride!r}, '
        f'storage="{a.storage}", offset={a.offset})'
    )


def _result(r: Result) -> str:
    return f'Result("{r.name}", {r.dtype}, shape={r.shape!r}, stride={r.stride!r})'


def _save(tensor: torch.Tensor, path: Path) -> None:
    stored = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    save_file({"x": stored.contiguous().clone()}, path)

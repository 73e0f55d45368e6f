"""Writes a repro of a part of a launch: rows of its arguments."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file

from .job import Job
from .memory import LaunchArgument, Result
from .part import LaunchPart
from .unpack import MARK


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

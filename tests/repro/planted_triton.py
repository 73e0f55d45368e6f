"""Repros of a Triton kernel with something planted in its source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from aoti_debug.repro.arguments import arguments_of
from aoti_debug.repro.generate_texts import generate
from aoti_debug.repro.repro_files import write_folder
from tests.repro.repro_launches import manifest
from tests.repro.triton_launches import KERNEL, row_maxima, with_kernel


def row_maxima_repro(folder: Path, edit: Callable[[str], str] = str, device: str = "cpu") -> Path:
    """The repro of triton_launches.row_maxima with an edited source; its tensors go to `device`."""
    saved = folder / "run"
    saved.mkdir()
    launch = replace(row_maxima(saved), binary=None, no_binary="the source was edited")
    source = edit(KERNEL.source)
    assert edit is str or source != KERNEL.source
    arguments = arguments_of(launch)
    contents = generate(launch, with_kernel(manifest(), replace(KERNEL, source=source)), arguments)
    script = str(contents["repro.py"]).replace('device="cpu"', f'device="{device}"')
    write_folder(folder / "repro", {**contents, "repro.py": script}, arguments)
    return folder / "repro"

"""One model that is built, run and compared, for compare_model.py."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from aoti_debug.base.machine.steps import Steps
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.compare.compare_run import Scope, compare_run
from aoti_debug.compare.comparison import Comparison
from aoti_debug.instrument.builder import build as builder
from aoti_debug.instrument.builder import build as frontend_requests
from aoti_debug.instrument.frontend.lowered_model import LoweredModel
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import recording_everything
from aoti_debug.runs.run.supervise import Observer
from aoti_debug.runs.rundir.run_directory import RunDir
from benchmarks.comparison.compare_results import Clean
from benchmarks.models import planted_models
from benchmarks.models.planted_models import Example

_CALLS = 2


class Bench:
    """One model."""

    def __init__(self, name: str, example: Example, device: str, folder: Path) -> None:
        self.name, self.example, self.device, self.folder = name, example, device, folder
        self.program, self.package = folder / "model.pt2", folder / "package.pt2"
        torch.export.save(planted_models.program(example, device), self.program)
        self.lowered: LoweredModel | None = None
        self.original: RunDir | None = None

    def clean(self) -> Clean:
        """Compares the unchanged model."""
        with self.edited(lambda lowered: lowered):
            self.build(self.package)
        began = time.monotonic()
        self.original = run = self.run(self.package)
        middle = time.monotonic()
        comparison = self.compared(run)
        end = time.monotonic()
        coverage = comparison.coverage
        reasons = {reason for row in comparison.rows for reason in (row.reason, *row.notes) if reason}
        wrong = [row.launch.id for row in comparison.rows if row.verdict.value == "wrong"]
        outputs = [f"output {error.index}: {error.relative:.2g}" for error in comparison.wrong_outputs]
        return Clean(
            self.name,
            coverage.launches,
            coverage.compared,
            coverage.compared_bytes / max(coverage.bytes, 1),
            (coverage.compared_bytes - coverage.same_code_bytes) / max(coverage.bytes, 1),
            (
                *wrong,
                *(f"{state.name}: {state.advance.value}" for state in comparison.wrong_states),
                *(outputs if comparison.is_program_altered else ()),
                *(("eager refuses",) if comparison.refusal is not None else ()),
            ),
            tuple(error.index for error in comparison.differing_outputs),
            tuple(sorted({*reasons, *outputs, *comparison.not_compared, *filter(None, [comparison.states_failure])})),
            middle - began,
            self._eager_seconds(),
            end - middle,
            comparison.peak_bytes,
        )

    def _eager_seconds(self) -> float:
        module = planted_models.module_of(self.example, self.device)
        inputs = planted_models.inputs_of(self.example, self.device)
        with torch.no_grad():
            began = time.monotonic()
            module(*inputs)
            if self.device == "cuda":
                torch.cuda.synchronize()
            return time.monotonic() - began

    def compared(self, run: RunDir) -> Comparison:
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        scope = Scope(user_code=UserCode(self.example.imports), exported=self.program, outputs=self.folder / "outputs")
        return compare_run(run, scope, folder, Steps(None))

    def run(self, package: Path) -> RunDir:
        options = recording_everything(package, self.folder / "runs")
        options = replace(options, level=1, phase="both", user_code=UserCode(self.example.imports), calls=_CALLS)
        return runner.run(replace(options, outputs=self.folder / "outputs"), Observer()).run

    def build(self, output: Path, imports: tuple[str, ...] | None = None) -> None:
        builder.build(
            self.program,
            output=output,
            imports=self.example.imports if imports is None else imports,
            inductor_configs=dict(self.example.configs),
        )

    @contextmanager
    def edited(self, edit: Callable[[LoweredModel], LoweredModel]) -> Iterator[None]:
        """Builds inside the `with` compile the sources that `edit` makes; they are lowered once."""
        lower = frontend_requests.lower_or_unpack

        def edited(checked: Any, torch: Any, work: Path) -> LoweredModel:
            if self.lowered is None:
                folder = self.folder / "lowered"
                folder.mkdir()
                self.lowered = lower(checked, torch, folder)
            return edit(self.lowered)

        frontend_requests.lower_or_unpack = edited
        try:
            yield
        finally:
            frontend_requests.lower_or_unpack = lower


@contextmanager
def environment(name: str, value: str) -> Iterator[None]:
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


def named(comparison: Comparison) -> str:
    first = comparison.first_wrong
    return "nothing" if first is None else f"{first.launch.id} {first.launch.kernel}"

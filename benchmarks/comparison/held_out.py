"""Compares packages with random edits of kernels, for compare_model.py."""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from aoti_debug.instrument.frontend.lowered_model import LoweredModel
from benchmarks.comparison import machine_code
from benchmarks.comparison.changed_values import first_other_bit, steady
from benchmarks.comparison.compare_bench import Bench, named
from benchmarks.comparison.compare_results import HeldOut
from benchmarks.comparison.held_out_faults import Fault, faults, kernel_span


class HeldOutBench:
    """Random edits of the kernels of one model."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def results(self, count: int, chance: random.Random) -> Iterator[HeldOut]:
        """Compares packages with a random edit of a random launch's kernel; those that change no bit are left out."""
        if not count or self._bench.original is None:
            return
        same = steady(self._bench.run(self._bench.package), self._bench.original)
        launches = [
            launch
            for launch in self._bench.original.launches
            if not launch.key.call and self._source_of(launch.kernel) is not None
        ]
        possible: dict[str, Iterator[Fault]] = {}
        tries = 8 * count
        while count and tries and launches:
            tries -= 1
            kernel = chance.choice(launches).kernel
            source, language = self._source_of(kernel) or ("", "")
            fault = next(possible.setdefault(kernel, faults(source, language, chance)), None)
            result = None if fault is None else self._with_fault(kernel, source, language, fault, same)
            if result is not None:
                count -= 1
                yield result

    def _source_of(self, name: str) -> tuple[str, str] | None:
        """The source of a generated kernel and its language."""
        assert self._bench.original is not None
        if self._bench.device == "cpu" and self._bench.lowered is not None:
            span = kernel_span(self._bench.lowered.sources.kernels, name)
            return None if span is None else (self._bench.lowered.sources.kernels[slice(*span)], "cpp")
        kernels = (kernel for kernel in self._bench.original.manifest.kernels if kernel.name == name)
        return next(((kernel.source, kernel.language) for kernel in kernels if kernel.source), None)

    def _with_fault(
        self, kernel: str, source: str, language: str, fault: Fault, same: frozenset[tuple[str, str]]
    ) -> HeldOut | None:
        """Compares a package with an edit; None if it does not compile, ends the run, or changes no bit."""
        wrong = source[: fault.start] + fault.text + source[fault.end :]
        edited = self._edited_cpp if language == "cpp" else self._edited_triton
        package = self._bench.folder / "planted.pt2"
        assert self._bench.original is not None
        try:
            with self._bench.edited(edited(kernel, source, wrong)):
                self._bench.build(package)
            run = self._bench.run(package)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - an edit that makes no program is none
            print(f"{fault} in {kernel}: {type(error).__name__}: {str(error)[:300]}", file=sys.stderr)
            return None
        changed = first_other_bit(run, self._bench.original, same)
        if changed is None:
            return None
        expected, size = changed
        comparison = self._bench.compared(run)
        first = comparison.first_wrong
        excesses = [o.excess for row in comparison.rows if expected in row.together_with for o in row.outputs]
        return HeldOut(
            self._bench.name,
            fault.kind,
            str(fault),
            kernel,
            first is not None and expected in first.together_with,
            named(comparison),
            expected,
            size,
            max(excesses, default=-1.0),
        )

    def _edited_cpp(self, _: str, right: str, wrong: str) -> Callable[[LoweredModel], LoweredModel]:
        def edit(lowered: LoweredModel) -> LoweredModel:
            text = lowered.sources.kernels.replace(right, wrong)
            return replace(lowered, sources=replace(lowered.sources, kernels=text))

        return edit

    def _edited_triton(self, name: str, _: str, wrong: str) -> Callable[[LoweredModel], LoweredModel]:
        """The machine code of the edited source takes the place of the kernel's."""
        assert self._bench.original is not None
        manifest = self._bench.original.manifest
        kernel = manifest.kernel(name)
        assert kernel is not None
        folder = Path(tempfile.mkdtemp(dir=self._bench.folder))
        binary = folder / kernel.cubin
        binary.write_bytes(machine_code.compiled(kernel, wrong, manifest.triton_helpers, folder))

        def edit(lowered: LoweredModel) -> LoweredModel:
            shipped = tuple(binary if path.name == binary.name else path for path in lowered.sources.shipped)
            if binary not in shipped:
                raise ValueError(f"the package has no file {binary.name}")
            return replace(lowered, sources=replace(lowered.sources, shipped=shipped))

        return edit

"""Compares packages with random edits of kernels, for benchmarks/compare_model.py."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from dataclasses import replace

import wrong_triton
from changed_values import first_other_bit, steady
from compare_bench import Bench, environment, named
from compare_results import HeldOut
from held_out_faults import Fault, faults, kernel_span

from aoti_debug.frontend.lowered_model import LoweredModel


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
            result = None if fault is None else self._with_fault(kernel, source, fault, same)
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

    def _with_fault(self, kernel: str, source: str, fault: Fault, same: frozenset[tuple[str, str]]) -> HeldOut | None:
        """Compares a package with an edit; None if it does not compile, ends the run, or changes no bit."""
        wrong = source[: fault.start] + fault.text + source[fault.end :]

        def edit(lowered: LoweredModel) -> LoweredModel:
            text = lowered.sources.kernels.replace(source, wrong)
            return replace(lowered, sources=replace(lowered.sources, kernels=text))

        package = self._bench.folder / "planted.pt2"
        assert self._bench.original is not None
        try:
            if self._bench.device == "cpu":
                with self._bench.edited(edit):
                    self._bench.build(package)
            else:
                with environment(wrong_triton.VARIABLE, self._triton_edit(source, wrong)):
                    self._bench.build(package, (*self._bench.example.imports, "wrong_triton"))
            run = self._bench.run(package)
        except Exception as error:  # noqa: BLE001 - an edit that makes no program is none
            print(f"{fault} in {kernel}: {type(error).__name__}", file=sys.stderr)
            return None
        changed = first_other_bit(run, self._bench.original, same)
        if changed is None:
            return None
        expected, size = changed
        comparison = self._bench.compared(run)
        first = comparison.first_wrong
        excesses = [o.excess for row in comparison.rows if expected in row.launches for o in row.outputs]
        return HeldOut(
            self._bench.name,
            fault.kind,
            str(fault),
            kernel,
            first is not None and expected in first.launches,
            named(comparison),
            expected,
            size,
            max(excesses, default=-1.0),
        )

    def _triton_edit(self, right: str, wrong: str) -> str:
        path = self._bench.folder / "wrong_triton.json"
        path.write_text(json.dumps({"right": right, "wrong": wrong}))
        return str(path)

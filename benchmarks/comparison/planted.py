"""Compares packages with planted wrong kernels, for compare_model.py."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

from aoti_debug.compare.compare_run import reference_of
from aoti_debug.compare.text import MAX_SUSPECTS
from aoti_debug.instrument.frontend.lowered_model import LoweredModel
from benchmarks.comparison import wrong_kernels, wrong_lowerings
from benchmarks.comparison.changed_values import first_changed
from benchmarks.comparison.compare_bench import Bench, environment, named
from benchmarks.comparison.compare_results import Found
from benchmarks.comparison.wrong_kernels import Plant
from benchmarks.comparison.wrong_lowerings import VARIABLE, WRONG


class PlantedBench:
    """Edits and wrong lowerings, of known operators, of one model."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def results(self, count: int, chance: random.Random) -> Iterator[Found]:
        """Compares packages whose generated code was edited, one edit in each."""
        if not count or self._bench.lowered is None or self._bench.original is None:
            return
        sources = self._bench.lowered.sources
        texts = {"kernels": sources.kernels, "wrapper": sources.wrapper}
        for plant in wrong_kernels.plants(texts, self._bench.original, chance):
            if not count:
                return
            result = self._planted(plant)
            if result is not None:
                count -= 1
                yield result

    def _planted(self, plant: Plant) -> Found | None:
        """Compares a package with an edit; None if it does not compile, ends the run, or has no effect."""

        def edit(lowered: LoweredModel) -> LoweredModel:
            text = getattr(lowered.sources, plant.place)
            text = text[: plant.start] + plant.text + text[plant.end :]
            return replace(lowered, sources=replace(lowered.sources, **{plant.place: text}))

        with self._bench.edited(edit):
            return self._measured(plant.kind, plant.name, plant.kernel, plant.operators, self._bench.example.imports)

    def lowered_wrongly(self, count: int, chance: random.Random) -> Iterator[Found]:
        """Compares packages for which one operator was lowered wrongly."""
        if not count or self._bench.original is None:
            return
        reference, _ = reference_of(self._bench.original)
        present = {node.target for graph in reference.graphs for node in graph.nodes}
        names = [name for name, (_, operator, _) in WRONG.items() if operator in present]
        chance.shuffle(names)
        for name in names:
            if not count:
                return
            kind, operator, _ = WRONG[name]
            with environment(VARIABLE, name):
                imports = (*self._bench.example.imports, wrong_lowerings.__name__)
                result = self._measured(kind, name, "", (operator.split(".")[1],), imports)
            if result is not None:
                count -= 1
                yield result

    def _measured(
        self, kind: str, name: str, kernel: str, operators: tuple[str, ...], imports: tuple[str, ...]
    ) -> Found | None:
        package = self._bench.folder / "planted.pt2"
        assert self._bench.original is not None
        try:
            self._bench.build(package, imports)
            run = self._bench.run(package)
        except Exception as error:  # noqa: BLE001 - an edit that makes no program is none
            print(f"{name} in {kernel or self._bench.name}: {type(error).__name__}", file=sys.stderr)
            return None
        expected = first_changed(run, self._bench.original, 0.125 if kernel else 1.0)
        if expected is None:
            return None
        began = time.monotonic()
        comparison = self._bench.compared(run)
        seconds = time.monotonic() - began
        first = comparison.first_wrong
        is_right = first is not None and expected in first.together_with
        blamed = [suspect.operator.split(".")[1] for suspect in (first.suspects if first else ())[:MAX_SUSPECTS]]

        def names_right(some: list[str]) -> bool:
            return is_right and (not operators or any(o in operator for operator in some for o in operators))

        return Found(
            self._bench.name,
            kind,
            name,
            kernel,
            is_right,
            names_right(blamed),
            names_right(blamed[:1]),
            len(first.suspects) if first else 0,
            named(comparison),
            expected,
            seconds,
        )

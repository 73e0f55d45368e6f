"""Compares one model for benchmarks/compare.py, as it is and with wrong kernels, and prints the results as JSON lines.

usage: python benchmarks/compare_model.py MODEL [--device cpu|cuda] [--planted N] [--lowerings N] [--seed N]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import huggingface_models
import ordinary_models
import planted_models
import torch
import unusual_models
import wrong_kernels
import wrong_triton
from held_out_faults import Fault, faults, kernel_span
from planted_models import DIFFICULT, EXAMPLES, Example
from wrong_kernels import Plant
from wrong_lowerings import VARIABLE, WRONG

from aoti_debug.abi import Phase
from aoti_debug.builder import build as builder
from aoti_debug.builder import frontend_requests
from aoti_debug.compare.compare_run import Scope, compare_run, reference_of
from aoti_debug.compare.comparison import Comparison
from aoti_debug.compare.measure.ulp import relative_difference, ulp
from aoti_debug.compare.protocol.limits import LARGEST
from aoti_debug.compare.regions.regions import find_regions
from aoti_debug.compare.text import MAX_SUSPECTS
from aoti_debug.frontend.exported_program import WORKER
from aoti_debug.frontend.lowered_model import LoweredModel
from aoti_debug.machine import python_process
from aoti_debug.machine.steps import Steps
from aoti_debug.run import runner
from aoti_debug.run.preloaded import PRELOADED
from aoti_debug.rundir import load_tensors
from aoti_debug.rundir.run_directory import RunDir

HERE = Path(__file__).resolve().parent
_CALLS = 2
_LEAST = 64 * 2.0**-23  # of float32: rounding differs where a wrong lowering leads to another fusion


@dataclass(frozen=True)
class Found:
    """The result of comparing a package with a wrong kernel.

    Attributes:
        launch: the first wrong launch is the first one that the edit changed.
        operator: one of the operators named is the right one; of an edit that belongs to none, `launch`.
        first: the operator named first is the right one; likewise.
    """

    model: str
    kind: str
    mutation: str
    kernel: str
    launch: bool
    operator: bool
    first: bool
    suspects: int
    named: str
    expected: str
    seconds: float


@dataclass(frozen=True)
class HeldOut:
    """The result of comparing a package with a random edit of a kernel.

    Attributes:
        edit: what was replaced by what.
        found: the first wrong launch is the first one whose outputs have another bit than the right package's.
        size: the largest change of an element of that output, in ULP; of integers, by how much.
        excess: the largest error of that launch, as a multiple of what rounding may explain; -1 if it was not compared.
    """

    model: str
    kind: str
    edit: str
    kernel: str
    found: bool
    named: str
    expected: str
    size: float
    excess: float


@dataclass(frozen=True)
class Clean:
    """The result of comparing an ordinary model.

    Attributes:
        coverage, independent: of the bytes of outputs, those compared, and those compared with other code.
        wrong: launches and states that were called wrong.
        run_seconds, eager_seconds, compare_seconds: a run at level 1, one call in eager, the comparison of the run.
        peak: bytes of memory of the evaluating process.
    """

    model: str
    launches: int
    compared: int
    coverage: float
    independent: float
    wrong: tuple[str, ...]
    reasons: tuple[str, ...]
    run_seconds: float
    eager_seconds: float
    compare_seconds: float
    peak: int


def models() -> dict[str, Example]:
    """All models by name."""
    architectures = huggingface_models.architectures()
    return {**EXAMPLES, **DIFFICULT, **ordinary_models.ordinary(), **unusual_models.unusual(), **architectures}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--planted", metavar="N", type=int, default=0, help="edits of generated code")
    parser.add_argument("--lowerings", metavar="N", type=int, default=0, help="wrong lowerings")
    parser.add_argument("--held-out", metavar="N", type=int, default=0, help="random edits of kernels")
    parser.add_argument("--seed", metavar="N", type=int, default=0)
    options = parser.parse_args()
    places = (HERE, HERE.parent / "tests", os.environ.get("PYTHONPATH", ""))
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, places))  # for the modules that `imports` name
    example = models()[options.model]
    with tempfile.TemporaryDirectory(prefix="aoti-debug-compare-") as folder:
        lowering = ("torch._inductor.compile_fx", "torch._inductor.package", WORKER)
        with python_process.forking_from(PRELOADED, lowering):
            bench = Bench(options.model, example, options.device, Path(folder))
            _print(bench.clean())
            for found in bench.edited(options.planted, random.Random(options.seed)):
                _print(found)
            if options.device == "cpu":
                for held_out in bench.held_out(options.held_out, random.Random(f"{options.seed} {options.model}")):
                    _print(held_out)
        if options.device == "cuda":
            for held_out in bench.held_out(options.held_out, random.Random(f"{options.seed} {options.model}")):
                _print(held_out)
        for found in bench.lowered_wrongly(options.lowerings, random.Random(options.seed)):
            _print(found)
    return 0


def _print(result: Clean | Found | HeldOut) -> None:
    print(json.dumps({type(result).__name__: asdict(result)}), flush=True)


class Bench:
    """One model."""

    def __init__(self, name: str, example: Example, device: str, folder: Path) -> None:
        self._name, self._example, self._device, self._folder = name, example, device, folder
        self._program, self._package = folder / "model.pt2", folder / "package.pt2"
        torch.export.save(planted_models.program(example, device), self._program)
        self._lowered: LoweredModel | None = None
        self._original: RunDir | None = None

    def clean(self) -> Clean:
        """Compares the model as it is."""
        with self._edited(lambda lowered: lowered):
            self._build(self._package)
        began = time.monotonic()
        self._original = run = self._run(self._package)
        middle = time.monotonic()
        comparison = self._compared(run)
        end = time.monotonic()
        coverage = comparison.coverage
        reasons = {reason for row in comparison.rows for reason in (row.reason, *row.notes) if reason}
        wrong = [row.launch.id for row in comparison.rows if row.verdict.value == "wrong"]
        return Clean(
            self._name,
            coverage.launches,
            coverage.compared,
            coverage.compared_bytes / max(coverage.bytes, 1),
            (coverage.compared_bytes - coverage.same_code_bytes) / max(coverage.bytes, 1),
            (*wrong, *(f"{state.name}: {state.advance.value}" for state in comparison.wrong_states)),
            tuple(sorted(reasons)),
            middle - began,
            self._eager_seconds(),
            end - middle,
            comparison.peak_bytes,
        )

    def _eager_seconds(self) -> float:
        module = planted_models.module_of(self._example, self._device)
        inputs = planted_models.inputs_of(self._example, self._device)
        with torch.no_grad():
            began = time.monotonic()
            module(*inputs)
            if self._device == "cuda":
                torch.cuda.synchronize()
            return time.monotonic() - began

    def edited(self, count: int, chance: random.Random) -> Iterator[Found]:
        """Compares packages whose generated code was edited, one edit in each."""
        if not count or self._lowered is None or self._original is None:
            return
        sources = self._lowered.sources
        texts = {"kernels": sources.kernels, "wrapper": sources.wrapper}
        for plant in wrong_kernels.plants(texts, self._original, chance):
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

        with self._edited(edit):
            return self._measured(plant.kind, plant.name, plant.kernel, plant.operators, self._example.imports)

    def held_out(self, count: int, chance: random.Random) -> Iterator[HeldOut]:
        """Compares packages with a random edit of a random launch's kernel; those that change no bit are left out."""
        if not count or self._original is None:
            return
        steady = _steady(self._run(self._package), self._original)
        launches = [
            launch
            for launch in self._original.launches
            if not launch.key.call and self._source_of(launch.kernel) is not None
        ]
        possible: dict[str, Iterator[Fault]] = {}
        tries = 8 * count
        while count and tries and launches:
            tries -= 1
            kernel = chance.choice(launches).kernel
            source, language = self._source_of(kernel) or ("", "")
            fault = next(possible.setdefault(kernel, faults(source, language, chance)), None)
            result = None if fault is None else self._with_fault(kernel, source, fault, steady)
            if result is not None:
                count -= 1
                yield result

    def _source_of(self, name: str) -> tuple[str, str] | None:
        """The source of a generated kernel and its language."""
        assert self._original is not None
        if self._device == "cpu" and self._lowered is not None:
            span = kernel_span(self._lowered.sources.kernels, name)
            return None if span is None else (self._lowered.sources.kernels[slice(*span)], "cpp")
        kernels = (kernel for kernel in self._original.manifest.kernels if kernel.name == name)
        return next(((kernel.source, kernel.language) for kernel in kernels if kernel.source), None)

    def _with_fault(self, kernel: str, source: str, fault: Fault, steady: frozenset[tuple[str, str]]) -> HeldOut | None:
        """Compares a package with an edit; None if it does not compile, ends the run, or changes no bit."""
        wrong = source[: fault.start] + fault.text + source[fault.end :]

        def edit(lowered: LoweredModel) -> LoweredModel:
            text = lowered.sources.kernels.replace(source, wrong)
            return replace(lowered, sources=replace(lowered.sources, kernels=text))

        package = self._folder / "planted.pt2"
        assert self._original is not None
        try:
            if self._device == "cpu":
                with self._edited(edit):
                    self._build(package)
            else:
                with _environment(wrong_triton.VARIABLE, self._triton_edit(source, wrong)):
                    self._build(package, (*self._example.imports, "wrong_triton"))
            run = self._run(package)
        except Exception as error:  # noqa: BLE001 - an edit that makes no program is none
            print(f"{fault} in {kernel}: {type(error).__name__}", file=sys.stderr)
            return None
        changed = _first_other_bit(run, self._original, steady)
        if changed is None:
            return None
        expected, size = changed
        comparison = self._compared(run)
        first = comparison.first_wrong
        excesses = [o.excess for row in comparison.rows if expected in row.launches for o in row.outputs]
        return HeldOut(
            self._name,
            fault.kind,
            str(fault),
            kernel,
            first is not None and expected in first.launches,
            _named(comparison),
            expected,
            size,
            max(excesses, default=-1.0),
        )

    def _triton_edit(self, right: str, wrong: str) -> str:
        path = self._folder / "wrong_triton.json"
        path.write_text(json.dumps({"right": right, "wrong": wrong}))
        return str(path)

    def lowered_wrongly(self, count: int, chance: random.Random) -> Iterator[Found]:
        """Compares packages for which one operator was lowered wrongly."""
        if not count or self._original is None:
            return
        reference, _ = reference_of(self._original)
        present = {node.target for graph in reference.graphs for node in graph.nodes}
        names = [name for name, (_, operator, _) in WRONG.items() if operator in present]
        chance.shuffle(names)
        for name in names:
            if not count:
                return
            kind, operator, _ = WRONG[name]
            with _environment(VARIABLE, name):
                imports = (*self._example.imports, "wrong_lowerings")
                result = self._measured(kind, name, "", (operator.split(".")[1],), imports)
            if result is not None:
                count -= 1
                yield result

    def _measured(
        self, kind: str, name: str, kernel: str, operators: tuple[str, ...], imports: tuple[str, ...]
    ) -> Found | None:
        package = self._folder / "planted.pt2"
        assert self._original is not None
        try:
            self._build(package, imports)
            run = self._run(package)
        except Exception as error:  # noqa: BLE001 - an edit that makes no program is none
            print(f"{name} in {kernel or self._name}: {type(error).__name__}", file=sys.stderr)
            return None
        expected = _first_changed(run, self._original, 0.125 if kernel else 1.0)
        if expected is None:
            return None
        began = time.monotonic()
        comparison = self._compared(run)
        seconds = time.monotonic() - began
        first = comparison.first_wrong
        is_right = first is not None and expected in first.launches
        named = [suspect.operator.split(".")[1] for suspect in (first.suspects if first else ())[:MAX_SUSPECTS]]

        def names_right(some: list[str]) -> bool:
            return is_right and (not operators or any(o in operator for operator in some for o in operators))

        return Found(
            self._name,
            kind,
            name,
            kernel,
            is_right,
            names_right(named),
            names_right(named[:1]),
            len(first.suspects) if first else 0,
            _named(comparison),
            expected,
            seconds,
        )

    def _compared(self, run: RunDir) -> Comparison:
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        scope = Scope(imports=self._example.imports, exported=self._program)
        return compare_run(run, scope, folder, Steps(None))

    def _run(self, package: Path) -> RunDir:
        runs, imports = self._folder / "runs", self._example.imports
        return runner.run(package, level=1, phase="both", out=runs, imports=imports, calls=_CALLS).run

    def _build(self, output: Path, imports: tuple[str, ...] | None = None) -> None:
        builder.build(
            self._program,
            output=output,
            imports=self._example.imports if imports is None else imports,
            inductor_configs=dict(self._example.configs),
        )

    @contextmanager
    def _edited(self, edit: Callable[[LoweredModel], LoweredModel]) -> Iterator[None]:
        """Builds inside the `with` compile the sources that `edit` makes; they are lowered once."""
        lower = frontend_requests.lower_or_unpack

        def edited(checked: Any, torch_: Any, work: Path) -> LoweredModel:
            if self._lowered is None:
                folder = self._folder / "lowered"
                folder.mkdir()
                self._lowered = lower(checked, torch_, folder)
            return edit(self._lowered)

        frontend_requests.lower_or_unpack = edited
        try:
            yield
        finally:
            frontend_requests.lower_or_unpack = lower


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


def _named(comparison: Comparison) -> str:
    first = comparison.first_wrong
    return "nothing" if first is None else f"{first.launch.id} {first.launch.kernel}"


def _first_changed(run: RunDir, original: RunDir, share: float) -> str | None:
    """The first launch that wrote another value of the graph than the launch of the right package did.

    Args:
        share: of the relative difference, root mean square, from which on a change counts: of _LEAST, or of one ULP in
            half precision. An edit may change no more than the order of a sum.
    """
    right = {value: path for (_, value), path in _values(original).items()}
    for (launch, value), path in _values(run).items():
        if value in right and _differs(path, right[value], share):
            return launch
    return None


def _differs(path: Path, right: Path, share: float) -> bool:
    actual, expected = load_tensors.load_file(path), load_tensors.load_file(right)
    if torch.equal(actual.nan_to_num(), expected.nan_to_num()):
        return False
    if actual.shape != expected.shape or not actual.is_floating_point():
        return True
    least = torch.finfo(actual.dtype).eps if actual.element_size() == 2 else _LEAST
    return relative_difference(actual, expected.double()) > share * least


def _steady(run: RunDir, original: RunDir) -> frozenset[tuple[str, str]]:
    """The values that are the same in two runs of the same package: no random numbers, no order of threads."""
    right, again = _values(original), _values(run)
    return frozenset(key for key, path in again.items() if key in right and not _change(path, right[key]))


def _first_other_bit(run: RunDir, original: RunDir, steady: frozenset[tuple[str, str]]) -> tuple[str, float] | None:
    """The first launch that wrote another value than the right package's, and the largest change in ULP."""
    right = _values(original)
    for key, path in _values(run).items():
        if key in steady and (change := _change(path, right[key])):
            return key[0], change
    return None


def _change(path: Path, right: Path) -> float:
    """The largest change of an element, in ULP, or of integers by how much; signs of zero do not count."""
    actual, expected = load_tensors.load_file(path), load_tensors.load_file(right)
    if actual.shape != expected.shape or not actual.numel():
        return float(actual.shape != expected.shape)
    if actual.is_complex():
        actual, expected = torch.view_as_real(actual), torch.view_as_real(expected)
    same = (actual == expected) | (actual.isnan() & expected.isnan())
    if bool(same.all()):
        return 0.0
    wide = actual.double()[~same], expected.double()[~same]
    change = (wide[0] - wide[1]).abs()
    if actual.is_floating_point():
        change = change / ulp(wide[1], actual.dtype)
    return float(change.nan_to_num(LARGEST, LARGEST).amax()) or 1.0


def _values(run: RunDir) -> Mapping[tuple[str, str], Path]:
    """The file of each value that a launch wrote in the first call, by launch and value."""
    reference, _ = reference_of(run)
    found: dict[tuple[str, str], Path] = {}
    for writes in find_regions(run, reference).values.writes.values():
        for write in writes:
            saved = write.argument.files.get(Phase.AFTER)
            if write.value is not None and saved is not None and saved.path and not write.launch.key.call:
                place = f"{write.launch.site.subgraph}:{write.launch.loops}:{write.value}"
                found[write.launch.id, place] = run.tensor_path(saved)
    return found


if __name__ == "__main__":
    sys.exit(main())

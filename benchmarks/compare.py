"""Measures `aoti-debug compare`: wrong kernels that it finds, ordinary models that it calls wrong, coverage and time.

usage: python benchmarks/compare.py [--planted N] [--seed N] [--only MODEL ...] [--clean] [--json FILE]

Wrong kernels are made by editing the generated C++ between lowering and compiling, one edit in a package. An edit that
changes no recorded byte of its launch is not counted. Exit code 1: a wrong kernel was missed, or an ordinary model was
called wrong.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import planted_models
import torch
from planted_models import DIFFICULT, EXAMPLES, Example

from aoti_debug.abi import Phase
from aoti_debug.builder import build as builder
from aoti_debug.builder import frontend_requests
from aoti_debug.compare.compare import compare
from aoti_debug.compare.compare_run import PRELOADED
from aoti_debug.compare.comparison import Comparison
from aoti_debug.compare.options import CompareOptions
from aoti_debug.compare.text import MAX_SUSPECTS
from aoti_debug.frontend.exported_program import WORKER
from aoti_debug.frontend.lowered_model import LoweredModel
from aoti_debug.machine import python_process
from aoti_debug.run import runner
from aoti_debug.rundir.run_directory import RunDir

_KERNEL = re.compile(r'extern "C"\s+void\s+(\w+)\(')


@dataclass(frozen=True)
class Mutation:
    """A kind of edit.

    Attributes:
        operators: operators of which one should be named; () if any may be.
    """

    name: str
    pattern: str
    replacement: str
    operators: tuple[str, ...] = ()


ARITHMETIC = ("add", "sub", "sum", "mean", "var", "layer_norm", "gelu", "silu", "erf", "cumsum")
MUTATIONS = (
    Mutation("added for subtracted", r"(auto tmp\d+ = tmp\d+) - (tmp\d+;)", r"\1 + \2", ("sub", "softmax")),
    Mutation("subtracted for added", r"(auto tmp\d+ = tmp\d+) \+ (tmp\d+;)", r"\1 - \2", ARITHMETIC),
    Mutation("swapped operands", r"auto (tmp\d+) = (tmp\d+) - (tmp\d+);", r"auto \1 = \3 - \2;", ("sub",)),
    Mutation(
        "swapped quotient", r"auto (tmp\d+) = (tmp\d+) / (tmp\d+);", r"auto \1 = \3 / \2;", ("div", "mean", "var")
    ),
    Mutation("left out a factor", r"auto (tmp\d+) = (tmp\d+) \* (tmp\d+);", r"auto \1 = \2;", ("mul", "rsqrt", "div")),
    Mutation("reduction one short", r"(tmp_acc0 = 0;[^}]*?x(\d)<static_cast<int64_t>\()(\d+)L", r"\g<1>\g<3>L - 16L"),
    Mutation("left out exp", r"(auto tmp\d+ = tmp\d+)\.exp\(\)", r"\1", ("exp", "softmax", "sigmoid", "silu")),
    Mutation("left out clamp", r"at::vec::clamp_min\((tmp\d+), [^;]*\);", r"\1;", ("relu", "clamp")),
    Mutation("wrong row", r"(in_ptr\d \+ static_cast<int64_t>\(x\d) \+ (\d+)L\*(x\d)", r"\1 + \2L*(\3 ^ 1)"),
    Mutation("dropped offset", r"(in_ptr\d \+ static_cast<int64_t>\()\d+L \+ ", r"\1"),
    Mutation(
        "stored a row early",
        r"(\.store\(out_ptr\d \+ static_cast<int64_t>\(x\d) \+ (\d+)L\*(x\d)",
        r"\1 + \2L*(\3 ^ 1)",
    ),
    Mutation("wrong constant", r"static_cast<float>\((\d+\.\d+)\)", r"static_cast<float>(\1 * 1.01)"),
    Mutation("wrong mask", r"blendv\((tmp\d+), (tmp\d+), ", r"blendv(\2, \1, ", ("where", "masked_fill")),
    Mutation("wrong maximum", r"at::vec::maximum\(x, y\)", r"at::vec::minimum(x, y)", ("amax", "max", "softmax")),
    Mutation("wrong rounding", r"\(int32_t\)|c10::convert<int32_t>\((tmp\d+)\)", r"c10::convert<int32_t>(\1 + 0.5f)"),
    Mutation("wrong modulus", r"static_cast<int32_t>\(7\)", r"static_cast<int32_t>(8)", ("remainder",)),
    Mutation("sine for cosine", r"(tmp\d+)\.erf\(\)", r"\1.tanh()", ("erf", "gelu")),
    Mutation("low precision", r"(auto tmp\d+ = )(tmp\d+ \* tmp\d+);", r"\1\2 * at::vec::Vectorized<float>(1.004f);"),
    Mutation("square root left out", r"(auto tmp\d+ = tmp\d+)\.rsqrt\(\)", r"\1", ("rsqrt", "sqrt")),
)


@dataclass(frozen=True)
class Plant:
    """One edit of the generated code of a model."""

    model: str
    mutation: Mutation
    kernel: str  # of which the source is edited
    start: int
    end: int
    text: str  # replaces [start, end)


@dataclass(frozen=True)
class Found:
    """The result of comparing a package with a wrong kernel."""

    model: str
    mutation: str
    kernel: str
    launch: bool  # the first wrong launch is the right one
    operator: bool  # one of the operators named is the right one
    suspects: int
    named: str
    seconds: float


@dataclass(frozen=True)
class Clean:
    """The result of comparing an ordinary model."""

    model: str
    launches: int
    compared: int
    coverage: float  # of the bytes of outputs
    wrong: tuple[str, ...]
    run_seconds: float
    compare_seconds: float


def main() -> int:
    options = _options()
    folder = Path(tempfile.mkdtemp(prefix="aoti-debug-compare-"))
    lowering = ("torch._inductor.compile_fx", "torch._inductor.package", WORKER)
    found: list[Found] = []
    with python_process.forking_from(PRELOADED, lowering):
        examples = {n: e for n, e in {**EXAMPLES, **DIFFICULT}.items() if not options.only or n in options.only}
        clean = [_clean(name, example, folder) for name, example in examples.items()]
        if not options.clean:
            for name in (n for n in EXAMPLES if n in examples):
                found += _planted(name, folder, options.planted, random.Random(options.seed))
    _print(found, clean)
    if options.json:
        data = {"planted": [asdict(f) for f in found], "clean": [asdict(c) for c in clean]}
        Path(options.json).write_text(json.dumps(data, indent=1))
    return 0 if all(f.launch and f.operator for f in found) and not any(c.wrong for c in clean) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--planted", metavar="N", type=int, default=16, help="wrong kernels for each model")
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="which edits are chosen")
    parser.add_argument("--only", nargs="+", metavar="MODEL", help="only these models")
    parser.add_argument("--clean", action="store_true", help="only ordinary models, no wrong kernels")
    parser.add_argument("--json", metavar="FILE", help="also write the results")
    return parser.parse_args()


def _clean(name: str, example: Example, folder: Path) -> Clean:
    work = folder / name
    work.mkdir(parents=True)
    torch.export.save(planted_models.program(example), work / "model.pt2")
    with _sources(work / "lowered", lambda lowered: lowered):
        builder.build(work / "model.pt2", output=work / "package.pt2")
    began = time.monotonic()
    run = runner.run(work / "package.pt2", level=1, phase="both", out=work / "runs").run
    middle = time.monotonic()
    comparison = compare(CompareOptions(run.path, out=work / "compares"))
    rows = comparison.rows
    result = Clean(
        name,
        len(rows),
        sum(bool(row.outputs) for row in rows),
        sum(row.compared_bytes for row in rows) / max(sum(row.bytes for row in rows), 1),
        tuple(row.launch.id for row in rows if row.verdict.value == "wrong"),
        middle - began,
        time.monotonic() - middle,
    )
    print(result, file=sys.stderr, flush=True)
    return result


def _planted(name: str, folder: Path, count: int, chance: random.Random) -> Iterator[Found]:
    work = folder / name
    original = runner.run(work / "package.pt2", level=1, phase="both", out=work / "runs").run
    with _sources(work / "lowered", lambda lowered: lowered) as lowered:
        text = lowered().sources.kernels
    plants = list(_plants(name, text))
    chance.shuffle(plants)
    done = 0
    for plant in _varied(plants):
        if done == count:
            return
        result = _plant(plant, work, original)
        if result is not None:
            done += 1
            print(result, file=sys.stderr, flush=True)
            yield result


def _plants(model: str, text: str) -> Iterator[Plant]:
    kernels = [(match.start(), match.group(1)) for match in _KERNEL.finditer(text)]
    for mutation in MUTATIONS:
        for match in re.finditer(mutation.pattern, text):
            kernel = next((name for start, name in reversed(kernels) if start < match.start()), "")
            if kernel:
                yield Plant(model, mutation, kernel, match.start(), match.end(), match.expand(mutation.replacement))


def _varied(plants: list[Plant]) -> Iterator[Plant]:
    """The plants, one of each kind in turn."""
    while plants:
        seen: set[str] = set()
        for plant in list(plants):
            if plant.mutation.name not in seen:
                seen.add(plant.mutation.name)
                plants.remove(plant)
                yield plant


def _plant(plant: Plant, work: Path, original: RunDir) -> Found | None:
    """Builds, runs and compares a package with a wrong kernel; None if the edit does not compile or has no effect."""

    def edit(lowered: LoweredModel) -> LoweredModel:
        text = lowered.sources.kernels
        return replace(
            lowered,
            sources=replace(lowered.sources, kernels=text[: plant.start] + plant.text + text[plant.end :]),
        )

    package = work / "planted.pt2"
    try:
        with _sources(work / "lowered", edit):
            builder.build(work / "model.pt2", output=package)
    except Exception as error:  # noqa: BLE001 - an edit that makes no C++ is none
        print(f"{plant.mutation.name} in {plant.kernel} does not compile: {type(error).__name__}", file=sys.stderr)
        return None
    began = time.monotonic()
    run = runner.run(package, level=1, phase="both", out=work / "runs")
    expected = _first_changed(run.run, original)
    if expected is None or run.verdict is not None:
        return None
    comparison = compare(CompareOptions(run.run.path, out=work / "compares"))
    first = comparison.first_wrong
    shown = first.suspects[:MAX_SUSPECTS] if first else ()
    operators = [suspect.operator.split(".")[1] for suspect in shown]
    wanted = plant.mutation.operators
    right = first is not None and (not wanted or any(w in operator for operator in operators for w in wanted))
    return Found(
        plant.model,
        plant.mutation.name,
        plant.kernel,
        first is not None and expected in first.launches,
        right,
        len(first.suspects) if first else 0,
        _named(comparison),
        time.monotonic() - began,
    )


def _named(comparison: Comparison) -> str:
    first = comparison.first_wrong
    return "nothing" if first is None else f"{first.launch.id} {first.launch.kernel}"


def _first_changed(run: RunDir, original: RunDir) -> str | None:
    """The first launch whose outputs differ from those of the right package."""
    for launch, right in zip(run.launches, original.launches, strict=True):
        for argument, expected in zip(launch.args, right.args, strict=True):
            files = argument.files.get(Phase.AFTER), expected.files.get(Phase.AFTER)
            if argument.written and files[0] and files[1] and files[0].hash != files[1].hash:
                return launch.id
    return None


@contextmanager
def _sources(folder: Path, edit: Callable[[LoweredModel], LoweredModel]) -> Iterator[Callable[[], LoweredModel]]:
    """Builds inside the `with` compile the sources that `edit` makes; they are lowered once for a folder."""
    lower = frontend_requests.lower_or_unpack
    cached: dict[Path, LoweredModel] = _LOWERED

    def edited(checked: Any, torch_: Any, work: Path) -> LoweredModel:
        if folder not in cached:
            folder.mkdir()
            cached[folder] = lower(checked, torch_, folder)
        return edit(cached[folder])

    frontend_requests.lower_or_unpack = edited
    try:
        yield lambda: cached[folder]
    finally:
        frontend_requests.lower_or_unpack = lower


_LOWERED: dict[Path, LoweredModel] = {}


def _print(found: list[Found], clean: list[Clean]) -> None:
    print("| wrong kernel | planted | launch right | operator right |\n|---|---|---|---|")
    for name in dict.fromkeys(f.mutation for f in found):
        same = [f for f in found if f.mutation == name]
        print(f"| {name} | {len(same)} | {sum(f.launch for f in same)} | {sum(f.operator for f in same)} |")
    print(
        f"| all | {len(found)} | {sum(f.launch for f in found)} | {sum(f.operator for f in found)} |\n\n"
        "| ordinary model | launches | compared | bytes | wrong | run, level 1 | compare |\n"
        "|---|---|---|---|---|---|---|"
    )
    for c in clean:
        print(
            f"| {c.model} | {c.launches} | {c.compared} | {100 * c.coverage:.1f} % | {len(c.wrong)} "
            f"| {c.run_seconds:.1f} s | {c.compare_seconds:.1f} s |"
        )


if __name__ == "__main__":
    sys.exit(main())

"""Runs every example of looking inside of compiled code in eager and as a package, side by side.

usage: python -m benchmarks.inside.inside [--device cpu|cuda] [--backend NAME] [--keep DIR]

Builds two packages (inside_examples.py): one prints, one has inspectors. Prints for each example what eager
prints beside what the package prints, and whether they are equal; the gradients beside those of torch.compile, since a
package has no backward; the summaries of a run beside the statistics in eager; the calls in the words of DebugMode.
Every call runs in a process of its own, forked from one that has imported torch. The exit code is 1 if two sides
differ.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from click.testing import CliRunner

from aoti_debug.app.cli.main import group
from aoti_debug.base.machine.processes import python_process
from aoti_debug.base.machine.processes.python_process import PythonCommand
from aoti_debug.instrument.builder import build as builder
from aoti_debug.instrument.frontend.exported_program import WORKER
from aoti_debug.package.manifest import Form, Manifest
from aoti_debug.runs.run import inspector, runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.run.protocol import PRELOADED
from aoti_debug.runs.rundir import summaries
from benchmarks import checkout
from benchmarks.inside import inside_examples

SIDE = str(Path(__file__).with_name("inside_side.py"))
IMPORTED = (*PRELOADED, "torch._inductor.compile_fx", "torch._inductor.package", WORKER)
CALLS = 3
INSPECTED = {
    "basic": "inspector: basic",
    "tags": "inspector: tags, several tensors",
    "function": "inspector: autograd.Function",
    "ranks": "inspector: ranks",
    "layers": "inspector: every module",
    "nan": "inspector: NaN",
}


@dataclass(frozen=True)
class Example:
    """What one example prints in two ways.

    Attributes:
        sides: what the two are: ("eager", "package").
        left, right: lines.
        is_equal: False if they should be equal and are not.
    """

    name: str
    sides: tuple[str, str]
    left: tuple[str, ...]
    right: tuple[str, ...]
    is_equal: bool


def examples(work: Path, device: str, backend: str) -> Iterator[Example]:
    """Builds the packages in a directory, and runs the examples."""
    programs = {name: _export(name, device, work) for name in inside_examples.MODELS}
    packages = {name: builder.build(path, output=work / f"{name}.built.pt2") for name, path in programs.items()}

    @functools.cache
    def side(side: str, name: str) -> list[str]:
        package = packages["prints" if name == "prints" else "inspectors"]
        arguments = (side, name, str(package), device, backend)
        return _output(PythonCommand(script=SIDE, arguments=arguments)).splitlines()

    eager, package = (_printed(side(which, "prints")) for which in ("eager", "package"))
    for name in dict.fromkeys([*eager, *package]):
        yield _compared(name, eager.get(name, []), package.get(name, []))
    eager, package = (_inspected(side(which, "inspectors")) for which in ("eager", "package"))
    for name in dict.fromkeys([*eager, *package]):
        yield _compared(name, eager.get(name, []), package.get(name, []))
    yield _compared("inspector: NaN, raises an exception", side("eager", "nan"), side("package", "nan"))
    left, right = (sorted(side(which, "inspectors")) for which in ("eager-backward", "compiled-backward"))
    yield _compared("inspector: gradients, sorted", left, right, ("eager", "torch.compile"))
    yield _summaries(side("eager", "inspectors"), packages["inspectors"], work)
    yield _calls(programs["inspectors"], packages["inspectors"])


def _export(name: str, device: str, work: Path) -> Path:
    path = work / f"{name}.pt2"
    torch.export.save(inside_examples.program(name, device), path)
    return path


def _settings() -> list[str]:
    """The names of variables that examples do not inherit."""
    return [name for name in os.environ if name.startswith(("AOTI_DEBUG_", "RANK"))]


def _output(command: PythonCommand) -> str:
    """The output of a process that executes a command."""
    environment = {name: value for name, value in os.environ.items() if name not in _settings()}
    with python_process.start(command, environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        output, errors = child.communicate()
        code = child.wait()
    if code != 0:
        raise SystemExit(f"{command} failed with {code}:\n{errors.decode()[-4000:]}")
    return output.decode()


def _compared(
    name: str, left: Sequence[str], right: Sequence[str], sides: tuple[str, str] = ("eager", "package")
) -> Example:
    return Example(name, sides, tuple(left), tuple(right), bool(left) and list(left) == list(right))


def _printed(lines: Sequence[str]) -> dict[str, list[str]]:
    """The lines of each example, by its name, which it prints in brackets at first."""
    found: dict[str, list[str]] = {}
    for line in lines:
        if line.startswith("[print"):
            found[line.strip("[]")] = []
        else:
            found[list(found)[-1]].append(line)
    return found


def _inspected(lines: Sequence[str]) -> dict[str, list[str]]:
    """The lines of each example, by its name, which the tags begin with."""
    found: dict[str, list[str]] = {}
    for line in lines:
        found.setdefault(INSPECTED[re.split(r"[. ]", line)[0]], []).append(line)
    return found


def _summaries(eager: Sequence[str], package: Path, work: Path) -> Example:
    """Sum and absmax of every inspected tensor: those of inspectors in eager, and those of `run --summaries`."""
    run = runner.run(RunOptions(package, out=work / "runs", calls=CALLS, summaries=1, level=3)).run
    buffers = _inspected_buffers(run.manifest)
    kept = summaries.read(run)
    left, right = [], []
    for series in () if kept is None else kept.series:
        for line in eager:
            tag, _, index, *_ = re.split(r"[ :]+", line)
            told = re.search(r"sum (\S+) absmax (\S+)", line)
            if told is None or buffers.get((tag, int(index))) != series.argument:
                continue
            total, absmax = map(float, told.groups())
            for sample in series.samples:
                place = f"call {sample.call} {tag} {index}:"
                left.append(f"{place} mean {total / sample.numel:g} absmax {absmax:g}")
                right.append(f"{place} mean {sample.mean:g} absmax {sample.absmax:g}")
    return _compared("summaries over time", left, right)


def _inspected_buffers(manifest: Manifest) -> dict[tuple[str, int], str]:
    """The buffer of each tensor of an inspector, by tag and index."""
    found: dict[tuple[str, int], str] = {}
    for site in manifest.sites:
        for argument in (arg.name for arg in site.args if arg.form is Form.LIST):
            place = inspector.place_in_model(site, argument)
            if place is not None:
                found[place.tag, place.index] = argument
    return found


def _calls(program: Path, package: Path) -> Example:
    """The texts of `show --calls`; equal if the inspected tensors have the same bytes, in the same order."""

    def printed(*arguments: str) -> list[str]:
        """Of a command in this process: the processes that it starts are forked from the server."""
        done = CliRunner().invoke(group, arguments, env=dict.fromkeys(_settings()))
        if done.exit_code != 0:
            raise SystemExit(f"{arguments} failed with {done.exit_code}:\n{done.output[-4000:]}")
        return done.stdout.splitlines()

    show = ("show", "--calls", "--hashes", "--wide")
    printed("run", str(package), "--level", "1")
    right, left = printed(*show), printed(*show, "--eager", str(program))
    is_equal = _hashes(left) == _hashes(right) != []
    return Example("call text; equal: what inspectors see", ("eager", "package"), tuple(left), tuple(right), is_equal)


def _hashes(calls: Sequence[str]) -> list[str]:
    inspected = [line for line in calls if "aoti_debug::inspect_" in line]
    return [re.sub(r"t\$\d+", "t", line.split("  # ")[0]).strip() for line in inspected]


def lines(example: Example) -> list[str]:
    """An example side by side, in lines."""
    pairs = list(itertools.zip_longest(example.left, example.right, fillvalue=""))
    width = max(len(line) for line in (*example.left, example.sides[0]))
    rows = [f"{left:<{width}} | {right}".rstrip() for left, right in (example.sides, *pairs)]
    return [f"## {example.name}: {'equal' if example.is_equal else 'DIFFERENT'}", "", *rows, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--backend", default="inductor", help="of torch.compile, for the gradients")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="build and run there, and keep it")
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = checkout.python_path()  # of the processes that call an example
    found = []
    with tempfile.TemporaryDirectory() as temporary, python_process.forking_from(IMPORTED):
        work = (options.keep or Path(temporary)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        os.chdir(work)
        for example in examples(work, options.device, options.backend):
            found.append(example)
            print("\n".join(lines(example)))
    equal = sum(example.is_equal for example in found)
    print(f"{equal} of {len(found)} equal, on {options.device}, torch {torch.__version__}")
    sys.exit(0 if equal == len(found) else 1)


if __name__ == "__main__":
    main()

"""Takes the operators of PyTorch's own database (its OpInfo tests, higher-order operators as well) through aoti-debug.

usage: python -m benchmarks.comparison.operators [--device cpu|cuda] [--dtypes float32,bfloat16,…] [--dynamic]
    [--only NAME ...] [--start N] [--stop N] [--jobs N] [--minutes M] [--json FILE]

Every operator is exported and compiled as plain AOTI does it, then built for level 1. The outputs of the two packages
must have the same bits, `compare` must find every launch right, and the repro of one of its launches must give the
recorded bits. An operator that torch.export or plain AOTI cannot do, or whose plain package is not deterministic, does
not count; the reason is that of torch. Needs the package expecttest, as torch.testing._internal does. Exit code 1:
something is wrong that no known bug of torch (operator_results.py) explains.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import checkout, markdown
from benchmarks.comparison.operator_results import NO_REPRO, Outcome, Result, explained
from benchmarks.models import operator_samples
from benchmarks.models.operator_samples import Target

DTYPES = ("float32", "bfloat16", "float16", "int64", "complex64", "bool")


@dataclass(frozen=True)
class Limits:
    """What the processes may take.

    Attributes:
        seconds: of one process.
        end: when no other is started, on the clock of `time.monotonic`.
    """

    seconds: float
    end: float

    @property
    def left(self) -> float:
        return min(self.seconds, self.end - time.monotonic())


def main() -> int:
    options = _options()
    if missing := operator_samples.missing_package():
        print(f"{missing} is not installed; torch.testing._internal needs it: pip install {missing}", file=sys.stderr)
        return 2
    if unknown := operator_samples.unknown(options.only or ()):
        print(f"the database has no operator {', '.join(unknown)}", file=sys.stderr)
        return 2
    began = time.monotonic()
    limits = Limits(options.seconds, began + 60 * options.minutes if options.minutes else float("inf"))
    found: dict[str, list[Result]] = {}
    with tempfile.TemporaryDirectory(prefix="aoti-debug-operators-") as work, ThreadPoolExecutor(options.jobs) as pool:
        for dtype in options.dtypes.split(","):
            target = Target(options.device, dtype, options.dynamic, options.samples)
            names = operator_samples.names(target)[options.start : options.stop]
            names = [name for name in names if not options.only or name in options.only]
            batches = [names[at : at + options.batch] for at in range(0, len(names), options.batch)]
            measured = pool.map(lambda batch, target=target: _measured(batch, target, Path(work), limits), batches)
            found[dtype] = [result for results in measured for result in results]
    _print(found)
    print(f"{time.monotonic() - began:.0f} s")
    if options.json:
        rows = [{"dtype": dtype, **asdict(result)} for dtype, results in found.items() for result in results]
        Path(options.json).write_text(json.dumps(rows, indent=1))
    return int(any(result.outcome.is_unexplained for results in found.values() for result in results))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtypes", metavar="NAMES", default="float32", help=f"some of {','.join(DTYPES)}, or others")
    parser.add_argument("--dynamic", action="store_true", help="sizes are symbols wherever an operator allows it")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these operators")
    parser.add_argument("--start", type=int, metavar="N", default=0, help="the first operator, by its number")
    parser.add_argument("--stop", type=int, metavar="N", help="the one after the last")
    parser.add_argument("--samples", type=int, metavar="N", default=2, help="of each operator")
    parser.add_argument("--batch", type=int, metavar="N", default=12, help="operators in one program")
    parser.add_argument("--jobs", type=int, metavar="N", default=1, help="processes at once")
    parser.add_argument("--seconds", type=float, metavar="S", default=900, help="for one process")
    parser.add_argument("--minutes", type=float, metavar="M", help="for all; the rest is not run, which is said")
    parser.add_argument("--json", metavar="FILE", help="also write the results")
    return parser.parse_args()


def _measured(names: Sequence[str], target: Target, work: Path, limits: Limits) -> list[Result]:
    """What became of some operators; printed at once where it is not good."""
    results = [explained(result, target) for result in _processed(names, target, work, limits)]
    for result in results:
        if result.outcome is not Outcome.GOOD:
            print(f"{target.dtype} {result.operator}: {result.outcome.value}: {result.said}", file=sys.stderr)
    good = sum(result.outcome is Outcome.GOOD for result in results)
    print(f"{target.dtype} {names[0]} … {names[-1]}: {good} of {len(names)} good", file=sys.stderr, flush=True)
    return results


def _processed(names: Sequence[str], target: Target, work: Path, limits: Limits) -> Iterator[Result]:
    """The results of a process; those operators that it left open are tried again, half of them at once."""
    if limits.left <= 0:
        yield from (Result(name, Outcome.NOT_RUN, "no time was left") for name in names)
        return
    folder = tempfile.mkdtemp(dir=work)
    command = [sys.executable, "-m", "benchmarks.comparison.operator_batch", *names, "--work", folder]
    command += ["--device", target.device, "--dtype", target.dtype, "--samples", str(target.samples)]
    command += ["--dynamic"] if target.dynamic else []
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        seconds = limits.left
        try:
            done = subprocess.run(
                command, env=checkout.environment(), stdout=output, stderr=errors, timeout=seconds, check=False
            )
            how = f"exit code {done.returncode}"
        except subprocess.TimeoutExpired:
            how = f"no end within {seconds:.0f} s"
        output.seek(0)
        rows = [json.loads(line) for line in output if line.startswith('{"operator"')]
        errors.seek(0)
        last = (errors.read().strip().splitlines() or [""])[-1]
    results = [Result(row["operator"], Outcome(row["outcome"]), row["said"]) for row in rows]
    yield from results
    told = {result.operator for result in results}
    rest = [name for name in names if name not in told]
    if len(rest) > 1:
        middle = len(rest) // 2
        yield from _processed(rest[:middle], target, work, limits)
        yield from _processed(rest[middle:], target, work, limits)
    elif rest and limits.left <= 0:
        yield Result(rest[0], Outcome.NOT_RUN, how)
    elif rest and len(names) > 1:
        yield from _processed(rest, target, work, limits)
    elif rest:
        yield Result(rest[0], Outcome.FAILED, f"the process ended: {how}: {last}")


def _print(found: dict[str, list[Result]]) -> None:
    shown = [outcome for outcome in Outcome if not outcome.is_unexplained]
    rows = []
    for dtype, results in found.items():
        count = Counter(result.outcome for result in results)
        unexplained = sum(result.outcome.is_unexplained for result in results)
        rows.append((dtype, str(len(results)), *(str(count[outcome]) for outcome in shown), str(unexplained)))
    markdown.table(("dtype", "operators", *(outcome.value for outcome in shown), "unexplained"), rows)
    for outcome in Outcome:
        if outcome is Outcome.GOOD:
            continue
        for dtype, results in found.items():
            for result in results:
                if result.outcome is outcome:
                    print(f"{outcome.value}: {dtype} {result.operator}: {result.said}")
    everything = [result for results in found.values() for result in results]
    counting = [result for result in everything if result.outcome.counts]
    explained = sum(not result.outcome.is_unexplained for result in counting)
    share = 100 * explained / len(counting) if counting else 0.0
    print(f"\n{explained} of {len(counting)} operators that count are right or explained: {share:.1f} %")
    unreplayed = [result for result in everything if result.outcome is Outcome.GOOD and NO_REPRO in result.said]
    for result in unreplayed:
        print(f"no launch of {result.operator} is replayed: {result.said}")
    if not_run := sum(result.outcome is Outcome.NOT_RUN for result in everything):
        print(f"{not_run} were not run: no time was left")


if __name__ == "__main__":
    sys.exit(main())

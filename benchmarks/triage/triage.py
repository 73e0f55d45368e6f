"""Triages every case of the corpus (tests/corpus) and prints how often the verdict and the origin are right.

usage: python -m benchmarks.triage.triage [--device cpu|cuda] [--faults | --clean] [--only NAME ...] [--work DIR]
    [--json FILE]

Each case is triaged by the command line, in processes of its own. Exit code 1: something is not right.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from tests.corpus import cases, score
from tests.corpus.case import Case
from tests.corpus.score import Exported, Judgement, Outcome


@dataclass(frozen=True)
class Row:
    of: Exported
    outcome: Outcome
    judgement: Judgement

    @property
    def got(self) -> str:
        verdict = self.outcome.verdict
        if verdict is None:
            return f"exit code {self.outcome.returncode}"
        return " ".join(filter(None, (verdict["kind"], verdict["launch"], verdict["operator"] or verdict["kernel"])))


def main() -> int:
    options = _options()
    console = Console(width=None if sys.stdout.isatty() else 160)
    chosen = _chosen(options)
    with tempfile.TemporaryDirectory(prefix="aoti-debug-corpus-") as temporary:
        work = Path(options.work or temporary).resolve()
        rows = []
        progress = Console(stderr=True)
        ready = score.export(chosen, options.device, work / options.device)
        for of in track(ready, "triage", total=len(chosen), console=progress, disable=not progress.is_terminal):
            outcome = score.triage(of, Path(tempfile.mkdtemp(prefix=f"{of.case.name}-", dir=work)), score.in_a_process)
            rows.append(Row(of, outcome, score.judge(of, outcome)))
            if not progress.is_terminal:
                print(_line(rows[-1]), file=sys.stderr, flush=True)
    console.print(_table(rows))
    _explain(console, rows)
    for line in _scores(rows):
        console.print(line, highlight=False)
    console.print(_machine(options.device), highlight=False)
    if options.json:
        Path(options.json).write_text(json.dumps([_plain(row) for row in rows], indent=1))
    return 0 if all(row.judgement.right for row in rows) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--faults", dest="which", action="store_const", const="faults", help="only the faults")
    which.add_argument("--clean", dest="which", action="store_const", const="clean", help="only the clean models")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these cases")
    parser.add_argument("--work", metavar="DIR", help="keep exported programs and triages there")
    parser.add_argument("--json", metavar="FILE", help="also write the verdicts")
    return parser.parse_args()


def _chosen(options: argparse.Namespace) -> list[Case]:
    wanted = {"faults": cases.faults, "clean": cases.clean}
    groups = [wanted[options.which]] if options.which else list(wanted.values())
    found = [case for group in groups for case in group(options.device) if case.gpus <= _gpus(options.device)]
    if not options.only:
        return found
    unknown = set(options.only) - {case.name for case in found}
    if unknown:
        raise SystemExit(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(c.name for c in found)}")
    return [case for case in found if case.name in options.only]


def _gpus(device: str) -> int:
    """How many GPUs a case may use."""
    if device == "cpu":
        return 1
    import torch

    return int(torch.cuda.device_count())


def _line(row: Row) -> str:
    wrong = "; ".join((*row.judgement.verdict, *row.judgement.origin))
    return f"{row.of.case.name}: {row.got}, {row.outcome.seconds:.0f} s{', WRONG: ' if wrong else ''}{wrong}"


def _table(rows: list[Row]) -> Table:
    table = Table(title="triage of the corpus", title_justify="left")
    for name in ("case", "expected", "got", "verdict", "origin"):
        table.add_column(name, overflow="fold")
    table.add_column("seconds", justify="right")
    table.add_column("build", justify="right")
    for row in rows:
        table.add_row(
            row.of.case.name,
            row.of.case.kind,
            escape(row.got),
            "wrong" if row.judgement.verdict else "right",
            ("wrong" if row.judgement.origin else "right") if row.of.case.expected else "",
            f"{row.outcome.seconds:.1f}",
            f"{row.outcome.building:.1f}",
        )
    return table


def _explain(console: Console, rows: list[Row]) -> None:
    for row in rows:
        for what in (*row.judgement.verdict, *row.judgement.origin):
            console.print(escape(f"{row.of.case.name}: {what}"), soft_wrap=True, highlight=False)


def _scores(rows: list[Row]) -> list[str]:
    faulty = [row for row in rows if row.of.case.expected]
    clean = [row for row in rows if not row.of.case.expected]
    lines = []
    if faulty:
        lines.append(f"right verdicts: {sum(not row.judgement.verdict for row in faulty)} of {len(faulty)}")
        lines.append(f"right origins: {sum(not row.judgement.origin for row in faulty)} of {len(faulty)}")
    if clean:
        lines.append(f"false alarms: {sum(bool(row.judgement.verdict) for row in clean)} of {len(clean)} clean models")
    whole = [row.outcome.seconds for row in rows]
    beyond = [row.outcome.seconds - row.outcome.building for row in rows]
    for label, seconds in (("time of a triage", whole), ("time beyond the build", beyond)):
        lines.append(f"{label}: median {statistics.median(seconds):.1f} s, longest {max(seconds):.1f} s")
    return lines


def _machine(device: str) -> str:
    cores = len(os.sched_getaffinity(0))
    parts = [f"{platform.processor() or platform.machine()}, {cores} cores", f"Python {platform.python_version()}"]
    parts += [f"{name} {metadata.version(name)}" for name in ("torch", "aoti-debug") if _installed(name)]
    if device == "cuda":
        import torch

        parts.insert(0, torch.cuda.get_device_name())
    return ", ".join(parts)


def _installed(name: str) -> bool:
    return any(metadata.distributions(name=name))


def _plain(row: Row) -> dict[str, object]:
    return {
        "case": row.of.case.name,
        "expected": row.of.case.kind,
        "wrong": [*row.judgement.verdict, *row.judgement.origin],
        "seconds": row.outcome.seconds,
        "building": row.outcome.building,
        "verdict": row.outcome.verdict,
    }


if __name__ == "__main__":
    sys.exit(main())

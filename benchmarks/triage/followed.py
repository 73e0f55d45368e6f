"""Solves the corpus (tests/corpus) as an agent does that knows `aoti-debug guide` and nothing of the case.

usage: python -m benchmarks.triage.followed [--device cpu|cuda] [--only NAME ...] [--jobs N] [--results FILE]

It types `aoti-debug triage MODEL.pt2 --json`, with the operators, the inputs and the settings of the build, as a user
knows them, and without the options that make the fault show. Where nothing is found, or only what may be, it types what
`next` says, three commands at most. Each case is a line of FILE when it is done; what is in FILE is not run again. Exit
code 1: a verdict or an origin is not right.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import markdown
from benchmarks.rows_file import RowsFile
from tests.corpus import cases, score
from tests.corpus.score import Execute, Exported, Outcome

_COMMANDS = 3
_OPEN = ("clean", "incomplete")


def main() -> int:
    options = _options()
    done = RowsFile(options.results, options.device)
    chosen = [case for case in cases.faults(options.device) if not options.only or case.name in options.only]
    with tempfile.TemporaryDirectory(prefix="aoti-debug-followed-") as temporary:
        work = Path(temporary)
        waiting = score.export([case for case in chosen if case.name not in done.rows], options.device, work / "models")
        with ThreadPoolExecutor(options.jobs) as pool:
            for name, row in pool.map(
                lambda of: (of.case.name, _row(of, work / "triages" / of.case.name)), list(waiting)
            ):
                done.add(name, row)
    rows = [done.rows[case.name] for case in chosen]
    markdown.table(
        ("case", "kind", "commands", "seconds", "wrong"),
        [(r["case"], r["kind"], str(r["commands"]), f"{r['seconds']:.0f}", "; ".join(r["wrong"])) for r in rows],
    )
    solved = [row for row in rows if not row["wrong"]]
    at_once = sum(row["commands"] == 1 for row in solved)
    print(f"{len(solved)} of {len(rows)} solved, {at_once} of them with one command")
    return int(len(solved) < len(rows))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these cases")
    parser.add_argument("--jobs", type=int, metavar="N", default=1, help="triages at once")
    parser.add_argument("--results", type=Path, metavar="FILE", default=Path("followed.jsonl"))
    return parser.parse_args()


def _row(of: Exported, folder: Path) -> dict[str, Any]:
    folder.mkdir(parents=True)
    outcome, commands = follow(of, folder, score.in_a_process)
    judgement = score.judge(of, outcome)
    kind = outcome.verdict["kind"] if outcome.verdict else f"exit code {outcome.returncode}"
    wrong = [*judgement.verdict, *judgement.origin]
    print(f"{of.case.name}: {kind}, {commands} commands {'; '.join(wrong)}", file=sys.stderr, flush=True)
    return {
        "kind": kind,
        "commands": commands,
        "seconds": outcome.seconds,
        "wrong": wrong,
    }


def follow(of: Exported, folder: Path, execute: Execute) -> tuple[Outcome, int]:
    """The last outcome, with the seconds of all commands, and how many commands there were."""
    unaided = replace(of, case=replace(of.case, options=()))
    outcome = score.triage(unaided, folder, execute)
    seconds, commands = outcome.seconds, 1
    while commands < _COMMANDS and (words := next_words(outcome.verdict)):
        outcome = score.triage(unaided, folder, partial(_instead, execute, [*words, "--json"]))
        seconds += outcome.seconds
        commands += 1
    return replace(outcome, seconds=seconds), commands


def _instead(execute: Execute, words: Sequence[str], _: Sequence[str], folder: Path) -> tuple[int, str, str]:
    return execute(words, folder)


def next_words(verdict: Mapping[str, Any] | None) -> list[str]:
    """The arguments of the triage that a verdict names where it is open; [] if none.

    It is where nothing was found, or only what may be, or where nothing confirms it and something contradicts it.
    """
    if verdict is None:
        return []
    is_doubtful = not verdict["confirmed_by"] and (verdict["possible"] or verdict["contradicted_by"])
    if verdict["kind"] not in _OPEN and not is_doubtful:
        return []
    named = (shlex.split(command) for command in verdict["next"])
    return next((words[1:] for words in named if words[:2] == ["aoti-debug", "triage"]), [])


if __name__ == "__main__":
    sys.exit(main())

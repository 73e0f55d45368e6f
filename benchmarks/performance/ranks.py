"""Lets one of four ranks fail, again and again, and counts how often the first failing rank and its launch are named.

usage: python -m benchmarks.performance.ranks [--runs N] [--folder DIR] [--only failures|cost]

Each run is a launch of torchrun's agent (torch.distributed.launcher) with four ranks of gloo that call one instrumented
package; a rank, a call and one of four failures (SIGSEGV, an exception, a hang, SIGKILL to itself) are drawn with a
fixed seed. Ranks are forked from this process, which has imported torch. A hang ends when gloo gives up. If it does so
before a rank has called the package, on a busy machine, the launch is made once more, and that is printed.

Cost: two ranks call the package many times; what a call takes is compared with that of the same two processes without
RANK in their environment, whose runs are single ones.

Prints two Markdown tables. Exits with 1 if a run was not attributed to the rank and launch that failed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import checkout

os.environ["PYTHONPATH"] = checkout.python_path()  # of the process that lowers
RANKS = 4
CALLS = 4
FAILURES = ("fault", "throw", "hang", "kill")
PATIENCE = "10"  # seconds after which gloo gives up
ATTEMPTS = 3  # launches in which gloo gave up while the ranks joined, so that nothing failed as planned
OPERATOR = "aotidebugranks::act.default"
COST_CALLS = 4000
COST_ROUNDS = 8


@dataclass(frozen=True)
class Trial:
    """One launch of ranks.

    Attributes:
        rank, call: where it fails.
        failure: one of FAILURES.
        named: what the analysis says: "rank 2 in 1.2 OPERATOR".
        is_right: it is the rank and the launch that failed.
        seconds: of the analysis.
    """

    rank: int
    call: int
    failure: str
    named: str
    is_right: bool
    seconds: float


def build(folder: Path) -> Path:
    """The instrumented package, which `folder` keeps from one benchmark to the next."""
    package = folder / "ranks.instrumented.pt2"
    if not package.exists():
        import torch

        from aoti_debug.instrument.builder.build import build as build_package
        from tests import rank_model

        torch.export.save(rank_model.program(), folder / "ranks.pt2")
        build_package(folder / "ranks.pt2", output=package, imports=("tests.rank_model",))
        rank_model.leave()
    return package


def rank_main(package: str, calls: int, record: str = "") -> None:
    """What a rank does: it joins the others and calls the package.

    Args:
        record: a file for the seconds that each call took; "": the run is one of many ranks, and nothing is written.
    """
    import torch

    from tests import rank_model

    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # as in a process of its own: a fork inherits the agent's handler
    torch.set_num_threads(1)
    rank_model.join()
    number = os.environ["RANK"]
    if record.endswith("single"):
        del os.environ["RANK"]
    model = torch._inductor.aoti_load_package(package)
    x = torch.linspace(-1, 1, 32).reshape(4, 8)
    _wait_for_others()
    durations = []
    with torch.no_grad():
        for _ in range(calls):
            began = time.perf_counter()
            model(x)
            durations.append(time.perf_counter() - began)
    if record:
        Path(f"{record}.{number}").write_text(json.dumps(durations))
    torch.distributed.destroy_process_group()


def _wait_for_others() -> None:
    """Waits until every rank has loaded the package: on a busy machine, gloo would give up before the first call."""
    import torch.distributed as dist

    store = dist.distributed_c10d._get_default_store()
    store.add("loaded", 1)
    while store.add("loaded", 0) < dist.get_world_size():
        time.sleep(0.01)


def launch(ranks: int, run_id: str, main: Callable[..., None], *arguments: object) -> None:
    """Runs ranks under torchrun's agent until all have ended; their failures are not this process's."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        1, 1, ranks, run_id=run_id, rdzv_backend="c10d", rdzv_endpoint="localhost:0", start_method="fork",
        max_restarts=0, monitor_interval=0.1,
    )  # fmt: skip
    try:
        elastic_launch(config, main)(*arguments)
    except ChildFailedError:
        return


def try_failure(package: Path, folder: Path, number: int, draw: random.Random) -> Trial:
    """Lets one rank fail and asks who it was."""
    from aoti_debug.runs.ranks.ranks_analysis import analyse
    from aoti_debug.runs.ranks.ranks_run import open_ranks

    rank, call, failure = draw.randrange(RANKS), draw.randrange(CALLS), FAILURES[number % len(FAILURES)]
    base = folder / f"trial-{number}"
    os.environ |= {"AOTI_DEBUG_DIR": str(base), "RANK_FAULT": f"{rank}:{call}:{failure}"}
    for attempt in range(ATTEMPTS):
        launch(RANKS, f"trial-{number}-{attempt}", rank_main, str(package), CALLS)
        if base.exists():
            break
        print(f"trial {number}: gloo gave up before a rank had called the package; once more", file=sys.stderr)
    began = time.perf_counter()
    found = analyse(open_ranks((base / "latest").resolve())).failure
    seconds = time.perf_counter() - began
    if found is None:
        return Trial(rank, call, failure, "none", is_right=False, seconds=seconds)
    launch_ = found.launch
    named = f"rank {found.rank.number} in {launch_ and launch_.id} {launch_ and launch_.kernel}"
    is_launch = launch_ is not None and (launch_.key.call, launch_.kernel) == (call, OPERATOR)
    return Trial(rank, call, failure, named, found.rank.number == rank and is_launch, seconds)


def failures_table(trials: list[Trial]) -> list[str]:
    """The table of failures, in lines."""
    of = defaultdict(list)
    for trial in trials:
        of[trial.failure].append(trial)
    lines = ["| failure | runs | rank and launch named | analysis |", "|---|---|---|---|"]
    for name, some in [*of.items(), ("all", trials)]:
        milliseconds = 1e3 * statistics.median(trial.seconds for trial in some)
        lines.append(f"| {name} | {len(some)} | {sum(t.is_right for t in some)} | {milliseconds:.1f} ms |")
    return lines


def measure_cost(package: Path, folder: Path) -> list[str]:
    """The table of costs, in lines: medians of calls, and the first call, which makes the run directory."""
    os.environ["RANK_FAULT"] = "-1:0:"
    later: dict[str, list[float]] = defaultdict(list)
    first: dict[str, list[float]] = defaultdict(list)
    for round_ in range(COST_ROUNDS):
        kinds = ("single", "ranks") if round_ % 2 else ("ranks", "single")
        for kind in kinds:
            os.environ["AOTI_DEBUG_DIR"] = str(folder / f"cost-{round_}-{kind}")
            record = str(folder / f"cost-{round_}-{kind}.{kind}")
            launch(2, f"cost-{round_}-{kind}", rank_main, str(package), COST_CALLS, record)
            durations = [json.loads(Path(f"{record}.{rank}").read_text()) for rank in range(2)]
            later[kind].append(statistics.median(durations[0][10:]))
            first[kind].append(max(seconds[0] for seconds in durations))
    lines = ["| | single runs | a run of ranks | ratio |", "|---|---|---|---|"]
    for name, times, unit, scale in (("a call", later, "µs", 1e6), ("the first call", first, "ms", 1e3)):
        single, ranks = (statistics.median(times[kind]) for kind in ("single", "ranks"))
        ratios = sorted(b / a for a, b in zip(times["single"], times["ranks"], strict=True))
        spread = f"{ratios[0]:.3f} to {ratios[-1]:.3f}"
        lines.append(
            f"| {name} | {single * scale:.1f} {unit} | {ranks * scale:.1f} {unit} | "
            f"{statistics.median(ratios):.3f} ({spread}) |"
        )
    return lines


def main() -> int:
    """Prints the tables; 1 if a failure was not attributed to its rank and launch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--folder", type=Path, help="where the package is kept and runs are made")
    parser.add_argument("--only", choices=("failures", "cost"))
    options = parser.parse_args()
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="aoti-debug-ranks-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    package = build(folder)
    import torch._inductor.package
    import torch.distributed.launcher.api  # noqa: F401 - before the forks

    os.environ |= {"OMP_NUM_THREADS": "1", "AOTI_DEBUG_PRINT": "none", "RANK_TIMEOUT": PATIENCE}
    work = Path(tempfile.mkdtemp(prefix="runs-", dir=folder))
    trials: list[Trial] = []
    if options.only != "cost":
        draw = random.Random(0)
        for number in range(options.runs):
            trials.append(try_failure(package, work, number, draw))
            trial = trials[-1]
            if not trial.is_right:
                print(f"trial {number}: {trial.failure} of rank {trial.rank}, call {trial.call}: {trial.named}")
        print("\n".join(failures_table(trials)), flush=True)
    if options.only != "failures":
        print("\n".join(["", *measure_cost(package, work)]), flush=True)
    return 0 if all(trial.is_right for trial in trials) else 1


if __name__ == "__main__":
    sys.exit(main())

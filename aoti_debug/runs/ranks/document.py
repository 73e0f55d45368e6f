"""A run of ranks as one JSON object (docs/ranks.schema.json)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aoti_debug.base.machine.files import json_data
from aoti_debug.runs.ranks.ranks_analysis import RanksAnalysis
from aoti_debug.runs.ranks.ranks_run import RankRun
from aoti_debug.runs.show import text

FORMAT = 1


def document(analysis: RanksAnalysis) -> dict[str, Any]:
    """The JSON object of a run of ranks."""
    run, failure, agreement = analysis.run, analysis.failure, analysis.agreement
    return {
        "format": FORMAT,
        "run": run.path.name,
        "path": str(run.path),
        "world_size": run.info.world_size,
        "run_id": run.info.run_id,
        "restart": run.info.restart,
        "started": run.info.started,
        "ranks": [_rank(rank, analysis) for rank in run.ranks],
        "first_failure": None
        if failure is None
        else {
            "rank": failure.rank.number,
            "launch": failure.launch and failure.launch.id,
            "kernel": failure.launch and failure.launch.kernel,
            "what": failure.what,
            "why": failure.why,
            "certain": failure.is_certain,
        },
        "waits": [
            {
                "launch": wait.launch.id,
                "kernel": wait.launch.kernel,
                "ranks": list(wait.ranks),
                "missing": list(wait.missing),
            }
            for wait in analysis.waits
        ],
        "partings": [
            {**json_data.to_data(parting), "missing": _kernels(parting.missing), "extra": _kernels(parting.extra)}
            for parting in analysis.partings
        ],
        "agreement": {
            "compared": agreement.compared,
            "sharded": list(agreement.sharded),
            "disagreements": [
                {
                    "subject": one.subject.value,
                    "name": one.name,
                    "launch": one.launch.partition(" ")[0],
                    "kernel": one.launch.partition(" ")[2],
                    "groups": [list(group) for group in one.groups],
                    "odd": list(one.odd),
                    "times": one.times,
                }
                for one in agreement.disagreements
            ],
        },
        "clocks": [json_data.to_data(offset) for offset in analysis.clocks.offsets.values()],
    }


def _kernels(kernels: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{"kernel": kernel, "times": times} for kernel, times in kernels.items()]


def _rank(rank: RankRun, analysis: RanksAnalysis) -> dict[str, Any]:
    progress = rank.progress
    launch = progress.current or progress.last
    return {
        "rank": rank.number,
        "path": None if rank.diagnosed is None else str(rank.path),
        "machine": rank.machine or None,
        "end": progress.end.value,
        "what": progress.what or None,
        "reason": rank.reason or None,
        "calls": progress.calls,
        "launch": launch and launch.id,
        "kernel": launch and launch.kernel,
        "within": progress.current is not None,
        "waits": progress.is_in_collective or (progress.outside is not None and progress.outside.is_collective),
        "outside": progress.outside and progress.outside.function,
        "model_line": text.model_line(launch.site.provenance) if launch else None,
        "ended": None if progress.unix_ns is None else analysis.clocks.common(rank, progress.unix_ns) / 1e9,
        "ended_is_seen": progress.is_seen,
    }

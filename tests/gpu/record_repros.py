"""Records the small CUDA runs of tests/recorded: `python -m tests.gpu.record_repros [CASE…]` on a CUDA device.

A run is kept with the tensors of a few launches only; its journal and manifest are whole.
"""

from __future__ import annotations

import os
import sys
import tarfile
import tempfile
from collections.abc import Collection
from pathlib import Path

from tests.paths import RECORDED, ROOT

# Case of cuda_models.py -> what the kernels' names begin with whose launches are kept; the first of each.
KEPT = {
    "mixed": (
        "triton_poi_fused_gt_sum",
        "triton_per_fused_addmm_gelu_native_layer_norm",
        "triton_red_fused_sum",
        "triton_per_fused_sort",
        "scaled_add_kernel",
    ),
    "reductions": ("tuned_kernel", "triton_red_fused__softmax", "triton_per_fused_gelu_sum"),
    "two_specialisations": ("scaled_add_kernel_0", "scaled_add_kernel_1"),
}
FILES = ("run.json", "manifest.json", "journal.bin")


def trim(run: Path, launches: Collection[str], target: Path) -> None:
    """Packs a run directory with the tensors of these launches only ("0.3"). Equal runs give equal bytes inside."""
    folders = {f"{int(launch):04}_" for launch in (id_.partition(".")[2] for id_ in launches)}
    tensors = [
        path
        for folder in sorted((run / "tensors" / "0").iterdir())
        if folder.name[:5] in folders
        for path in sorted(folder.iterdir())
    ]
    with tarfile.open(target, "w:xz") as archive:
        for path in [*(run / name for name in FILES), *tensors]:
            archive.add(path, str(path.relative_to(run)), filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def kept(run: Path, prefixes: Collection[str]) -> list[str]:
    """The first launch of each kernel that is kept."""
    from aoti_debug.runs.rundir.run_directory import open_run

    launches = open_run(run).launches
    found = {prefix: next((x.id for x in launches if x.kernel.startswith(prefix)), "") for prefix in prefixes}
    missing = [prefix for prefix, id_ in found.items() if not id_]
    if missing:
        raise SystemExit(f"no launch of {', '.join(missing)} among {', '.join(x.kernel for x in launches)}")
    return list(found.values())


def record(name: str, folder: Path) -> Path:
    """Builds a case and runs it at level 1; the run directory."""
    import torch

    from aoti_debug.instrument.builder import build as builder
    from aoti_debug.runs.run import runner
    from aoti_debug.runs.run.options import RunOptions
    from tests.gpu import cuda_models

    case = cuda_models.case(name)
    program, package = folder / "model.pt2", folder / "model.dbg.pt2"
    torch.export.save(case.export(), program)
    builder.build(
        program,
        output=package,
        level=1,
        imports=["tests.gpu.cuda_models"],
        inductor_configs=dict(case.inductor_configs),
    )
    return runner.run(RunOptions(package, level=1, out=folder / "runs")).run.path


def main() -> None:
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    RECORDED.mkdir(exist_ok=True)
    for name in sys.argv[1:] or KEPT:
        with tempfile.TemporaryDirectory() as folder:
            run = record(name, Path(folder))
            target = RECORDED / f"{name}.tar.xz"
            trim(run, kept(run, KEPT[name]), target)
            print(f"{target}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()

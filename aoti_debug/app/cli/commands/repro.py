"""`aoti-debug repro`: a folder that replays one kernel launch alone."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aoti_debug.app.cli import options
from aoti_debug.app.cli.lines import print_json, print_lines
from aoti_debug.app.cli.ranks import one_rank
from aoti_debug.base import wording
from aoti_debug.base.errors import EXIT_CLEAN
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.repro.repro import Repro, ReproOptions, write_repro
from aoti_debug.runs.rundir import recorded_runs

if TYPE_CHECKING:
    from aoti_debug.compare.fx_repro.fx_repro import FxRepro


FORMAT = 1


def _bytes(context: click.Context, parameter: click.Parameter, text: str) -> int:
    match = re.fullmatch(r"(\d+)([KMG]?)", text.strip(), re.IGNORECASE)
    if match is None:
        raise click.BadParameter(f"{text} is not a number of bytes, such as 4096, 64K or 2M")
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2].upper()]


@click.command("repro")
@click.argument("kernel", metavar="[LAUNCH|KERNEL]", default="", shell_complete=options.completing("launches"))
@click.option(
    "--launch",
    metavar="CALL.LAUNCH",
    shell_complete=options.completing("launches"),
    help="Which launch of the kernel.  [default: the one that the fault of the run is attributed to, else the first]",
)
@options.run
@click.option(
    "-o",
    "--output",
    metavar="DIR",
    type=options.FilePath(),
    help=f"What to write.  [default: {ResultKind.REPROS.default}/repro_KERNEL_LAUNCH, with .py if it is a single file]",
)
@click.option("--single-file", is_flag=True, help="Write one .py that contains the tensors, for an issue tracker.")
@click.option(
    "--max-size",
    metavar="BYTES",
    default="1M",
    show_default=True,
    callback=_bytes,
    help="How much a single file may contain, compressed; takes K, M and G.",
)
@click.option("--fx", is_flag=True, help="Write the part of the program's graph that it computes, as an FX module.")
@click.option("--minifier", is_flag=True, help="As --fx, with the script that torch's minifier starts from.")
@click.option("--issue", is_flag=True, help="As --fx, with an issue text for PyTorch: script, observed, versions.")
@click.option("--force", is_flag=True, help="Replace an earlier repro.")
@options.trust
@options.json_output("repro")
def command(
    *,
    kernel: str,
    launch: str | None,
    run: str | None,
    output: Path | None,
    single_file: bool,
    max_size: int,
    fx: bool,
    minifier: bool,
    issue: bool,
    force: bool,
    trusted: bool,
    as_json: bool,
) -> None:
    """Write a folder that replays one launch alone, from its saved tensors.

    The launch is named by what `aoti-debug show` prints: LAUNCH (0.3, or 3 for short), KERNEL, the beginning of its
    name or a pattern, or a line of the model (model.py:23). Without it, it is the one that the run's fault, or the
    finding of the triage, is laid to. The script needs torch, safetensors and numpy, for a Triton kernel
    also triton, for a C++ kernel a compiler; it does not need aoti-debug. If the run saved no tensors of the launch,
    its package is run again at level 1 for that launch. Of a run of several ranks, the first that failed counts.

    \b
    aoti-debug repro 0.3 -o here
    python here/repro.py             # compares with the recorded outputs
    python here/repro.py --sanitize  # finds out-of-bounds accesses
    python here/repro.py --help      # --repeat, --poison, --bench, --reduce, ...

    The script's exit codes: 0 as recorded, 10 differs, 11 a fault, 12 the recorded fault was not reproduced.

    With --fx it is not the kernel that is replayed, but the operators of the program that the kernel stands for: in
    eager, or with --compile and --aoti of the script, compiled anew. Exit codes: 0 as recorded, 10 not as recorded.
    """
    one_file = max_size if single_file else None
    chosen = ReproOptions(
        kernel or _of_finding(run, launch),
        one_rank(run),
        launch=launch,
        output=output,
        one_file=one_file,
        trusted=trusted,
        force=force,
    )
    asked = {"--fx": fx, "--minifier": minifier, "--issue": issue}
    if not any(asked.values()):
        written = write_repro(chosen, _say)
        if as_json:
            print_json(document(written))
        else:
            print_lines(str(written).splitlines())
        return
    from aoti_debug.compare.fx_repro.fx_repro import (  # all that compares launches with the program
        FxExtra,
        write_fx_repro,
    )

    graph = write_fx_repro(chosen, [extra for extra in FxExtra if asked[extra.value]], _say)
    if as_json:
        print_json(fx_document(graph))
    else:
        print_lines(fx_lines(graph))


def document(written: Repro) -> dict[str, Any]:
    """A repro as a JSON object (docs/repro.schema.json)."""
    return {
        "format": FORMAT,
        "path": str(written.path.absolute()),
        "script": str(written.script.absolute()),
        "launch": written.launch,
        "kernel": written.kernel,
        "run": str(written.run),
        "tensors": written.tensors,
        "bytes": written.bytes,
        "fault": written.fault or None,
        "graph": None,
    }


def fx_document(written: FxRepro) -> dict[str, Any]:
    """A repro of the program's graph as the same JSON object."""
    return {
        "format": FORMAT,
        "path": str(written.path.absolute()),
        "script": str(written.files[0].absolute()),
        "launch": written.launch,
        "kernel": None,
        "run": str(written.run),
        "tensors": written.inputs + written.outputs,
        "bytes": None,
        "fault": None,
        "graph": {
            "operators": written.calls,
            "as_recorded": written.code == EXIT_CLEAN,
            "printed": list(written.lines),
            "files": [str(path.absolute()) for path in written.files],
        },
    }


def _of_finding(run: str | None, launch: str | None) -> str:
    """The launch that the finding of a triage is laid to; "" for a run, or where another launch is chosen."""
    found = recorded_runs.find(run)
    if launch is not None or found is None or not found.is_of_triage:
        return ""
    from aoti_debug.triage.results import triage_directory  # a repro of a run does without

    return triage_directory.launch_of_finding(run)


def _say(text: str) -> None:
    print_lines([text], err=True)


def fx_lines(written: FxRepro) -> list[str]:
    """The FX repro that was written, what its script printed, and how to run it."""
    tensors = f"{wording.pluralize(written.inputs, 'input')}, {wording.pluralize(written.outputs, 'output')}"
    lines = [f"{written.path}", f"  launch {written.launch}: {wording.pluralize(written.calls, 'operator')}, {tensors}"]
    lines += [f"  from {written.run.name}; in eager:", *(f"    {line}" for line in written.lines)]
    commands = (shlex.join(["python" if path.suffix == ".py" else "less", str(path)]) for path in written.files)
    return [*lines, *(f"next: {command}" for command in commands)]

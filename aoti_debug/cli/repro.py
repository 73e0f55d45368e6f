"""`aoti-debug repro`: a folder that replays one kernel launch alone."""

from __future__ import annotations

from pathlib import Path

import click

from aoti_debug.repro import write_repro


@click.command("repro")
@click.argument("kernel")
@click.option(
    "--launch",
    metavar="CALL.LAUNCH",
    help="Which launch of the kernel.  [default: the one that the run's fault is laid to, else the first]",
)
@click.option("--run", "run", metavar="DIR", help="A run directory, or its name.  [default: the newest run]")
@click.option(
    "-o",
    "--output",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="The folder to write.  [default: repro_KERNEL_LAUNCH]",
)
def command(kernel: str, launch: str | None, run: str | None, output: Path | None) -> None:
    """Write a folder that replays one launch of KERNEL alone, from its saved tensors.

    KERNEL is a name as `aoti-debug show` prints it. The folder needs torch, safetensors and numpy, and nothing of
    aoti-debug. Where the run saved no tensors of the launch, its package is run again at level 1 for that launch.

    \b
    aoti-debug repro cpp_fused_relu_1
    python repro_cpp_fused_relu_1_0.3/repro.py

    The script's exit codes: 0 as recorded, 10 differs, 11 the recorded fault came, 12 it did not come.
    """
    written = write_repro(kernel, run=run, launch=launch, output=output, say=lambda text: click.echo(text, err=True))
    click.echo(f"{written.folder}")
    what = f"launch {written.launch} of {written.kernel}, {written.tensors} tensors, {_size(written.bytes)}"
    click.echo(f"  {what}, from {written.run.name}")
    if written.fault:
        click.echo(f"  it ended in {written.fault}")
    click.echo(f"next: python {written.folder / 'repro.py'}")


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"

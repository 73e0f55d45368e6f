"""`aoti-debug build`: makes an instrumented package of an exported program or a compiled package."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from aoti_debug.app.cli import options
from aoti_debug.app.cli.lines import is_live, print_json, print_lines, width
from aoti_debug.app.cli.options import modules_and_lines
from aoti_debug.app.cli.run_lines import unmatched_warning
from aoti_debug.base import terminal_cells, wording
from aoti_debug.base.machine.steps import LastDurations
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.instrument.builder import build as builder
from aoti_debug.instrument.builder import join_program
from aoti_debug.instrument.builder.build import BuildOptions, BuildSummary
from aoti_debug.instrument.frontend.protocol.caller_settings import MULTI_ARCH
from aoti_debug.instrument.frontend.protocol.messages import Autotuning
from aoti_debug.package import recording_settings
from aoti_debug.package.launch_traits import overlap_remark
from aoti_debug.package.manifest import Form, Manifest, PackageOrigin, Unrecognised
from aoti_debug.package.weights_file import WeightsPlace

FORMAT = 1
ONE_GPU = f"the GPU of this machine alone: {MULTI_ARCH} is left out"
LABEL = 18  # columns
MAX_UNRECOGNISED = 12  # calls
ONLY_MODEL = "model"  # its name in a package with one model
NUMBERS = (Form.SCALAR, Form.SCALAR_REF, Form.INTS, Form.STRING)
STAGES = {
    "lower": "lowering the model",
    "unpack": "unpacking the package",
    "exported": "lowering the exported program",
    "instrument": "finding launch sites",
    "compile": "compiling",
    "link": "linking",
    "inputs": "generating inputs",
    "package": "writing the package",
}


@click.command("build")
@click.argument("model", metavar="MODEL.pt2", type=options.FilePath())
@click.option(
    "--level",
    metavar="LEVEL",
    type=options.LevelType(),
    default=3,
    show_default=True,
    help=f"The level of a run that does not set AOTI_DEBUG_LEVEL: {recording_settings.MEANINGS}.",
)
@options.filters("Print and save only kernels whose name matches: 'triton_*', '!cpp_fused_*'.")
@modules_and_lines("Print and save only launches")
@click.option(
    "-o", "--output", type=options.FilePath(), help="The package to write.  [default: MODEL.instrumented.pt2]"
)
@click.option(
    "--inputs",
    type=options.FilePath(),
    help="Inputs (.pt or .safetensors) to embed instead of the program's example inputs.",
)
@click.option(
    "--against",
    metavar="PACKAGE.pt2",
    type=options.FilePath(),
    help="Of an exported program: list which kernels equal those of this compiled package.",
)
@options.exported
@click.option(
    "--random-inputs", metavar="SEED", type=int, help="Embed generated inputs that fit the model, for a first look."
)
@options.model_name
@options.inductor_configs
@options.user_code
@click.option(
    "--weights",
    type=click.Choice([place.value for place in WeightsPlace]),
    default=WeightsPlace.INSIDE.value,
    show_default=True,
    help="Of an exported program: copy its weights into the package, or let the package refer to MODEL.pt2; it can then"
    " be run by this tool on this machine only.",
)
@click.option(
    "--keep-sources",
    metavar="DIR",
    type=options.FilePath(),
    help="Keep the generated C++ in this directory, original and instrumented.",
)
@options.json_output("build")
def command(
    *,
    model: Path,
    level: int,
    filters: tuple[str, ...],
    modules: tuple[str, ...],
    lines: tuple[str, ...],
    output: Path | None,
    inputs: Path | None,
    against: Path | None,
    exported: Path | None,
    random_inputs: int | None,
    name: str,
    configs: tuple[str, ...],
    user_code: UserCode,
    weights: str,
    keep_sources: Path | None,
    as_json: bool,
) -> None:
    """Turn MODEL.pt2 into an instrumented package.

    MODEL.pt2 is an exported program, or a package that torch has compiled. The kernels, kernel binaries and weights of
    a compiled package stay the same, byte for byte: only the code that launches them is compiled again.

    The package runs wherever the original package would, with or without aoti-debug; level and filter can be changed
    at run time with AOTI_DEBUG_LEVEL and AOTI_DEBUG_FILTER.
    """
    chosen = BuildOptions(
        program=model,
        level=level,
        filters=filters,
        modules=modules,
        lines=lines,
        output=output,
        inputs=inputs,
        inductor_configs=options.parse_configs(configs),
        user_code=user_code,
        keep_sources=keep_sources,
        model=name,
        against=against,
        exported=exported,
        random_inputs=random_inputs,
        weights=WeightsPlace(weights),
    )
    with _progress(LastDurations("build", str(model.resolve()))) as progress:
        summary = builder.build_report(chosen, progress)
    if as_json:
        print_json(document(summary))
    else:
        print_lines(describe(summary, width()))
    print_lines(unmatched_warning(summary.unmatched), err=True)


def document(summary: BuildSummary) -> dict[str, Any]:
    """A build as a JSON object (docs/build.schema.json)."""
    manifest = summary.manifest
    return {
        "format": FORMAT,
        "package": str(summary.package.absolute()),
        "bytes": summary.bytes,
        "built_from": manifest.source.value,
        "model": manifest.model,
        "device": manifest.device,
        "torch_version": manifest.torch_version,
        "level": recording_settings.written_level(manifest.level),
        "sites": [{"kernel": site.kernel, "kind": site.kind.value} for site in manifest.sites],
        "unparsed": [
            {"line": call.line, "function": call.function, "text": call.text, "reason": call.reason or None}
            for call in manifest.unrecognised
        ],
        "joined_sites": summary.joined_sites,
        "missing_inputs": summary.missing_inputs_reason or None,
        "unmatched": [pattern.pattern for pattern in summary.unmatched],
        "seconds": summary.seconds,
        "stages": dict(summary.stages),
    }


def describe(summary: BuildSummary, columns: int) -> list[str]:
    """The summary of a build in lines: launch sites by kind, arguments, unrecognised calls, size, time."""
    manifest = summary.manifest
    args = [arg for site in manifest.sites for arg in site.args]
    scalars = sum(arg.form in NUMBERS for arg in args)
    opaque = sum(arg.form is Form.OPAQUE for arg in args)
    kinds = Counter(site.kind.value for site in manifest.sites)
    unrecognised = manifest.unrecognised
    hidden = len(unrecognised) - MAX_UNRECOGNISED
    missing, chosen = summary.missing_inputs_reason, recording_settings.baked(manifest)
    rows = [
        ("built from", built_from(manifest)),
        *([("kernels", str(manifest.sameness))] if manifest.sameness else []),
        *([("weights", f"stay in {manifest.weights.path}")] if manifest.weights else []),
        *([("autotuning", text)] if (text := _autotuning(summary.autotuning)) else []),
        *([("compiled by", manifest.other_torch)] if manifest.other_torch else []),
        *([("compiled for", ONE_GPU)] if summary.is_for_one_gpu else []),
        *([("model lines", text)] if (text := _model_lines(summary)) else []),
        ("launch sites", f"{len(manifest.sites)}: {', '.join(f'{n} {kind}' for kind, n in kinds.most_common())}"),
        (
            "arguments",
            f"{wording.pluralize(len(args) - scalars - opaque, 'tensor')}, {wording.pluralize(scalars, 'scalar')}",
        ),
        ("unparsed calls", str(len(unrecognised) or "none")),
        *(("", _unrecognised(call)) for call in unrecognised[:MAX_UNRECOGNISED]),
        *([("", f"and {hidden} more, in the package's manifest")] if hidden > 0 else []),
        *([("overlap", text)] if (text := overlap_remark(manifest)) else []),
        *([("layouts", f"not checked everywhere: {manifest.without_promises}")] if manifest.without_promises else []),
        *([("weights", f"none: {manifest.without_weights}")] if manifest.without_weights else []),
        ("level", f"{recording_settings.written_level(manifest.level)}{f', {chosen}' if chosen else ''}"),
        ("inputs", f"none: {missing}; the model takes" if missing else "embedded"),
        *(("", line) for line in (summary.signature.lines() if missing else ())),
        ("device", f"{manifest.device}, torch {manifest.torch_version}"),
        ("size", wording.byte_size(summary.bytes)),
        ("time", f"{summary.seconds:.1f} s: {', '.join(f'{name} {s:.1f}' for name, s in summary.stages.items())}"),
    ]
    rows += _against(summary)
    lines = [str(summary.package)]
    for label, text in rows:
        lines += _wrapped(label, text, columns)
    options_needed = " --inputs FILE.pt (or --random-inputs 0)" if summary.missing_inputs_reason else ""
    return [*lines, f"next: aoti-debug run {shlex.quote(str(summary.package))}{options_needed}"]


def _unrecognised(call: Unrecognised) -> str:
    why = f"{call.reason} is not read: " if call.reason else ""
    return f"line {call.line} in {call.function}: {why}{call.text}"


def _wrapped(label: str, text: str, columns: int) -> list[str]:
    first, *others = terminal_cells.wrapped(text, columns, " " * LABEL) or [""]
    return [f"  {label}".ljust(LABEL) + first[LABEL:], *others]


def _model_lines(summary: BuildSummary) -> str:
    """The origin of the model lines; "" if Inductor recorded them."""
    sites = summary.manifest.sites
    if summary.joined_sites == 0:
        return "none: no kernel of the exported program is in the package; was it compiled from another program?"
    if summary.joined_sites is not None:
        total = wording.pluralize(len(sites), "launch site")
        return f"{summary.joined_sites} of {total}, joined by kernel source and order from the program"
    return join_program.NO_MODEL_LINES if join_program.lacks_model_lines(summary.manifest) else ""


def _against(summary: BuildSummary) -> list[tuple[str, str]]:
    compared = summary.comparison
    if compared is None:
        return []
    missing = [f"{name}: only in {compared.package.name}" for name in compared.missing]
    return [
        ("against", str(compared)),
        *(("", f"{kernel.kernel}: {kernel.reason}") for kernel in compared.different),
        *(("", line) for line in missing),
    ]


def _autotuning(found: Autotuning) -> str:
    """The number of kernels by where their configurations come from; "" without such kernels."""
    counts = (
        (found.users, "as in your Inductor cache"),
        (found.earlier, "as in an earlier build"),
        (found.measured, "measured now"),
    )
    return ", ".join(f"{wording.pluralize(count, 'kernel')} {what}" for count, what in counts if count)


def built_from(manifest: Manifest) -> str:
    """The kind of the original, and which of its models if it has several."""
    name = f", model {manifest.model}" if manifest.model != ONLY_MODEL else ""
    remark = ": its C++ kernels are compiled here" if manifest.source is PackageOrigin.UNCOMPILED else ""
    return f"{manifest.source.value}{name}{remark}"


@contextmanager
def _progress(last: LastDurations) -> Iterator[builder.BuildProgress]:
    """Reports the stages on stderr: a live line on a terminal, otherwise a line for each finished stage."""
    console = Console(stderr=True, highlight=False)
    if not is_live(console):

        def report(stage: str, seconds: float | None) -> None:
            if seconds is not None:
                last.remember(stage, seconds)
                console.print(f"{STAGES[stage]}: {seconds:.1f} s", soft_wrap=True)

        yield report
        return
    columns = (SpinnerColumn(finished_text="✓"), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        tasks = {
            stage: bar.add_task(text + last.hint(stage), total=1, start=False, visible=False)
            for stage, text in STAGES.items()
        }

        def progress(stage: str, seconds: float | None) -> None:
            if seconds is None:
                bar.start_task(tasks[stage])
                bar.update(tasks[stage], visible=True)
            else:
                last.remember(stage, seconds)
                bar.update(tasks[stage], completed=1)

        yield progress

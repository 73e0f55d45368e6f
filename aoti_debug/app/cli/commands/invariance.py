"""`aoti-debug invariance`: one sample alone and among others, bit for bit."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn

import click

from aoti_debug.app.cli import options
from aoti_debug.app.cli.lines import print_json, print_lines, show_page
from aoti_debug.app.cli.live_output import StepLines
from aoti_debug.base import wording
from aoti_debug.base.errors import EXIT_CLEAN, EXIT_FINDING, EXIT_INCOMPLETE, UsageError
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.steps import LastDurations
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.compare.invariance.fixed_batch import FixedBatchOptions, fixed_batch, fixed_document, fixed_lines
from aoti_debug.compare.invariance.invariance import SIZES, InvarianceOptions, invariance
from aoti_debug.compare.invariance.remedies import candidates, padding_price, try_remedies, untried
from aoti_debug.compare.invariance.text import MAX_LISTED, document, invariance_lines
from aoti_debug.compare.invariance.varied_inputs import BATCH, Others
from aoti_debug.compare.invariance.varying_launches import Invariance
from aoti_debug.package.pt2 import archive
from aoti_debug.package.pt2.archive import ArtifactKind
from aoti_debug.views.report import answer_page


@click.command("invariance")
@click.argument("model", metavar="MODEL.pt2", type=click.Path(path_type=Path))
@click.option(
    "--dim",
    metavar="DIM",
    default=BATCH,
    show_default=True,
    help="The size that varies: batch, length, an axis of an input as ids.1, or a symbol of the program as s77.",
)
@click.option(
    "--sizes",
    metavar="N,N",
    default=",".join(map(str, SIZES)),
    show_default=True,
    help="Its values. The sample is alone at the smallest one.",
)
@click.option(
    "--sample",
    metavar="ROW",
    default="",
    help="The row of the inputs that is the sample, or FIRST:END.  [default: 0; along another axis than the first, as "
    "many rows as the smallest size]",
)
@click.option(
    "--others",
    type=click.Choice([others.value for others in Others]),
    default=Others.GIVEN.value,
    show_default=True,
    help="Beside the sample: given rows of the inputs, elements drawn from them, zeros as padding, drawn elements "
    "with zeros in inputs that are masks, or small drawn elements.",
)
@click.option(
    "--fix",
    "fixes",
    is_flag=True,
    help="Of an exported program that varies: build it with settings and decompositions that may keep the bits equal, "
    "and see if they do.",
)
@click.option(
    "--fixed",
    is_flag=True,
    help="Of a model whose batch is fixed: compare the sample's outputs at other places of the batch, and among other "
    "values.",
)
@options.inputs("the embedded ones")
@options.random_inputs()
@options.inductor_configs
@options.user_code
@options.out(ResultKind.DIFFS, "the runs")
@options.report_page
@click.option("--all", "show_all", is_flag=True, help="List every launch.")
@options.json_output("invariance", " With --fixed it is another one: invariance-fixed.")
@click.pass_context
def command(
    context: click.Context,
    *,
    model: Path,
    dim: str,
    sizes: str,
    sample: str,
    others: str,
    fixes: bool,
    fixed: bool,
    inputs: Path | None,
    random_inputs: int | None,
    configs: tuple[str, ...],
    user_code: UserCode,
    out: Path,
    with_report: bool,
    opens: bool,
    show_all: bool,
    as_json: bool,
) -> None:
    """Has a sample the same bits alone and among others? Find the launches in which they begin to differ.

    MODEL.pt2 is an exported program, a compiled or an instrumented package with a size that is not fixed. One sample is
    run alone, and in larger batches at the first and at the last place. Launches are paired, and the sample's elements
    of all that they read and write are compared bit for bit. Exit code 1: a launch or an output has other bits for the
    sample; 8: the same as far as it is known.
    """
    if fixed:
        _fixed(context, user_code, as_json=as_json)
    kind = archive.inspect(model).kind
    if fixes and kind is not ArtifactKind.EXPORTED:
        raise UsageError(f"{model} cannot be built with other settings", hint="--fix takes an exported program")
    chosen = InvarianceOptions(
        model=model,
        dim=dim,
        sizes=parse_sizes(sizes),
        sample=parse_sample(sample),
        others=Others(others),
        inputs=inputs,
        random_inputs=random_inputs,
        inductor_configs=options.parse_configs(configs),
        out=out,
        user_code=user_code,
    )
    with StepLines(LastDurations("invariance", str(model.resolve()))) as progress:
        found = invariance(chosen, progress)
        padding = padding_price(found, chosen, progress)
        trials = try_remedies(found, chosen, progress) if fixes else ()
    answer_page.keep(answer_page.of_invariance(found, trials, padding, model.name), found.directory)
    if as_json:
        print_json(document(found, trials, padding))
    else:
        lines = invariance_lines(found, trials, padding, most=sys.maxsize if show_all else MAX_LISTED)
        print_lines(["", *lines, *advice(found, is_fixed=fixes, is_exported=kind is ArtifactKind.EXPORTED)])
    if with_report or opens:
        show_page(answer_page.write(found.directory), opens=opens, err=as_json)
    context.exit(exit_code(found))


_NOT_OF_FIXED = frozenset({"dim", "sizes", "others", "fixes", "with_report", "opens", "show_all"})


def _fixed(context: click.Context, user_code: UserCode, *, as_json: bool) -> NoReturn:
    """Answers for a model whose batch is fixed.

    Raises:
        UsageError: an option has no meaning there.
    """
    given = context.params
    others = [word for name, word in options.given(context).items() if name in _NOT_OF_FIXED]
    if others:
        raise UsageError(
            f"--fixed and {others[0]} exclude each other", hint="a fixed batch has one size, and no remedy"
        )
    sample = parse_sample(given["sample"]) or range(1)
    if len(sample) != 1:
        raise UsageError("--fixed takes one row", hint="--sample 0")
    chosen = FixedBatchOptions(
        models=(given["model"],),
        sample=sample.start,
        inputs=given["inputs"],
        random_inputs=given["random_inputs"],
        inductor_configs=options.parse_configs(given["configs"]),
        out=given["out"],
        user_code=user_code,
    )
    with StepLines(LastDurations("invariance", str(given["model"].resolve()))) as progress:
        found = fixed_batch(chosen, progress)
    if as_json:
        print_json(fixed_document(found))
    else:
        print_lines(["", *fixed_lines(found)])
    context.exit(found.exit_code)


def advice(found: Invariance, *, is_fixed: bool, is_exported: bool) -> list[str]:
    """The lines after the verdict: remedies to try, or that none is known."""
    sites, device = found.begin_sites, found.alone.run.manifest.device
    lines = []
    if names := untried(sites, device):
        lines.append(f"no remedy is known for {wording.join_truncated(list(names), 4)}: nothing is tried")
    if any(True for _ in candidates(sites, device)) and is_exported and not is_fixed:
        lines.append(f"next: {options.again_with('--fix')}")
    if found.mixes and not found.varied.is_batch and found.alone.surroundings.others is Others.GIVEN:
        lines.append(f"next: {options.again_with('--others', 'zeros')}")
    return lines


def exit_code(found: Invariance) -> int:
    """The exit code of `aoti-debug invariance`."""
    return EXIT_FINDING if found.is_finding else EXIT_CLEAN if found.is_complete else EXIT_INCOMPLETE


def parse_sizes(text: str) -> tuple[int, ...]:
    """Parses "1,4,16".

    Raises:
        UsageError: it is no list of sizes.
    """
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise UsageError(f"--sizes {text} is no list of sizes", hint="--sizes 1,4,16")
    return tuple(map(int, words))


def parse_sample(text: str) -> range | None:
    """Parses "3" or "0:8"; None for "".

    Raises:
        UsageError: it is neither.
    """
    if not text:
        return None
    first, colon, end = text.partition(":")
    if first.isdecimal() and (end.isdecimal() if colon else True):
        rows = range(int(first), int(end) if colon else int(first) + 1)
        if rows:
            return rows
    raise UsageError(f"--sample {text} is neither a row nor FIRST:END", hint="--sample 0, or --sample 0:8")

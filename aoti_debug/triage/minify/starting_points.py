"""The starts of a minimisation: the part of the graph that the guilty launch computes, then the whole program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from aoti_debug.base.errors import AotiDebugError
from aoti_debug.compare.fx_repro.fx_repro import recorded_region
from aoti_debug.runs.diagnosis.findings import Finding
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from aoti_debug.triage.minify.options import MinifyOptions
from aoti_debug.triage.minify.start.request import EvaluateRequest
from aoti_debug.triage.minify.start.start import Start, evaluated

_SECONDS = 600.0  # that eager may take


def launches_of(finding: Finding) -> tuple[str, ...]:
    """The launches that a finding blames, the likeliest first."""
    places = (finding.where, finding.origin, *finding.chain)
    return tuple(dict.fromkeys(place.launch for place in places if place is not None and place.launch))


def starts_of(
    options: MinifyOptions, finding: Finding, run: Path | None, folder: Path, note: Callable[[str], None]
) -> Iterator[Start]:
    """Yields the starts, each when the one before did not show the finding.

    Args:
        run: that shows the finding best; None if there is none.
        folder: for the values.
        note: is told of starts that cannot be used.
    """
    seconds = options.stall if finding.kind.value == "hang" else _SECONDS
    recorded = None if run is None else open_run(run)
    for launch in launches_of(finding) if recorded is not None else ():
        assert recorded is not None
        try:
            yield _of_launch(options, recorded, launch, folder / f"launch-{launch}", seconds, note)
        except AotiDebugError as error:
            note(f"launch {launch}: {error}")
    try:
        yield _of_program(options, folder / "program", recorded.manifest.device if recorded else "cpu", seconds)
    except AotiDebugError as error:
        note(f"the program: {error}")


def _of_launch(
    options: MinifyOptions, run: RunDir, launch: str, folder: Path, seconds: float, note: Callable[[str], None]
) -> Start:
    run, reference, region = recorded_region(run, run.launch(launch), options.trusted, note)
    request = EvaluateRequest(
        package=str(run.package),
        region=region,
        program="",
        inputs="",
        device=run.manifest.device,
        imports=options.imports,
        libraries=tuple(map(str, options.libraries)),
        folder=str(folder),
    )
    return evaluated(request, f"launch {launch}", reference, seconds)


def _of_program(options: MinifyOptions, folder: Path, device: str, seconds: float) -> Start:
    request = EvaluateRequest(
        package="",
        region=None,
        program=str(options.program),
        inputs=str(options.inputs or ""),
        device=device,
        imports=options.imports,
        libraries=tuple(map(str, options.libraries)),
        folder=str(folder),
    )
    return evaluated(request, "the program", None, seconds)

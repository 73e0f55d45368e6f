"""Launches of a run as code: `show --source`, `--ptx` and `--sass`, and as call text: `show --calls`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import groupby
from typing import Any

from aoti_debug.app.cli.options import CallOptions, CodeOptions
from aoti_debug.base.abi import CallKind, Level
from aoti_debug.base.errors import AotiDebugError, UsageError
from aoti_debug.compare.compare_run import reference_of
from aoti_debug.package import recording_settings
from aoti_debug.package.program_graphs import Reference
from aoti_debug.package.recording_settings import SiteFilter
from aoti_debug.runs.rundir.argument_statistics import Measurer
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.show.overview import BUDGET
from aoti_debug.views.call_text.calls import Call, CallCondition, call_lines, eager_calls, parse_condition
from aoti_debug.views.call_text.recorded_calls import RecordedCalls
from aoti_debug.views.kernel_code.kernel_code import (
    document,
    launch_code,
    launch_kernels,
    listing,
    ptx,
    sass,
    triton_caches,
)


class RunCode:
    """The code of the kernels of a run, in the forms that are asked for."""

    def __init__(self, run: RunDir, options: CodeOptions) -> None:
        self._run = run
        self._options = options
        self._documents: dict[tuple[int, str], list[dict[str, Any]]] = {}

    def lines(self, launch: Launch, columns: int, code_columns: int) -> Iterator[str]:
        """Yields the code of a launch's kernels.

        Args:
            columns: of a line of text.
            code_columns: of a line of code.

        Raises:
            AotiDebugError: PTX or SASS are asked for and cannot be had; SASS of an untrusted run is refused.
        """
        kernels = launch_kernels(self._run, launch)
        if not kernels:
            self._require_kernel(launch)
            operator = launch.site.op or "an operator of torch"
            yield from ("", f"{launch.kernel} has no source of its own: it is {operator}")
        if self._options.source:
            for code in launch_code(self._run, launch, *self._reference):
                yield from ("", *listing(code, launch.site.provenance, columns, code_columns))
        for kernel in kernels:
            if self._options.ptx:
                yield from ("", f"PTX of {kernel.name}", *ptx(self._run, kernel, triton_caches()).splitlines())
            if self._options.sass:
                yield from (
                    "",
                    f"SASS of {kernel.name}",
                    *sass(self._run, kernel, trusted=self._options.trusted).splitlines(),
                )

    def document(self, launch: Launch) -> list[dict[str, Any]]:
        """The code of a launch's kernels for JSON; launches of one site that ran the same kernel share it.

        Raises:
            AotiDebugError: PTX or SASS are asked for and cannot be had; SASS of an untrusted run is refused.
        """
        key = (launch.site.id, launch.grid.kernel if launch.grid else "")
        if key not in self._documents:
            self._documents[key] = self._document(launch)
        return self._documents[key]

    def _document(self, launch: Launch) -> list[dict[str, Any]]:
        codes = launch_code(self._run, launch, *self._reference)
        if not codes:
            self._require_kernel(launch)
        return [
            {
                **document(code),
                "ptx": ptx(self._run, code.kernel, triton_caches()) if self._options.ptx else None,
                "sass": sass(self._run, code.kernel, trusted=self._options.trusted) if self._options.sass else None,
            }
            for code in codes
        ]

    def _require_kernel(self, launch: Launch) -> None:
        if self._options.ptx or self._options.sass:
            raise UsageError(
                f"{launch.kernel} is no generated kernel: it is {launch.site.op or 'an operator of torch'}",
                hint="--ptx and --sass need a Triton kernel",
            )

    @cached_property
    def _reference(self) -> tuple[Reference | None, str]:
        return _reference_of(self._run)


def _reference_of(run: RunDir) -> tuple[Reference | None, str]:
    """The graphs of the package of a run, or the reason why there are none."""
    try:
        return reference_of(run)[0], ""
    except AotiDebugError as error:
        return None, str(error)


def lines_of_calls(
    run: RunDir, launches: Sequence[Launch], options: CallOptions, chosen: SiteFilter, limit: int | None
) -> Iterator[str]:
    """Yields the lines.

    Args:
        launches: those that are asked for.
        options: how they are printed.
        chosen: the modules and lines that are asked for.
        limit: how many launches are worded; None for all.

    Raises:
        UsageError: the condition is none, or the run did not record what is asked for.
        AotiDebugError: the program cannot be called in eager.
    """
    condition = parse_condition(options.where) if options.where else None
    needs_values = condition is not None and condition.needs_values
    if options.eager is not None:
        eager = eager_calls(
            run, options.eager, chosen, hashes=options.hashes, values=needs_values, trusted=options.trusted
        )
        yield from call_lines(_selected(eager.calls, options.operators, condition))
        if eager.failure:
            yield f"FAULT {eager.failure}"
        return
    level = recording_settings.written_level(run.level)
    if options.hashes and run.level not in recording_settings.WITH_HASHES:
        raise UsageError(
            f"run {run.path.name} holds no hashes of tensors: it was recorded at level {level}",
            hint="--hashes needs a run at level hash, at level 2, or at level 1, which also saves the tensors",
        )
    if needs_values and run.level not in (Level.SAVE, Level.VALUES):
        raise UsageError(
            f"run {run.path.name} holds no values of tensors: it was recorded at level {level}",
            hint=f"--where {options.where} needs a run at level 2, or at level 1, which also saves the tensors",
        )
    reference, missing = _reference_of(run)
    words = RecordedCalls(run, reference, Measurer(run, BUDGET) if needs_values else None, hashes=options.hashes)
    shown = launches if limit is None else launches[:limit]
    wanted = {launch.key for launch in shown}
    model_calls = {(launch.key.kind, launch.key.call) for launch in shown}
    for key, group in groupby(sorted(run.launches, key=_of_call), _of_call):
        if key in model_calls:
            calls = _selected(words.calls(group, wanted), options.operators, condition)
            yield from [f"call {'c' if key[0] is CallKind.CONSTANT else ''}{key[1]}"] if len(model_calls) > 1 else []
            yield from call_lines(calls, depth=int(len(model_calls) > 1))
    if len(shown) < len(launches):
        yield f"and {len(launches) - len(shown)} more launches (--all)"
    if missing and any(not launch.site.op for launch in shown):
        yield f"note: the operators of fused kernels are not known: {missing}"


def _of_call(launch: Launch) -> tuple[CallKind, int]:
    return launch.key.kind, launch.key.call


def _selected(calls: Iterable[Call], operators: Sequence[str], condition: CallCondition | None) -> list[Call]:
    return [
        call
        for call in calls
        if (not operators or any(_matches(call, pattern) for pattern in operators))
        and (condition is None or condition.holds_for_any(call.tensors))
    ]


def _matches(call: Call, pattern: str) -> bool:
    """True if a pattern takes a call for its operator, with or without overload, or for one that it holds."""
    names = [call.operator, *(operator.operator for operator in call.operators)]
    return any(fnmatchcase(name, pattern) or fnmatchcase(name.partition(".")[0], pattern) for name in names)

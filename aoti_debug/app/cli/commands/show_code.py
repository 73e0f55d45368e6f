"""`aoti-debug show --source`, `--ptx` and `--sass`: the code of the kernels of a launch."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from aoti_debug.base.errors import AotiDebugError, UsageError
from aoti_debug.compare.compare_run import reference_of
from aoti_debug.package.reference.program import Reference
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.timeline import Launch
from aoti_debug.views.kernel_code.kernel_code import document, launch_code, launch_kernels, listing
from aoti_debug.views.kernel_code.machine_code import ptx, sass, triton_caches
from aoti_debug.views.kernel_code.options import CodeOptions


class RunCode:
    """The code of the kernels of a run, in the forms that are asked for."""

    def __init__(self, run: RunDir, options: CodeOptions) -> None:
        self._run = run
        self._options = options
        self._documents: dict[tuple[int, str], list[dict[str, Any]]] = {}

    def lines(self, launch: Launch, columns: int) -> Iterator[str]:
        """Yields the code of a launch's kernels.

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
                yield from ("", *listing(code, launch.site.provenance, columns))
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
        """The graphs of the run's package, or the reason why there are none."""
        try:
            return reference_of(self._run)[0], ""
        except AotiDebugError as error:
            return None, str(error)

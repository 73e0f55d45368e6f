"""Builds a program with other settings until a sample has the same bits alone and among others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.errors import AotiDebugError, TargetError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.steps import StepListener, Steps
from aoti_debug.compare.bisect import build_changes
from aoti_debug.compare.bisect.build_changes import SettingChange
from aoti_debug.compare.invariance.invariance import Invariance, InvarianceOptions, invariance
from aoti_debug.package.manifest import Site
from aoti_debug.package.reference.program import operator_name
from aoti_debug.runs.run.timed_pairs import PAIRS, PairedTimes, TimedPackages, time_calls

_PRODUCTS = frozenset({"addmm", "mm", "bmm", "baddbmm", "linear", "_addmm_activation"})
_Changes = tuple[SettingChange, ...]
_CPU_TEMPLATE: _Changes = (
    SettingChange(key="freezing", value=True, what="weights as constants"),
    SettingChange(key="max_autotune_gemm", value=True, what="matrix products by a template"),
    SettingChange(key="max_autotune_gemm_backends", value="CPP", what="matrix products by a template"),
)
_CUDA_TEMPLATE: _Changes = (
    SettingChange(key="max_autotune_gemm", value=True, what="matrix products by a template"),
    SettingChange(key="max_autotune_gemm_backends", value="TRITON", what="matrix products by a template"),
)
_KERNELS: dict[str, tuple[_Changes, ...]] = {
    "cpu": ((SettingChange(key="cpp.simdlen", value=1, what="the vector width"),),),
    "cuda": (
        (SettingChange(key="batch_invariant", value=True, what="configurations that do not depend on the batch"),),
        (SettingChange(key="split_reductions", value=False, what="splitting of reductions"),),
    ),
}


@dataclass(frozen=True)
class RemedyTrial:
    """A build with other settings, and what became of the sample.

    Attributes:
        changes: the settings.
        found: the sample's bits in that build; None if it could not be built or run.
        failure: why it could not; "" if it could.
        price: how long calls of the largest batch take with it; None if it does not work, or was not timed.
    """

    changes: _Changes
    found: Invariance | None
    failure: str = ""
    price: PairedTimes | None = None

    @property
    def works(self) -> bool:
        """True if the sample has the same bits in every run."""
        return self.found is not None and not self.found.is_finding and self.found.is_complete

    @property
    def lines(self) -> tuple[str, ...]:
        """The settings as lines to paste."""
        return build_changes.lines_of(self.changes)

    @property
    def said(self) -> str:
        """The verdict on the build, or its failure."""
        return self.failure if self.found is None else self.found.verdict


def candidates(begins: Sequence[Site], device: str) -> Iterator[_Changes]:
    """Settings that may make launches invariant: they replace them by others, or fix their configuration.

    Args:
        begins: the sites of launches in which the sample's bits begin to differ.
        device: "cpu" or "cuda".
    """
    products = [site for site in begins if operator_name(site.op) in _PRODUCTS]
    kernels = [site for site in begins if not site.op]
    template = _CPU_TEMPLATE if device == "cpu" else _CUDA_TEMPLATE
    of_products: tuple[_Changes, ...] = (template,) if products else ((),)
    of_kernels = _KERNELS[device] if kernels else ((),)
    for parts in itertools.product(of_products, of_kernels):
        if any(parts):
            yield tuple(itertools.chain(*parts))


def try_remedies(
    found: Invariance, options: InvarianceOptions, listener: StepListener | None = None
) -> tuple[RemedyTrial, ...]:
    """Builds the program with one candidate after the other until one works; each is run as the program was.

    Args:
        found: the sample's bits in the program as it is.
        options: of the runs; the model is an exported program.

    Raises:
        UsageError: the directory cannot be made.
    """
    trials: list[RemedyTrial] = []
    for changes in candidates(found.begin_sites, found.alone.run.manifest.device):
        configs = build_changes.applied(changes, build_changes.Build(options.inductor_configs)).configs
        chosen = replace(options, inductor_configs=configs, out=found.directory / "remedies")
        try:
            trials.append(RemedyTrial(changes, invariance(chosen, listener)))
        except AotiDebugError as error:
            trials.append(RemedyTrial(changes, None, wording.first_line(str(error))))
        last = trials[-1]
        if last.works and last.found is not None:
            packages, inputs = (found.package, last.found.package), [found.runs[-1].run.inputs] * 2
            trials[-1] = replace(last, price=_price(packages, inputs, options, last.found.directory, Steps(listener)))
            break
    return tuple(trials)


def padding_price(
    found: Invariance, options: InvarianceOptions, listener: StepListener | None = None
) -> PairedTimes | None:
    """Times of a call of a size that is enough, beside the smallest size; None if none is, or it has no time."""
    if not found.enough:
        return None
    least = min(found.enough, key=lambda run: run.surroundings.size)
    inputs = [found.alone.run.inputs, least.run.inputs]
    return _price((found.package, found.package), inputs, options, found.directory, Steps(listener))


def _price(
    packages: tuple[Path, Path],
    inputs: Sequence[Path | None],
    options: InvarianceOptions,
    folder: Path,
    steps: Steps,
) -> PairedTimes | None:
    """Times of two packages in pairs; None if they cannot be called again."""
    files = tuple(path for path in inputs if path is not None)
    if len(files) < len(packages):
        return None
    asked = TimedPackages(tuple(map(str, packages)), PAIRS, None, options.user_code, files)
    with steps.step("time calls in pairs") as note:
        try:
            before, after = time_calls(asked, folder)
        except TargetError as error:
            note.text = wording.first_line(str(error))
            return None
        note.text = wording.pluralize(len(before), "pair")
    return PairedTimes.of(before, after)

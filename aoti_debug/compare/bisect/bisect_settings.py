"""Finds the setting, the pass or the lowering of Inductor that makes a program wrong, by building it repeatedly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aoti_debug.base import wording
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import stamped_directories
from aoti_debug.base.machine.steps import StepListener, Steps
from aoti_debug.compare.bisect import build_changes
from aoti_debug.compare.bisect.build_trials import (
    BuildFault,
    BuildTrial,
    BuildTrials,
    SettingsOptions,
    TrialBuilds,
    key_of,
    search_folder,
)
from aoti_debug.compare.bisect.delta_debugging import smallest
from aoti_debug.runs.rundir import recorded_runs

_ON_BY_DEFAULT: tuple[tuple[str, Any, str], ...] = (  # setting, harmless value, what it is
    ("pattern_matcher", False, "the pattern matcher"),
    ("cpp.simdlen", 1, "the vector width"),
    ("epilogue_fusion", False, "fusion of what follows a matrix product"),
    ("max_fusion_size", 1, "fusion"),
    ("split_reductions", False, "splitting of reductions"),
    ("inplace_buffers", False, "results in the memory of inputs"),
    ("allow_buffer_reuse", False, "memory that is used again"),
    ("layout_optimization", False, "layouts of convolutions"),
    ("comprehensive_padding", False, "padding of strides"),
    ("fallback_random", True, "random numbers"),
    ("emulate_precision_casts", True, "rounding between fused operators"),
)
_OFF_BY_DEFAULT = (  # these matter only where they are asked for: then they are left out
    *("max_autotune", "max_autotune_gemm", "max_autotune_pointwise", "coordinate_descent_tuning", "freezing"),
    *("combo_kernels", "memory_planning"),
)
_OF_A_DEVICE = {"cpp.": "cpu", "triton.": "cuda", "cuda.": "cuda"}


def asked_for(configs: Mapping[str, Any]) -> Iterator[build_changes.SettingChange]:
    """The settings that a model is built with, each to be left out: those that are off otherwise come first."""
    for key in sorted(configs, key=lambda key: key not in _OFF_BY_DEFAULT):
        yield build_changes.SettingChange(key, None, "asked for")


def suspects(configs: Mapping[str, Any], device: str) -> Iterator[build_changes.SettingChange]:
    """The changes to try of what is on anyway, for a model that is built with `configs`."""
    for key, value, what in _ON_BY_DEFAULT:
        prefix = next((prefix for prefix in _OF_A_DEVICE if key.startswith(prefix)), "")
        if configs.get(key) != value and (not prefix or _OF_A_DEVICE[prefix] == device):
            yield build_changes.SettingChange(key, value, what)


@dataclass(frozen=True)
class SettingsBisection:
    """The cause of a finding among the settings, passes and lowerings.

    Attributes:
        trials: all builds, in order, those of an earlier, interrupted bisection first.
        known: how many of them that were.
        changes: the smallest set of changes that fixes it; () if none was found.
    """

    trials: tuple[BuildTrial, ...]
    known: int
    changes: tuple[build_changes.Change, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines to paste."""
        return build_changes.lines_of(self.changes)

    @property
    def cause(self) -> str:
        """The parts that the changes concern: "the vector width"."""
        return wording.comma_separated(dict.fromkeys(change.concern for change in self.changes))


def bisect_settings(options: SettingsOptions, listener: StepListener | None = None) -> SettingsBisection:
    """Finds out what makes a program wrong; resumes an interrupted bisection of the same.

    Raises:
        UsageError: the directory cannot be made.
        ArtifactError: the program is none.
        ToolchainError, TargetError, RunDirError: the baseline cannot be run, or not built where no part can be named
            that fails.
    """
    key = key_of(options)
    folder = search_folder(options, "settings", key, "pass the exported program; or two packages, a good and a bad one")
    trials = BuildTrials(folder, key, options.inductor_configs)
    result = _Settings(options, trials, TrialBuilds(options, folder, trials, Steps(listener))).bisect()
    if recorded_runs.find(folder) is not None:
        stamped_directories.link_latest(folder)
    return result


class _Settings:
    def __init__(self, options: SettingsOptions, trials: BuildTrials, builds: TrialBuilds) -> None:
        self._options = options
        self._trials = trials
        self._builds = builds

    def bisect(self) -> SettingsBisection:
        baseline = self._builds.tried(())
        found: tuple[build_changes.Change, ...] = ()
        for changes in () if baseline.is_right else self._groups(baseline):
            found = smallest(changes, lambda some: self._builds.tried(some).outcome(baseline))
            if found:
                break
        self._trials.finish()
        return SettingsBisection(self._trials.all, self._trials.earlier, found)

    def _groups(self, baseline: BuildTrial) -> Iterator[tuple[build_changes.Change, ...]]:
        """Changes that are tried together first: what was asked for, then what is likely, by what is wrong."""
        configs, met = self._options.inductor_configs, baseline.applied
        settings = tuple(suspects(configs, baseline.device))
        passes = without(build_changes.Part.PASS, met.passes)
        suspected = tuple(name for name in baseline.suspects if name in met.lowerings)
        lowerings = tuple(dict.fromkeys((*suspected, *met.lowerings)))
        operators = (without(build_changes.Part.LOWERING, suspected), without(build_changes.Part.LOWERING, lowerings))
        decompositions = without(build_changes.Part.DECOMPOSITION, met.decompositions)
        yield tuple(asked_for(configs))
        if baseline.finding is BuildFault.DIFFERENCE:  # aoti-debug equal tries all else
            yield settings
        elif baseline.finding is BuildFault.OUTPUT:
            yield from (passes, decompositions, settings, *operators)
        else:
            yield from (settings, *operators, decompositions, passes)


def without(part: build_changes.Part, names: Sequence[str]) -> tuple[build_changes.Change, ...]:
    """The changes that leave out parts of these names, each by itself."""
    return tuple(build_changes.LeaveOut(part, name) for name in names)

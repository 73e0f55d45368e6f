"""Rounds parts of a model to a narrower dtype: the change of its outputs, and the parts that have to stay as they are.

aoti-debug/replays/20261120-231501-4711/
  package.pt2  runs/ baseline/ repeated/ part_0/ … all/ all_but_2/

Each part is rounded alone in a run of its own: what its launches read, weights too, and what they write. The runtime
rounds in memory, in the real package.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from aoti_debug.base import wording
from aoti_debug.base.dtypes import FLOAT_FORMATS, FloatFormat
from aoti_debug.base.errors import EXIT_CLEAN, EXIT_FINDING, EXIT_INCOMPLETE, TargetError, UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import stamped_directories
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.processes import python_process
from aoti_debug.base.machine.steps import StepListener, Steps
from aoti_debug.compare.modules import ModelPart, PartedBy, parts_of
from aoti_debug.compare.what_if import rounding
from aoti_debug.compare.what_if.cast_program import BuiltProposal, CastRequest, built_with_casts
from aoti_debug.compare.what_if.rounding import Changed, Headroom, OutputEffect
from aoti_debug.compare.what_if.substituted_run import ReplayOptions, ReplaySession, Round, SubstitutedRun, options_of
from aoti_debug.instrument.builder.build import BuildOptions, instrumented
from aoti_debug.package.pt2 import archive
from aoti_debug.package.pt2.archive import ArtifactKind
from aoti_debug.runs.diagnosis import suggested_commands
from aoti_debug.runs.diagnosis.diagnosed_run import require_end
from aoti_debug.runs.run.options import ModelCalls, check_inputs
from aoti_debug.runs.run.protocol import PRELOADED
from aoti_debug.runs.rundir import run_directory, run_json
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir

TOLERANCE = 0.01


@dataclass(frozen=True, kw_only=True)
class PrecisionOptions(ModelCalls):
    """A model, and the dtype that its parts are rounded to.

    Attributes:
        model: an exported program, a compiled or an instrumented package, or the directory of a run.
        to: "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2" or "float32".
        depth: of modules: the number of names in their paths; None for as many as there are.
        tolerance: the largest relative error of an output that a proposal may make.
        random_inputs: the seed of inputs to make; None to take given ones.
        inductor_configs: as for `build`.
        builds: also build an exported program with casts in the modules of the proposal, and run it.
        out: the directory in which the directory of the runs is made.
    """

    model: Path
    to: str = "bfloat16"
    by: PartedBy = PartedBy.MODULE
    depth: int | None = None
    tolerance: float = TOLERANCE
    random_inputs: int | None = None
    inductor_configs: Mapping[str, Any] = field(default_factory=dict)
    builds: bool = False
    out: Path = field(default_factory=ResultKind.REPLAYS.place)


@dataclass(frozen=True, kw_only=True)
class RoundedPart(Changed):
    """A part of a model, rounded alone.

    Attributes:
        dtypes: of the tensors that were rounded.
        headroom: of these tensors, as they were recorded.
        effects: on the outputs, against the same package without rounding.
        refused: the tensors that could not be rounded, and why.
    """

    part: ModelPart
    dtypes: tuple[str, ...]
    headroom: Headroom
    effects: tuple[OutputEffect, ...]
    refused: tuple[str, ...] = ()


@dataclass(frozen=True)
class RoundedParts(Changed):
    """A run in which all parts but some are rounded at once.

    Attributes:
        kept: the names of the parts that are not rounded.
    """

    kept: tuple[str, ...]
    effects: tuple[OutputEffect, ...]


@dataclass(frozen=True, kw_only=True)
class RoundedModel:
    """The effect of a narrower dtype on a model.

    Attributes:
        run: as it is, with its tensors.
        parts: the most sensitive ones first.
        untouched: the names of parts that hold nothing to round.
        trials: runs with several parts rounded at once, the first of them with all.
        noise: the change of the outputs from one run to the next without any rounding.
        runs: the number of runs that it took.
        directory: with the runs.
        built: the proposal as a build; None if none was asked for, or nothing may be rounded.
    """

    run: RunDir
    target: FloatFormat
    by: PartedBy
    tolerance: float
    parts: tuple[RoundedPart, ...]
    untouched: tuple[str, ...]
    trials: tuple[RoundedParts, ...]
    noise: float
    runs: int
    directory: Path
    built: BuiltProposal | None = None

    @property
    def whole(self) -> RoundedParts:
        """The run with all parts rounded."""
        return self.trials[0]

    @property
    def proposal(self) -> RoundedParts | None:
        """The run within the tolerance that keeps the fewest parts; None if all would have to be kept."""
        within = [trial for trial in self.trials if trial.error <= self.tolerance]
        return min(within, key=lambda trial: len(trial.kept), default=None)

    @property
    def kept_beside(self) -> tuple[str, ...]:
        """Modules without a row of their own that launches of kept ones compute as well: they were not rounded."""
        own, kept = {*self.untouched, *(part.part.name for part in self.parts)}, self.proposal
        names = () if kept is None else (item.part for item in self.parts if item.part.name in kept.kept)
        return tuple(dict.fromkeys(name for part in names for name in part.also if name not in own))

    @property
    def is_refuted(self) -> bool:
        """True if a build with casts changes the outputs by more than is allowed."""
        return self.built is not None and not self.built.failure and self.built.error > self.tolerance

    @property
    def unrounded_inside(self) -> tuple[Launch, ...]:
        """The launches of kernels that compute several operators, or not known how many, with no rounding between."""
        launches = (launch for part in self.parts for launch in part.part.launches)
        return tuple(one for one in launches if not one.site.op and len(one.site.provenance.post_grad_nodes) != 1)

    @property
    def is_open(self) -> bool:
        """True if all parts may be rounded by what was tried, which leaves out what kernels would round in themselves.

        So it is of a build, if the same program in eager changes the outputs by more than is allowed. Without a build
        not of float8: operators do not compute in it.
        """
        proposal, built = self.proposal, self.built
        if proposal is None or proposal.kept:
            return False
        if built is not None:
            return not self.is_refuted and built.eager_error > self.tolerance
        return self.is_open_inside

    @property
    def is_open_inside(self) -> bool:
        """True if kernels compute operators between which nothing was rounded, and no build shows what that makes.

        Not of float8: operators do not compute in it.
        """
        is_built = self.built is not None and not self.built.failure
        return not is_built and not self.target.name.startswith("float8") and bool(self.unrounded_inside)

    @property
    def is_fine(self) -> bool:
        """True if all parts may be rounded, and a build with casts, if there is one or need of one, says so too."""
        proposal, built = self.proposal, self.built
        if proposal is None or proposal.kept or self.is_open:
            return False
        return built is None or (not built.failure and built.error <= self.tolerance)

    @property
    def exit_code(self) -> int:
        """Of the command line: that of a build that failed, whether a part has to stay, or whether that is open."""
        if self.built is not None and self.built.failure:
            return self.built.exit_code
        return EXIT_INCOMPLETE if self.is_open else EXIT_CLEAN if self.is_fine else EXIT_FINDING

    @property
    def refused(self) -> tuple[str, ...]:
        """The tensors that could not be rounded, and why, each once."""
        return tuple(dict.fromkeys(reason for part in self.parts for reason in part.refused))


def precision(options: PrecisionOptions, listener: StepListener | None = None) -> RoundedModel:
    """Rounds each part of a model alone, then several at once.

    Raises:
        ModelFaultError: the model does not end well, as it is or rounded.
        UsageError: an option is wrong, the model is not trusted, or nothing in it can be rounded.
        ArtifactError, ToolchainError: the model cannot be built, or was built by an earlier version.
        TargetError: the model cannot be started, or returns no tensor.
        RunDirError: a run cannot be read or repeated.
    """
    target = _target(options)
    forking = python_process.forking_from(PRELOADED, options.user_code.imports)
    with stamped_directories.new_folder(options.out) as folder, forking as server:
        server.preload()
        return _Rounding(options, target, folder, Steps(listener)).measure()


def _target(options: PrecisionOptions) -> FloatFormat:
    """The target of the options, which are checked.

    Raises:
        UsageError: one of them is wrong.
    """
    if options.to not in FLOAT_FORMATS:
        raise UsageError(f"numbers are not rounded to {options.to}", hint=f"--to takes {', '.join(FLOAT_FORMATS)}")
    if not options.tolerance > 0:  # also for NaN
        raise UsageError(f"--tolerance {options.tolerance:g} is not greater than 0", hint="as --tolerance 0.01")
    check_inputs(options.inputs, options.random_inputs)
    if options.builds and options.by is not PartedBy.MODULE:
        raise UsageError("a program has casts in modules, not in launches", hint="--build without --by launch")
    if options.builds and archive.inspect(options.model).kind is not ArtifactKind.EXPORTED:
        raise UsageError(f"{options.model} is no exported program: it cannot be changed", hint="without --build")
    return FLOAT_FORMATS[options.to]


class _Rounding:
    def __init__(self, options: PrecisionOptions, target: FloatFormat, folder: Path, steps: Steps) -> None:
        self._options, self._target, self._folder, self._steps = options, target, folder, steps

    def measure(self) -> RoundedModel:
        session, before = self._baseline()
        parts = parts_of(before.run.launches, self._options.by, self._options.depth)
        instructions = {part.name: self._instructions(part) for part in parts}
        touched = [part for part in parts if instructions[part.name]]
        if not touched:
            raise UsageError(
                f"{self._options.model} holds nothing that {self._target.name} rounds",
                hint="--to float8_e4m3fn rounds to fewer bits",
            )
        again = session.again("repeated", ())
        require_end(again.run, self._options.model)
        rounded = self._each(session, before, touched, instructions)
        rounded.sort(key=lambda part: part.error, reverse=True)
        found = RoundedModel(
            run=before.run,
            target=self._target,
            by=self._options.by,
            tolerance=self._options.tolerance,
            parts=tuple(rounded),
            untouched=tuple(part.name for part in parts if not instructions[part.name]),
            trials=tuple(self._trials(session, before, [part.part.name for part in rounded], instructions)),
            noise=rounding.largest_error(rounding.effects(again.outputs, before.outputs)),
            runs=session.runs,
            directory=self._folder,
        )
        proposal = found.proposal
        if not self._options.builds or proposal is None:
            return found
        built = self._built_with_casts(session, before, (*proposal.kept, *found.kept_beside))
        return replace(found, built=built, runs=session.runs + 1)

    def _baseline(self) -> tuple[ReplaySession, SubstitutedRun]:
        """The run of the model as it is, at level 1."""
        options = self._options
        if (options.model / run_json.NAME).is_file():
            run = run_directory.open_run(options.model)
            chosen = ReplayOptions(run=options.model, user_code=options.user_code)
            session = ReplaySession(options_of(run, self._folder, chosen), self._folder, self._steps)
        else:
            running = options.recorded(self._built(), self._folder / "runs", options.model.name)
            session = ReplaySession(replace(running, random_inputs=options.random_inputs), self._folder, self._steps)
        before = session.again("baseline", (), level=1)
        require_end(before.run, options.model)
        session.options = replace(session.options, inputs=before.run.inputs, random_inputs=None)
        if not before.outputs:
            raise TargetError(f"{options.model} returns no tensor", hint="there is nothing to compare")
        return session, before

    def _built(self) -> Path:
        options = self._options
        building = BuildOptions(
            program=options.model,
            output=self._folder / "package.pt2",
            inductor_configs=options.inductor_configs,
            user_code=options.user_code,
        )
        has_inputs = options.inputs is not None or options.random_inputs is not None
        return instrumented(options.model, building, self._steps, has_inputs=has_inputs)

    def _built_with_casts(self, session: ReplaySession, before: SubstitutedRun, kept: Sequence[str]) -> BuiltProposal:
        """The program with casts in the modules that are not kept."""
        options, code = self._options, self._options.user_code
        request = CastRequest(
            program=str(options.model),
            to=self._target.name,
            kept=tuple(kept),
            depth=options.depth,
            output=str(self._folder / f"{self._target.name}.pt2"),
            package=str(session.options.package),
            inputs=str(before.run.inputs or ""),
            calls=session.options.calls,
            returned=str(self._folder / "casts_in_eager"),
            imports=code.imports,
            libraries=tuple(map(str, code.libraries)),
        )
        return built_with_casts(request, session, before, options.inductor_configs)

    def _instructions(self, part: ModelPart) -> list[Round]:
        return [round_ for launch in part.launches for round_, _ in rounding.roundings(launch, self._target)]

    def _each(
        self,
        session: ReplaySession,
        before: SubstitutedRun,
        parts: Sequence[ModelPart],
        instructions: Mapping[str, list[Round]],
    ) -> list[RoundedPart]:
        """Rounds each part alone."""
        found = []
        with self._steps.step(f"round each {self._options.by.value}") as note:
            for number, part in enumerate(parts):
                after = session.silently(f"part {number}", instructions[part.name])
                self._require_end(after.run, f"{part.name} rounded")
                found.append(
                    RoundedPart(
                        part=part,
                        dtypes=self._dtypes(part),
                        headroom=self._headroom(before.run, part),
                        effects=rounding.effects(after.outputs, before.outputs),
                        refused=after.refused,
                    )
                )
                _remove(after, session.folder / f"part_{number}")
                self._steps.advance(number + 1, len(parts))
            note.text = wording.pluralize(len(parts), "run")
        return found

    def _require_end(self, run: RunDir, name: str) -> None:
        """As `require_end`; a triage, which rounds nothing, might find nothing."""
        require_end(run, self._options.model, name, suggested_commands.show(run))

    def _dtypes(self, part: ModelPart) -> tuple[str, ...]:
        rounded = (argument for launch in part.launches for _, argument in rounding.roundings(launch, self._target))
        layouts = (argument.layout for argument in rounded)
        return tuple(dict.fromkeys(layout.dtype for layout in layouts if layout is not None))

    def _headroom(self, run: RunDir, part: ModelPart) -> Headroom:
        """That of the tensors that are rounded, each file once."""
        pairs = (pair for launch in part.launches for pair in rounding.roundings(launch, self._target))
        files = (argument.files.get(round_.phase) for round_, argument in pairs)
        paths = dict.fromkeys(run.tensor_path(file) for file in files if file is not None and file.path)
        return sum((rounding.headroom(path, self._target) for path in paths), Headroom())

    def _trials(
        self,
        session: ReplaySession,
        before: SubstitutedRun,
        ranking: Sequence[str],
        instructions: Mapping[str, list[Round]],
    ) -> Iterable[RoundedParts]:
        """Runs with all parts rounded but the first ones of a ranking: as few as the tolerance allows."""

        def trial(kept: int) -> RoundedParts:
            rounds = [round_ for name in ranking[kept:] for round_ in instructions[name]]
            after = session.again(f"all but {kept}" if kept else "all", rounds)
            self._require_end(after.run, f"all but {kept} rounded" if kept else "all rounded")
            return RoundedParts(tuple(ranking[:kept]), rounding.effects(after.outputs, before.outputs))

        found = trial(0)
        yield found
        too_few, enough = 0, len(ranking)
        if found.error <= self._options.tolerance:
            return
        while enough - too_few > 1:
            middle = (too_few + enough) // 2
            found = trial(middle)
            yield found
            if found.error <= self._options.tolerance:
                enough = middle
            else:
                too_few = middle


def _remove(found: SubstitutedRun, folder: Path) -> None:
    """Deletes a run whose effect is known."""
    shutil.rmtree(found.run.path, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)

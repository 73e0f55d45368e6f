"""Finds, by runs of the model with other numbers in its inputs, the element that makes a launch fail.

It needs no graph, and any launches may be between: with another number in place of the element, no fault comes.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug.base import dtypes, wording
from aoti_debug.base.errors import AotiDebugError
from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.explain.culprit import Culprit, TimeOverError, UndecidedError, find_culprit
from aoti_debug.package.argument_values import unravel
from aoti_debug.package.inputs import input_files
from aoti_debug.package.manifest import Role
from aoti_debug.package.pt2 import archive
from aoti_debug.runs.diagnosis.dataflow import Dataflow
from aoti_debug.runs.diagnosis.findings import Finding, Place
from aoti_debug.runs.diagnosis.verdict import Verdict
from aoti_debug.runs.diagnosis.verdict_text import element_text
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.triage.investigation.investigation import Investigation

if TYPE_CHECKING:
    import torch

_SECONDS, _RUNS, _MAX_SECONDS = 90.0, 10, 600.0  # runs may take the first, or as many runs as long as the first one
_MAX_NAMED = 3
_MAX_BYTES = 1 << 28  # of the inputs, which are written for each run


def with_changed_inputs(
    investigation: Investigation, finding: Finding, flow: Dataflow, launch: Launch, argument: str = ""
) -> Finding:
    """The finding with the model input whose element makes the launch fail; unchanged where no single one does.

    A launch that was seen to compute the bad number stays the origin, unless a single element of an input makes it.

    Args:
        flow: of a run that ended in the fault.
        argument: the argument of the launch that the element comes by; "" if it is not known.
    """
    verdict = investigation.first.verdict
    if verdict is None:
        return finding
    with investigation.steps.step("runs with other inputs") as note:
        try:
            changed = _ChangedRuns(investigation, flow.run, verdict, launch)
            if not changed.fails({}):
                note.text = "the fault does not come in every run"
                return finding
            behind = _inputs_behind(flow, launch, argument)
            culprit = find_culprit(changed.candidates(behind), changed.fails)
        except (AotiDebugError, UndecidedError, TimeOverError) as error:
            note.text = wording.first_line(str(error))
            return finding
        note.text = f"{wording.pluralize(changed.count, 'run')}: " + (
            "no change of a single input kept the fault away"
            if culprit is None
            else f"with other numbers in {culprit.name} the fault does not come"
        )
    if culprit is None or not (behind.by_data or _is_unusual(culprit, changed.tensors[culprit.name])):
        return finding
    said = _sentence(culprit, changed.tensors[culprit.name])
    untried = _integer_weights(flow.run)
    if not untried:
        return _explained(finding, culprit, changed.tensors[culprit.name], said)
    others = (
        f"other numbers in {wording.join_truncated(untried, _MAX_NAMED)}, which may be to blame as well, were not tried"
    )
    return replace(finding, possible=(f"{said}; {others}", *finding.possible))


def _integer_weights(run: RunDir) -> tuple[str, ...]:
    """The buffers and weights of integers, which an index may select from: their numbers may be to blame as well."""
    kept = (c for c in run.manifest.constants if dtypes.is_integer(c.dtype) and not c.folded)
    return tuple(constant.fqn or constant.name for constant in kept)


def _is_unusual(culprit: Culprit, tensor: torch.Tensor) -> bool:
    """True for a single element that nothing else can replace; a number that decides a branch seldom is one."""
    return culprit.element is not None and culprit.alone and tensor.numel() > 1


def _sentence(culprit: Culprit, tensor: torch.Tensor) -> str:
    """ "ids[3] is 3000: with 0 there, the model runs through; with 0 in all other elements of ids, the fault comes"."""
    number = culprit.instead
    if culprit.element is None:
        tried = f"with {number} in all of {culprit.name}, the model runs through"
        return f"{tried}; no single element was found that makes the fault come"
    element = f"{element_text(culprit.name, unravel(culprit.element, tuple(tensor.shape)))} is {culprit.value}: "
    in_others = f"with {number} in all other elements of {culprit.name}, the fault comes"
    if not culprit.alone:
        in_all = f"with {number} in all of {culprit.name}, the model runs through"
        return f"{element}{in_others}; with {number} there alone as well; {in_all}"
    there = f"{element}with {number} there, the model runs through"
    return there if tensor.numel() == 1 else f"{there}; {in_others}"


def _explained(finding: Finding, culprit: Culprit, tensor: torch.Tensor, sentence: str) -> Finding:
    element, where = culprit.element, finding.where
    if finding.origin is not None and (element is None or not culprit.alone):
        return replace(finding, evidence=(*finding.evidence, sentence))
    place = () if element is None else unravel(element, tuple(tensor.shape))
    origin = Place(input=culprit.name, element=element, coordinates=place)
    between = tuple(
        place for place in finding.chain if place.launch and (where is None or place.launch != where.launch)
    )
    chain = (origin, *between, where) if where is not None else ()
    return replace(finding, evidence=(sentence, *finding.evidence), origin=origin, chain=chain)


class _ChangedRuns:
    """Runs of the model with some inputs changed.

    Attributes:
        tensors: the inputs that are tensors, by the user's names.
        count: runs so far.

    Raises:
        AotiDebugError: the inputs cannot be read.
        UndecidedError: they cannot be told apart, or are too large.
    """

    def __init__(self, investigation: Investigation, run: RunDir, verdict: Verdict, launch: Launch) -> None:
        import torch
        from torch.utils import _pytree as pytree

        self._investigation = investigation
        self._what = wording.first_line(verdict.what)
        self._site = launch.site.id
        self._seconds = self._deadline = math.inf  # set by the first run
        self.count = 0
        self._leaves, self._spec = pytree.tree_flatten(_inputs_of(run))
        positions = [i for i, leaf in enumerate(self._leaves) if isinstance(leaf, torch.Tensor)]
        variables = run.manifest.inputs
        names = run.manifest.input_names or variables
        if len(positions) != len(variables) or len(set(names)) != len(variables):
            raise UndecidedError("the inputs are not those of the wrapper one to one")
        self._positions = dict(zip(names, positions, strict=True))
        self.tensors: dict[str, torch.Tensor] = {name: self._leaves[i] for name, i in self._positions.items()}
        if sum(tensor.nbytes for tensor in self.tensors.values()) > _MAX_BYTES:
            raise UndecidedError("the inputs are too large to be written for each run")

    def candidates(self, behind: _Behind) -> dict[str, torch.Tensor]:
        """The inputs that may be to blame; integers first."""
        named = {name: tensor for name, tensor in self.tensors.items() if name in behind.names}
        found = {name: tensor for name, tensor in named.items() if tensor.numel() and not tensor.is_complex()}
        return dict(sorted(found.items(), key=lambda item: item[1].is_floating_point()))

    def fails(self, changes: Mapping[str, torch.Tensor]) -> bool:
        """True if the model ends in the same fault with these inputs in place of its own.

        Raises:
            UndecidedError: it ends in another fault.
            TimeOverError: the time for such runs is over.
        """
        from torch.utils import _pytree as pytree

        started = time.monotonic()
        if started > self._deadline:
            raise TimeOverError(f"no answer after {wording.pluralize(self.count, 'run')} in {self._seconds:.0f} s")
        leaves: list[Any] = list(self._leaves)
        for name, tensor in changes.items():
            leaves[self._positions[name]] = _in_layout(tensor, self.tensors[name])
        args, kwargs = pytree.tree_unflatten(leaves, self._spec)
        with tempfile.TemporaryDirectory(prefix="aoti-debug-inputs-") as folder:
            path = Path(folder) / "inputs.pt"
            input_files.write(input_files.Inputs(tuple(args), kwargs), path)
            verdict = self._investigation.runs.with_inputs(path, Path(folder)).verdict
        self.count += 1
        if self.count == 1:
            self._seconds = min(max(_SECONDS, _RUNS * (time.monotonic() - started)), _MAX_SECONDS)
            self._deadline = started + self._seconds
        if verdict is None:
            return False
        if verdict.launch is None or verdict.launch.site.id != self._site:
            raise UndecidedError("another launch fails")
        if wording.first_line(verdict.what) != self._what:
            raise UndecidedError("the launch fails in another way")
        return True


def _inputs_of(run: RunDir) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments that a run was called with.

    Raises:
        AotiDebugError: they cannot be read.
        UndecidedError: there are none.
    """
    if run.package is None:
        raise UndecidedError("the package is gone")
    package = archive.inspect(run.package)
    if run.inputs is not None:
        inputs = input_files.read(run.inputs, input_files.read_signature(package))
    else:
        embedded = input_files.read_embedded(package)
        if embedded is None:
            raise UndecidedError("the run has no inputs file")
        inputs = embedded
    return inputs.args, dict(inputs.kwargs)


@dataclass(frozen=True)
class _Behind:
    """The model's inputs that an argument of a launch may depend on.

    Attributes:
        by_data: False if some may only decide if the launch is executed.
    """

    names: frozenset[str]
    by_data: bool


def _inputs_behind(flow: Dataflow, launch: Launch, argument: str) -> _Behind:
    """The model's inputs that an argument of a launch, or any, depends on through other launches.

    All of them, if it depends on memory of which it is not known who wrote it: what a loop carries.
    """
    manifest = flow.run.manifest
    names = dict(zip(manifest.inputs, manifest.input_names or manifest.inputs, strict=True))
    found: set[str] = set()
    seen: set[str] = set()
    waiting = [launch]
    while waiting:
        reader = waiting.pop()
        if reader.id in seen:
            continue
        seen.add(reader.id)
        for read in reader.args:
            if read.role is Role.OUT or (reader.key == launch.key and argument not in ("", read.name)):
                continue
            own = {names[name] for name in (read.name, read.spec.base) if name in names}
            writer = flow.writer(reader, read)
            if read.tensor is not None and not own and writer.launch is None and not writer.input:
                return _Behind(frozenset(names.values()), by_data=False)
            found |= own
            waiting += [] if writer.launch is None else [writer.launch]
    return _Behind(frozenset(found), bool(argument))


def _in_layout(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The tensor with the strides of another one."""
    import torch

    made = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)
    return made.copy_(tensor)

"""Calls the exported program of a run as often in eager, for its states and outputs. Runs in a child process.

The graph that kernels are generated from may be wrong already: Inductor's passes fold what they take for constant.
Programs that draw random numbers are not called: their states and outputs are others each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from aoti_debug import wording
from aoti_debug.compare.evaluate import mapped_program
from aoti_debug.compare.evaluate.functions import NotEvaluableError, is_random
from aoti_debug.compare.measure.state_change import state_change
from aoti_debug.compare.protocol.measurement import ExportedOutputs, StateChange, StatesFailure
from aoti_debug.compare.protocol.request import ProgramRun, Recorded
from aoti_debug.errors import RunDirError
from aoti_debug.inputs import files
from aoti_debug.inputs.files import Inputs
from aoti_debug.printing import registration
from aoti_debug.pt2.archive import Artifact
from aoti_debug.reference.program import NodeKind, Reference
from aoti_debug.run import outputs
from aoti_debug.rundir import load_tensors

if TYPE_CHECKING:
    import torch


def exported_results(
    exported: Path, package: Artifact, inputs: str, reference: Reference, runs: Sequence[ProgramRun], kept: Path
) -> Iterator[StateChange | ExportedOutputs | StatesFailure]:
    """Yields the changes of the states of a run that its exported program has too, and what that returns in the end.

    If it could not be called, the reason.

    Args:
        inputs: the inputs file of the run; "" for those embedded in the package.
        runs: the calls of the run, in order.
        kept: a folder for the outputs.
    """
    if not runs or _draws_random_numbers(reference):
        return
    given = files.read(inputs, files.read_signature(package)) if inputs else files.read_embedded(package)
    if given is None:
        return
    try:
        yield from _results(exported, given, runs, kept)
    except Exception as error:  # noqa: BLE001 - the user's program may raise anything in eager
        yield StatesFailure(f"it fails in eager: {type(error).__name__}: {wording.first_line(str(error))}")


def _results(
    exported: Path, given: Inputs, runs: Sequence[ProgramRun], kept: Path
) -> Iterator[StateChange | ExportedOutputs]:
    import torch

    registration.register()
    module = mapped_program.load(exported).module()
    held: Mapping[str, torch.Tensor] = {**dict(module.named_buffers()), **dict(module.named_parameters())}
    began_alike: set[str] = set()
    with torch.no_grad():
        for n, run in enumerate(runs):
            earlier = {state.name: held[state.name].clone() for state in run.states if state.name in held}
            returned = module(*given.args, **given.kwargs)
            for state in run.states:
                before, after = _load(state.before), _load(state.after)
                if state.name not in earlier or before is None or after is None:
                    continue
                expected, old = held[state.name].cpu(), earlier[state.name].cpu()
                if not old.shape == before.shape == after.shape:
                    continue
                if n == 0 and torch.equal(before.nan_to_num(), old.nan_to_num()):
                    began_alike.add(state.name)
                if state.name in began_alike:
                    yield state_change(state.name, run.call, state.launch, before, after, expected)
        outputs.save(returned, kept)
        yield ExportedOutputs(str(kept))


def _draws_random_numbers(reference: Reference) -> bool:
    for node in (node for graph in reference.graphs for node in graph.nodes if node.kind is NodeKind.CALL):
        try:
            if is_random(node.target, node.args, node.kwargs):
                return True
        except NotEvaluableError:  # a branch, a loop, an operator that is not known here
            continue
    return False


def _load(recorded: Recorded) -> torch.Tensor | None:
    try:
        return load_tensors.map_file(Path(recorded.path)).cpu()
    except RunDirError:
        return None

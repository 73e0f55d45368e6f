"""The verdict on a run in words: its headline, the finding that it is, the elements and tables that it names."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from aoti_debug.base import dtypes, wording
from aoti_debug.base.abi import Phase, SaveStatus
from aoti_debug.base.errors import RunDirError
from aoti_debug.base.frozen import dataclass
from aoti_debug.package.argument_values import unravel
from aoti_debug.package.launch_traits import overlap_remark
from aoti_debug.package.manifest import Role
from aoti_debug.runs.diagnosis import suggested_commands
from aoti_debug.runs.diagnosis.dataflow import input_kind, model_name
from aoti_debug.runs.diagnosis.findings import FAULT, HANG, NO_FAULT, NONFINITE, Finding, Place, place_of
from aoti_debug.runs.diagnosis.output_values import OutputValues, output_values
from aoti_debug.runs.diagnosis.verdict import Proof, Verdict
from aoti_debug.runs.kernel_source.result_slices import CheckedIndex, checked_index
from aoti_debug.runs.rundir.formats.stored_tensor import open_tensor
from aoti_debug.runs.rundir.launch import Argument, Launch
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.run_json import ExitKind

_ASSERTION = re.compile(r"index out of bounds: -?\d+L? <= \w+ < (\d+)L?")  # of generated code
_SIGNAL = re.compile(r"(SIG[A-Z]+)(?: \([^)]*\))?(?:: (.*))?", re.DOTALL)
_CUDA = re.compile(r"CUDA error (\d+)")
_CODE = re.compile(r"error code -?\d+")
_HAPPENED = "it happened"
_NO_END = re.compile(r"no end: (.*)")
_CRASHES = {
    "SIGSEGV": "invalid memory access",
    "SIGBUS": "memory access that the machine cannot serve",
    "SIGFPE": "integer division that has no result",
    "SIGILL": "illegal instruction",
    "SIGABRT": "the process was aborted",
}
_DEVICE_ERRORS = {
    214: "uncorrectable memory error of the GPU",
    220: "uncorrectable NVLink error",
    700: "invalid memory access on the GPU",
    710: "failed assertion on the GPU",
    714: "hardware stack error on the GPU",
    715: "illegal instruction on the GPU",
    716: "misaligned memory access on the GPU",
    717: "memory access in the wrong address space of the GPU",
    718: "invalid program counter on the GPU",
    719: "failure on the GPU",
}


def with_coordinates(finding: Finding, run: RunDir) -> Finding:
    """The finding with the coordinates of its elements, as far as the run shows the shapes of their tensors.

    Of a model input or weight that it names, it says which of these it is.
    """
    return replace(
        finding,
        where=_located(finding.where, run),
        origin=_located(finding.origin, run),
        chain=tuple(_located(place, run) or place for place in finding.chain),
    )


def _located(place: Place | None, run: RunDir) -> Place | None:
    if place is not None and place.input:
        place = replace(place, input_kind=input_kind(run.manifest, place.input))
    if place is None or place.element is None:
        return place
    shape = _shape(place, run)
    if shape is None or not 0 <= place.element < math.prod(shape):
        return place
    return replace(place, coordinates=tuple(unravel(place.element, shape)))


def _shape(place: Place, run: RunDir) -> tuple[int, ...] | None:
    """The shape of the tensor that a place names; None if the run has none of that name."""
    manifest = run.manifest
    if place.launch:
        launches: Sequence[Launch | None] = [run.find_launch(place.launch)]
        names = [place.argument]
    else:
        inputs = zip(manifest.inputs, manifest.input_names or manifest.inputs, strict=False)
        constants = ((constant.name, constant.fqn) for constant in manifest.constants)
        names = [variable for variable, name in (*inputs, *constants) if place.input in (name, variable)]
        launches = run.launches
    found = (launch.argument(name) for launch in launches if launch is not None for name in names)
    return next((argument.layout.shape for argument in found if argument and argument.layout), None)


_LISTED = 6  # suspects
_ENDED = "ended with: "


def ended_with(message: str, place: Place | None) -> str:
    """ "0.3 mylib::op.default ended with: SIGSEGV": a sentence on a launch, or on the run where none is guilty."""
    return f"{'the run' if place is None else f'{place.launch} {place.kernel}'} {_ENDED}{message}"


def has_message(finding: Finding) -> bool:
    """True if the evidence holds the words of the system for a fault."""
    return any(_ENDED in sentence for sentence in finding.evidence)


def finding_of(run: RunDir, verdict: Verdict | None, arguments: Iterable[str] = ()) -> Finding:
    """The finding of a run: that of its verdict; without one, of kind NO_FAULT, or NONFINITE if its outputs are so.

    Whether the outputs are right is not judged here.

    Args:
        verdict: of this run.
        arguments: lines on the arguments of the guilty launch; evidence where it hangs.

    Raises:
        RunDirError: a saved tensor is missing or damaged.
    """
    if verdict is None:
        return without_fault(run, output_values(run))
    launch = verdict.launch
    return Finding(
        kind=HANG if verdict.hangs else FAULT,
        what=verdict.headline,
        where=place_of(launch) if launch is not None else None,
        evidence=(*_evidence(verdict), *verdict.waits, *(arguments if verdict.hangs else ())),
        stack=verdict.frames,
        signal=run.info.exit.signal if run.state is ExitKind.FAULT else "",
        next=verdict.next_commands,
    )


def without_fault(run: RunDir, outputs: OutputValues) -> Finding:
    """The finding of a run that has no verdict: NONFINITE if its outputs are so, or else NO_FAULT.

    Args:
        outputs: of this run.
    """
    remark = overlap_remark(run.manifest) if run.level else ""
    warnings = (*outputs.notes, remark) if remark else outputs.notes
    if outputs.what:
        return Finding(
            NONFINITE,
            outputs.what,
            where=outputs.where,
            evidence=outputs.evidence,
            next=suggested_commands.why_nonfinite(run),
            warnings=warnings,
        )
    launched = wording.pluralize(len(run.launches), "launch")
    what = f"{launched}; {outputs.text}" if run.level else outputs.text
    if run.state in (ExitKind.RUNNING, ExitKind.STOPPED):
        what = f"{'still running' if run.state is ExitKind.RUNNING else 'stopped'}: {launched} so far"
    return Finding(NO_FAULT, what, next=(suggested_commands.show(run),), warnings=warnings)


def _evidence(verdict: Verdict) -> Iterable[str]:
    launch = verdict.launch
    if not verdict.suspects and verdict.frames:
        yield f"the call stack begins with {verdict.frames[0]}"
    if verdict.message:
        yield ended_with(verdict.message, None if launch is None else place_of(launch))
    yield verdict.why
    if verdict.surfaced is not None:
        yield f"it was noticed in {verdict.surfaced.id} {verdict.surfaced.kernel}, which may be a victim"
    if launch is None and verdict.suspects:
        names = ", ".join(f"{x.id} {x.kernel}" for x in verdict.suspects[:_LISTED])
        yield f"one of {len(verdict.suspects)} launches: {names}"
    if launch is not None and launch.loops:
        yield f"in iteration {', '.join(map(str, launch.loops))} of the loop, counted from 0"


def headline(run: RunDir, what: str, proof: Proof, suspects: Sequence[Launch], why: str) -> str:
    """A sentence about the model for a fault, as far as the run tells it, in one line; else the first line of `what`.

    Args:
        what, proof, suspects, why: as in `Verdict`.
    """
    first = wording.first_line(what)
    launch = suspects[0] if len(suspects) == 1 else None
    place = _place(proof, suspects, why)
    if launch is not None and (assertion := _ASSERTION.search(first)) is not None:
        return _index_sentence(run, launch, assertion[0], int(assertion[1]))
    if (signal := _SIGNAL.match(first)) is not None and signal[1] in _CRASHES:
        return f"{crash_text(signal[1], place)}{f': {signal[2]}' if signal[2] else ''}"
    if (error := _CUDA.match(first)) is not None and int(error[1]) in _DEVICE_ERRORS:
        return f"{_DEVICE_ERRORS[int(error[1])]}{place}"
    if launch is not None and (ended := _NO_END.match(first)) is not None:
        return f"{_name(launch)} did not end: {ended[1]}"
    if signal is not None:
        return crash_text(signal[1], place)
    if launch is not None and _CODE.fullmatch(first):
        return f"{_name(launch)} failed with {first}"
    return first


def device_error(code: int) -> str:
    """ "invalid memory access on the GPU": what an error number of the CUDA driver means.

    Raises:
        KeyError: it is none that a kernel can cause.
    """
    return _DEVICE_ERRORS[code]


def crash_text(signal: str, place: str) -> str:
    """ "invalid memory access in cpp_fused_relu_0": what a signal means.

    Args:
        place: " in cpp_fused_relu_0"; "" if it is not known.
    """
    return f"{_CRASHES.get(signal, f'the process was ended by {signal}')}{place}"


def _place(proof: Proof, suspects: Sequence[Launch], why: str) -> str:
    """ " in cpp_fused_relu_0", " while cpp_fused_relu_0 ran", " between launches"; "" where nothing is known."""
    if not suspects:
        return why.partition(";")[0].removeprefix(_HAPPENED) if why.startswith(_HAPPENED) else ""
    if len(suspects) > 1:
        return f" in one of {len(suspects)} launches, {suspects[0].id} to {suspects[-1].id}"
    name = _name(suspects[0])
    return f" while {name} ran" if proof is Proof.LIKELY else f" in {name}"


def _name(launch: Launch) -> str:
    """The operator of a launch, or its generated kernel."""
    return launch.site.op or launch.kernel


def _index_sentence(run: RunDir, launch: Launch, assertion: str, size: int) -> str:
    """ "ids[2, 5] is 100, embed.weight has 100 rows", as far as the kernel's source and the saved tensors tell it."""
    checked = checked_index(launch, run.manifest, assertion)
    operand, table = (_argument_of(launch, None if checked is None else name) for name in _parameters(checked))
    limit = "" if table is None else _limit(model_name(run.manifest, table), table, size)
    if operand is None:
        return f"an index in {_name(launch)} is out of bounds: {limit or f'it has to be less than {size}'}"
    name = model_name(run.manifest, operand)
    limit = limit or f"as an index it has to be less than {size}"
    is_as_read = checked is not None and checked.is_as_read and operand.role is Role.IN
    bad = _bad_elements(run, operand, size) if is_as_read else None
    if bad is None:
        made = "an element of" if is_as_read else "an index computed from"
        return f"{made} {name} is out of bounds: {limit}"
    return f"{element_text(name, bad.index)} is {bad.value}, {limit}{more_text(bad.count)}"


def element_text(name: str, index: Sequence[int]) -> str:
    """ "rows[2, 5]"; the name alone of a tensor without dimensions."""
    return f"{name}[{', '.join(map(str, index))}]" if index else name


def table_text(name: str, dimension: int, size: int) -> str:
    """ "embed.weight has 100 rows", "table has size 7 in dimension 1" of what is indexed."""
    return f"{name} has {size} rows" if dimension == 0 else f"{name} has size {size} in dimension {dimension}"


def more_text(count: int) -> str:
    """ " (3 elements are bad)" behind a sentence on the first one; "" of one alone."""
    return f" ({count} elements are bad)" if count > 1 else ""


@dataclass(frozen=True)
class _BadElements:
    """The first element that is no index, row-major, and how many there are."""

    index: tuple[int, ...]
    value: int
    count: int


def _bad_elements(run: RunDir, operand: Argument, size: int) -> _BadElements | None:
    """The elements of a saved operand that are out of bounds; None if it was not saved, or has none."""
    saved, layout = operand.files.get(Phase.BEFORE), operand.layout
    if saved is None or saved.status is SaveStatus.SKIPPED or layout is None or not dtypes.is_integer(layout.dtype):
        return None
    try:
        values = open_tensor(run.tensor_path(saved)).numbers().astype("int64")
    except RunDirError:  # the headline says less; what reads the tensor says that it is damaged
        return None
    bad = ((values < -size) | (values >= size)).nonzero()[0]
    if not len(bad):
        return None
    return _BadElements(unravel(int(bad[0]), layout.shape), int(values[bad[0]]), len(bad))


def _parameters(checked: CheckedIndex | None) -> tuple[str, str]:
    return ("", "") if checked is None else (checked.operand, checked.table)


def _argument_of(launch: Launch, parameter: str | None) -> Argument | None:
    found = (argument for argument in launch.args if parameter and argument.spec.param == parameter)
    return next(found, None)


def _limit(name: str, table: Argument, size: int) -> str:
    """The size of the one dimension that the limit is, in words; "" if there are several such, or none."""
    shape = table.layout.shape if table.layout is not None else ()
    return table_text(name, shape.index(size), size) if shape.count(size) == 1 else ""

"""Builds the findings of broken contracts: the launch to blame, and the consequences for its readers."""

from __future__ import annotations

from aoti_debug.base import dtypes
from aoti_debug.package.launch_traits import traits_of
from aoti_debug.package.recording.values import Tensor, extent_elements
from aoti_debug.runs.diagnosis.dataflow import Dataflow, input_or_weight_name, kind_of_input, model_name
from aoti_debug.runs.diagnosis.findings import Finding, Place, place_of
from aoti_debug.runs.rundir.timeline import Argument, Launch
from aoti_debug.triage.contracts import layouts
from aoti_debug.triage.contracts.layouts import Promised, other_sizes
from aoti_debug.triage.results.finding_kinds import CONTRACT

_MAX_READERS = 3


def consequence(reader: Launch, argument: Argument, promised: Promised, tensor: Tensor) -> str:
    """The consequence in one sentence.

    Args:
        argument: the reader's argument: the tensor, or a view of it.
        promised: the layout that the reader was generated for.
        tensor: the tensor in this run.
    """
    subject = f"launch {reader.id} {reader.kernel}"
    if not traits_of(reader.site.kind).compiled_for_layouts:
        return f"{subject} reads it next"
    layout = tensor.layout
    verb = "reads and writes" if argument.written else "reads"
    expected, item = dtypes.item_bytes(promised.dtype), layout.item_bytes
    if expected and item and expected != item:
        return (
            f"{subject} {verb} {expected} bytes per element of a tensor with {item} bytes per element"
            f"{_past_the_end(promised, tensor)}"
        )
    if promised.dtype != layout.dtype:
        return f"{subject} {verb} its bytes as {promised.dtype}"
    if other_sizes(promised, layout):
        return f"{subject} accesses it as {promised}{_past_the_end(promised, tensor)}"
    if promised.device != layout.device:
        return f"{subject} uses its address as one of {promised.device}"
    return f"{subject} {verb} its elements in the wrong order, with the promised strides"


def _past_the_end(promised: Promised, tensor: Tensor) -> str:
    """ ", 64 bytes past the end of its memory"; "" if it stays inside or if that is unknown."""
    item = dtypes.item_bytes(promised.dtype)
    sizes = [size for size in promised.sizes if size is not None]
    strides = [stride for stride in promised.strides if stride is not None]
    if not item or len(sizes) != len(promised.sizes) or len(strides) != len(sizes):
        return ""
    extent = extent_elements(sizes, strides) * item
    available = tensor.layout.storage_bytes - tensor.layout.storage_offset * tensor.layout.item_bytes
    return f", up to {extent - available} bytes past the end of its memory" if extent > available else ""


class Blame:
    """Builds findings from the dataflow of a run."""

    def __init__(self, flow: Dataflow) -> None:
        self._flow = flow

    def producer_finding(self, launch: Launch, argument: Argument, tensor: Tensor, promised: Promised) -> Finding:
        """The finding of a tensor that is not as promised: the launch that produced it is to blame.

        Args:
            launch: the first one that has the tensor, as `argument`.
        """
        promise, real = layouts.contrast(promised, tensor.layout)
        input_ = input_or_weight_name(self._flow.run.manifest, argument)
        producer, result = (launch, argument) if input_ else self._producer(launch, argument)
        if input_:
            where = Place(input=input_, argument=argument.name)
            what = f"{input_} is {real} where {promise} was promised"
        else:
            where = self._place(producer, result)
            what = (
                f"{producer.kernel} {'returned' if producer.site.op else 'wrote'} {real} where {promise} was promised"
            )
        evidence = [
            f"{model_name(self._flow.run.manifest, argument)} was promised as {promised.full}",
            f"in launch {launch.id} it is {layouts.full(tensor.layout)}",
        ]
        if traits_of(producer.site.kind).user_operator and not input_:
            evidence.append(f"{producer.site.op}: its real kernel does not return what its fake kernel describes")
        readers = [(launch, argument)] if input_ or producer.key != launch.key else []
        readers += [(r, a) for r, a in self._flow.readers(producer, result) if r.key != launch.key]
        evidence += [consequence(reader, a, promised, tensor) for reader, a in readers[:_MAX_READERS]]
        if self._flow.is_output(argument):
            evidence.append("it is an output of the model")
        return Finding(CONTRACT, what, where=where, evidence=tuple(dict.fromkeys(evidence)))

    def reader_finding(self, launch: Launch, argument: Argument | None, clause: str, evidence: str = "") -> Finding:
        """The finding of a launch that cannot use what it was passed. A custom operator that produced it is to blame.

        Args:
            argument: the argument at fault; None if it is no single one.
            clause: the problem, as the predicate of the kernel: "was compiled for …".
            evidence: a further sentence, or ""; one with "may" is not observed.
        """
        is_possible = " may " in evidence
        sentences = [evidence] if evidence and not is_possible else []
        origin = None
        where = place_of(launch) if argument is None else self._place(launch, argument)
        if argument is not None and isinstance(argument.before, Tensor):
            writer = self._flow.writer(launch, argument)
            if writer.launch is not None and writer.argument is not None:
                origin = self._place(writer.launch, writer.argument)
                sentences.append(f"launch {writer.launch.id} {writer.launch.kernel} wrote it")
                where = origin if traits_of(writer.launch.site.kind).user_operator else where
            elif writer.input:
                origin = Place(input=writer.input)
                kind = kind_of_input(self._flow.run.manifest, writer.input)
                sentences.append(f"it is {writer.input}, {kind} of the model")
        return Finding(
            CONTRACT,
            f"{launch.kernel} {clause}",
            where=where,
            evidence=tuple(sentences),
            possible=(evidence,) if is_possible else (),
            origin=origin,
        )

    def _place(self, launch: Launch, argument: Argument) -> Place:
        return place_of(launch, argument.name, input_=input_or_weight_name(self._flow.run.manifest, argument))

    def _producer(self, launch: Launch, argument: Argument) -> tuple[Launch, Argument]:
        """The launch that produced a tensor, and its argument: this launch, or the one that wrote it before."""
        if not argument.written:
            writer = self._flow.writer(launch, argument)
            if writer.launch is not None and writer.argument is not None:
                return writer.launch, writer.argument
        return launch, argument

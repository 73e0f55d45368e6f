"""Says who broke a contract, and what that means to those who rely on it."""

from __future__ import annotations

from aoti_debug.diagnosis.dataflow import Dataflow, outside_name
from aoti_debug.diagnosis.findings import Finding, Place, place_of
from aoti_debug.rundir.timeline import Argument, Launch
from aoti_debug.triage.contracts import layouts, reader_effects
from aoti_debug.triage.contracts.kind import CONTRACT
from aoti_debug.triage.contracts.layouts import Promised
from aoti_debug.values import Tensor
from aoti_debug.wrapper.forms import traits_of

_MOST_READERS = 3


class Blame:
    def __init__(self, flow: Dataflow) -> None:
        self._flow = flow

    def maker(self, launch: Launch, argument: Argument, tensor: Tensor, promised: Promised) -> Finding:
        """A tensor that is not as promised: the launch that made it is to blame.

        Args:
            launch: the first one that has the tensor, as `argument`.
        """
        promise, real = layouts.contrast(promised, tensor.layout)
        input_ = outside_name(self._flow.run.manifest, argument)
        maker, made = (launch, argument) if input_ else self._made(launch, argument)
        if input_:
            where = Place(input=input_, argument=argument.name)
            what = f"{input_} is {real} where {promise} was promised"
        else:
            where = place_of(maker, made.name)
            what = f"{maker.kernel} {'returned' if maker.site.op else 'left'} {real} where {promise} was promised"
        evidence = [
            f"{argument.name} was promised as {promised.full}",
            f"in launch {launch.id} it is {layouts.full(tensor.layout)}",
        ]
        if traits_of(maker.site.kind).user_operator and not input_:
            evidence.append(f"{maker.site.op}: its real kernel does not return what its fake kernel foretold")
        reading = [(launch, argument)] if input_ or maker is not launch else []
        reading += [(r, a) for r, a in self._flow.readers(maker, made) if r is not launch]
        evidence += [reader_effects.consequence(reader, a, promised, tensor) for reader, a in reading[:_MOST_READERS]]
        if self._flow.is_output(argument):
            evidence.append("it leaves the model as an output")
        return Finding(CONTRACT, what, where=where, evidence=tuple(dict.fromkeys(evidence)))

    def reader(self, launch: Launch, argument: Argument | None, clause: str, evidence: str = "") -> Finding:
        """Something that a launch cannot use as it was given it. A custom operator that made it is to blame.

        Args:
            argument: None where it is none in particular.
            clause: what is wrong, behind the kernel's name.
        """
        told = [evidence] if evidence else []
        origin = None
        where = place_of(launch, argument.name if argument is not None else "")
        if argument is not None and isinstance(argument.before, Tensor):
            writer = self._flow.writer(launch, argument)
            if writer.launch is not None and writer.argument is not None:
                origin = place_of(writer.launch, writer.argument.name)
                told.append(f"launch {writer.launch.id} {writer.launch.kernel} wrote it")
                where = origin if traits_of(writer.launch.site.kind).user_operator else where
            elif writer.input:
                origin = Place(input=writer.input)
                told.append(f"it is {writer.input}, which came into the model from outside")
        return Finding(
            CONTRACT,
            f"{launch.kernel} {clause}",
            where=where,
            evidence=tuple(told),
            origin=origin,
        )

    def _made(self, launch: Launch, argument: Argument) -> tuple[Launch, Argument]:
        """The launch that made a tensor: this one, or the one that wrote it before."""
        if not argument.written:
            writer = self._flow.writer(launch, argument)
            if writer.launch is not None and writer.argument is not None:
                return writer.launch, writer.argument
        return launch, argument

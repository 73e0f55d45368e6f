"""The launches of a run as calls."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from aoti_debug.base.abi import Phase
from aoti_debug.package.manifest import Role
from aoti_debug.package.recording.values import Tensor
from aoti_debug.package.reference.program import Reference
from aoti_debug.runs.rundir.formats.journal_records import LaunchKey
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.timeline import Argument, Launch, LaunchStatus
from aoti_debug.runs.show.argument_statistics import Measurer
from aoti_debug.views.call_text.call import Call, CallTensor, common_known_module
from aoti_debug.views.call_text.fused_operators import FusedOperators
from aoti_debug.views.call_text.operator_arguments import argument_texts, number_texts, operator_name
from aoti_debug.views.call_text.tensor_numbers import TensorNumbers

_READS = (Role.IN, Role.INOUT, Role.UNKNOWN)


class RecordedCalls:
    """Words the launches of one call of the model, in their order.

    Args:
        reference: the graph of the package; None if it holds none.
        hashes: the text of tensors contains the hashes of their bytes.
        measurer: measures the tensors for conditions; None if none are asked for.
    """

    def __init__(self, run: RunDir, reference: Reference | None, hashes: bool, measurer: Measurer | None) -> None:
        self._run = run
        self._hashes = hashes
        self._measurer = measurer
        self._fused = FusedOperators(run.manifest, reference)
        known = {path for site in run.manifest.sites for path in site.provenance.modules}
        self._modules = {site.id: common_known_module(site.provenance.modules, known) for site in run.manifest.sites}

    def calls(self, launches: Iterable[Launch], wanted: Collection[LaunchKey]) -> Iterator[Call]:
        """Yields a call for each wanted launch; the others only number their tensors.

        Args:
            launches: all of one call of the model.
        """
        numbers = TensorNumbers()
        for launch in launches:
            if launch.key in wanted:
                yield self._call(launch, numbers)
            else:
                for phase, arguments in _phased(*_tensors(launch)):
                    for argument in arguments:
                        _number(argument, phase, numbers)

    def _call(self, launch: Launch, numbers: TensorNumbers) -> Call:
        site = launch.site
        read, written = _tensors(launch)
        tensors = {
            (a.slot, phase): self._tensor(a, phase, numbers) for phase, args in _phased(read, written) for a in args
        }
        if site.op:
            schema = self._run.manifest.operator(site.op)
            arguments = argument_texts(
                site, schema, launch.args, lambda a: str(tensors.get((a.slot, Phase.BEFORE)) or "None")
            )
        else:
            arguments = (*(str(tensors[a.slot, Phase.BEFORE]) for a in read), *number_texts(launch.args))
        operators = () if site.op else self._fused.of_site(site, numbers)
        note = launch.id if launch.status is LaunchStatus.RETURNED else f"{launch.id}, {launch.status.value}"
        note += f", replay {launch.replay}" if launch.replay is not None else ""
        return Call(
            operator=operator_name(site.op) if site.op else site.kernel,
            arguments=arguments,
            outputs=tuple(dict.fromkeys(str(tensors[a.slot, Phase.AFTER]) for a in written)),
            module=self._modules[site.id],
            tensors=tuple(tensors.values()),
            note=note,
            operators=operators,
        )

    def _tensor(self, argument: Argument, phase: Phase, numbers: TensorNumbers) -> CallTensor:
        layout = argument.layout
        assert layout is not None
        recorded, saved = argument.stats.get(phase), argument.files.get(phase)
        hash_ = ""
        if self._hashes and recorded is not None and recorded.hash is not None:
            hash_ = f"{recorded.hash:016x}"
        elif self._hashes and saved is not None and saved.path:
            hash_ = f"{saved.hash[0]:016x}"
        statistics = None if self._measurer is None else self._measurer.measure(argument, phase).statistics
        id_ = _number(argument, phase, numbers)
        return CallTensor(id_, layout.dtype, tuple(map(str, layout.shape)), hash_, statistics)


def _tensors(launch: Launch) -> tuple[list[Argument], list[Argument]]:
    """The tensors that a launch reads, and those that it writes."""
    tensors = [argument for argument in launch.args if argument.layout is not None]
    return [a for a in tensors if a.role in _READS], [a for a in tensors if a.written]


def _number(argument: Argument, phase: Phase, numbers: TensorNumbers) -> str:
    value = argument.before if phase is Phase.BEFORE else argument.after
    if not isinstance(value, Tensor):
        return numbers.id(argument.name)
    name_tensor = numbers.read if phase is Phase.BEFORE else numbers.written
    return name_tensor(argument.name, value.data_ptr, value.layout.numel)


def _phased(read: list[Argument], written: list[Argument]) -> tuple[tuple[Phase, list[Argument]], ...]:
    return (Phase.BEFORE, read), (Phase.AFTER, written)

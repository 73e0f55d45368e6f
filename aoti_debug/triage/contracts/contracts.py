"""Contract checks: is every tensor of a run what the graph promised, and where its readers look for it?

Needs only the journal, so that a run at any level from 1 on will do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from aoti_debug.abi import CallKind
from aoti_debug.diagnosis.dataflow import Dataflow
from aoti_debug.diagnosis.findings import Finding, Place
from aoti_debug.errors import InputMismatch
from aoti_debug.inputs.symbolic_sizes import Symbols, is_size
from aoti_debug.manifest import Manifest, Promise
from aoti_debug.rundir.timeline import Argument, Launch
from aoti_debug.triage.contracts import aliases, bounds, layouts
from aoti_debug.triage.contracts.blame import Blame
from aoti_debug.triage.contracts.kind import CONTRACT
from aoti_debug.triage.contracts.layouts import Devices, Promised
from aoti_debug.triage.contracts.specialisation import Specialisations
from aoti_debug.values import Number, Tensor
from aoti_debug.wrapper.promised_layouts import FOLDING, MODEL, UNKNOWN


def check(flow: Dataflow) -> tuple[Finding, ...]:
    """Every broken contract of a run, one finding a cause, the first broken first; shared memory last."""
    return (*_Check(flow).findings(), *aliases.check(flow.run)) if flow.run.launches else ()


def input_finding(error: InputMismatch) -> Finding:
    """Inputs that the model was not exported for, as a finding."""
    first = error.mismatches[0]
    return Finding(
        CONTRACT,
        first.sentence,
        where=Place(input=first.name),
        evidence=tuple(found.sentence for found in error.mismatches[1:]),
        next=tuple(dict.fromkeys(found.advice for found in error.mismatches)),
    )


def zero_sized(launch: Launch) -> tuple[Argument, ...]:
    """The tensors without elements among a launch's arguments: nothing wrong in themselves."""
    tensors = ((argument, argument.tensor) for argument in launch.args)
    return tuple(argument for argument, tensor in tensors if tensor is not None and tensor.layout.numel == 0)


@dataclass
class _Call:
    """What is known of one call of the model.

    Attributes:
        scopes: of the branches and loops, by name and iteration: what only the run tells may differ in each.
        broken: the storages of tensors that broke their promise, by address. What is wrong with whatever was made of
            them is no cause.
    """

    symbols: Symbols = field(default_factory=Symbols)
    scopes: dict[tuple[str, tuple[int, ...]], Symbols] = field(default_factory=dict)
    broken: set[int] = field(default_factory=set)

    def scope(self, launch: Launch) -> Symbols:
        key = (launch.site.subgraph, launch.loops)
        return self.scopes.setdefault(key, Symbols(self.symbols)) if any(key) else self.symbols


class _Check:
    def __init__(self, flow: Dataflow) -> None:
        run = flow.run
        self._run = run
        self._blame = Blame(flow)
        self._devices = Devices(run)
        self._specialisations = Specialisations(run.manifest)
        self._promises = {(promise.function, promise.name): promise for promise in _promises(run.manifest)}
        self._fixed: dict[tuple[str, str], Promised] = {}  # promises without symbols
        self._inputs = frozenset(run.manifest.inputs)
        self._calls: dict[tuple[CallKind, int], _Call] = {}
        self._told: set[tuple[str, str]] = set()

    def findings(self) -> Iterator[Finding]:
        for launch in self._run.launches:
            self._learn_from_inputs(launch)
        for launch in self._run.launches:
            yield from self._launch(launch)

    def _call(self, launch: Launch) -> _Call:
        return self._calls.setdefault((launch.key.kind, launch.key.call), _Call())

    def _promise(self, launch: Launch, argument: Argument) -> Promise | None:
        return self._promises.get((launch.site.function, argument.name))

    def _learn_from_inputs(self, launch: Launch) -> None:
        """The sizes of symbols: what came in decides before anything that was made of it."""
        for argument in launch.args:
            if argument.name in self._inputs and isinstance(argument.before, Tensor):
                _bind(self._call(launch).symbols, self._promise(launch, argument), argument.before)

    def _launch(self, launch: Launch) -> Iterator[Finding]:
        call = self._call(launch)
        symbols = call.scope(launch)
        for argument in launch.args:
            value = argument.before
            if isinstance(value, Number) and isinstance(value.value, int) and is_size(argument.spec.text):
                symbols.bind(argument.spec.text, value.value)
        given = {argument.before.storage_ptr for argument in launch.args if isinstance(argument.before, Tensor)}
        follows = bool(given & call.broken)
        found: list[Finding] = []
        for argument in {argument.name: argument for argument in launch.args}.values():
            tensor = argument.tensor
            if tensor is not None and tensor.layout.kind == "strided":
                found += self._tensor(launch, argument, tensor, symbols, call, follows)
        if not found and not follows:
            found += self._specialised(launch)
        yield from found

    def _tensor(
        self, launch: Launch, argument: Argument, tensor: Tensor, symbols: Symbols, call: _Call, follows: bool
    ) -> Iterator[Finding]:
        """
        Args:
            follows: the launch was given a tensor that broke its promise; what it makes of it is no cause.
        """
        made = not isinstance(argument.before, Tensor)
        consequence = follows if made else tensor.storage_ptr in call.broken
        promise = self._promise(launch, argument)
        if promise is not None:
            _bind(symbols, promise, tensor)
            promised = self._settled(promise, symbols)
            if layouts.differs(promised, tensor.layout):
                call.broken.add(tensor.storage_ptr)
                if not consequence and self._first(launch.site.function, argument.name):
                    yield self._blame.maker(launch, argument, tensor, promised)
                return
        problem = bounds.problem(launch, argument, tensor, self._devices.model)
        if problem:
            call.broken.add(tensor.storage_ptr)
            if not consequence and self._first(launch.site.function, argument.name):
                yield self._blame.reader(launch, argument, f"was given {argument.name}: {problem}")
        elif promise is not None:
            call.broken.discard(tensor.storage_ptr)  # the memory belongs to another tensor now

    def _settled(self, promise: Promise, symbols: Symbols) -> Promised:
        key = (promise.function, promise.name)
        known = self._fixed.get(key)
        if known is None:
            known = layouts.settle(promise, symbols, self._devices.real(promise.device))
            if all(size.isdigit() for size in (*promise.sizes, *promise.strides)):
                self._fixed[key] = known
        return known

    def _specialised(self, launch: Launch) -> Iterator[Finding]:
        for broken in self._specialisations.broken(launch):
            if self._first(launch.site.kernel, broken.parameter):
                yield self._blame.reader(launch, launch.argument(broken.argument), broken.what, broken.evidence)

    def _first(self, owner: str, name: str) -> bool:
        """Whether nothing was said of it yet."""
        told = (owner, name) in self._told
        self._told.add((owner, name))
        return not told


def _bind(symbols: Symbols, promise: Promise | None, tensor: Tensor) -> None:
    if promise is not None and len(promise.sizes) == len(tensor.layout.shape):
        for size, real in zip(promise.sizes, tensor.layout.shape, strict=True):
            symbols.bind(size, real)


def _promises(manifest: Manifest) -> Iterator[Promise]:
    """Those of weights, which the generated code names, and of everything else."""
    for constant in manifest.constants:
        shape, strides = tuple(map(str, constant.shape)), tuple(map(str, constant.strides))
        for function in (MODEL, FOLDING):
            yield Promise(constant.name, UNKNOWN, constant.dtype, shape, strides, function)
    yield from manifest.promises

"""Contract checks: every tensor of a run against what the graph promised and what its readers expect.

They need only the journal, so any run at level 1 or above will do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from aoti_debug.base import dtypes
from aoti_debug.base.errors import InputMismatch
from aoti_debug.instrument.wrapper.promised_layouts import FOLDING, MODEL, UNKNOWN
from aoti_debug.package.argument_values import Layout, Number, Tensor, extent_elements
from aoti_debug.package.inputs.symbolic_sizes import Symbols, is_size
from aoti_debug.package.launch_traits import RunsOn, traits_of
from aoti_debug.package.manifest import CType, Manifest, Promise
from aoti_debug.runs.diagnosis.dataflow import Dataflow, input_or_weight_name, kind_of_input, model_name
from aoti_debug.runs.diagnosis.findings import Finding, Place, place_of
from aoti_debug.runs.rundir.launch import Argument, Launch
from aoti_debug.triage.contracts import layouts
from aoti_debug.triage.contracts.layouts import Devices, Promised, describe, other_sizes
from aoti_debug.triage.contracts.specialisation import Specialisations
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


def problem(launch: Launch, argument: Argument, tensor: Tensor, device: str) -> str:
    """The problem of an argument with its memory: "float32[4] without memory: …"; "" if there is none.

    Args:
        device: the model's device: "cuda:0", or "cuda" if the index is unknown.
    """
    layout = tensor.layout
    if layout.numel == 0:
        return ""
    if tensor.data_ptr == 0 and layout.item_bytes > 0:
        return f"{describe(layout)} without memory: its address is 0"
    return _outside_of_storage(tensor) or _on_another_device(launch, argument, layout, device)


def _outside_of_storage(tensor: Tensor) -> str:
    layout = tensor.layout
    if layout.item_bytes == 0:
        return ""
    if layout.storage_offset < 0:
        return f"{describe(layout)} at element {layout.storage_offset} of its storage: before its beginning"
    offset = layout.storage_offset * layout.item_bytes
    end = offset + tensor.layout.extent_bytes
    if end <= layout.storage_bytes:
        return ""
    return f"{describe(layout)} from byte {offset} to byte {end} of a storage of {layout.storage_bytes} bytes"


def _on_another_device(launch: Launch, argument: Argument, layout: Layout, device: str) -> str:
    """The problem of an address on another device; operators check their devices themselves."""
    runs_on = traits_of(launch.site.kind).runs_on
    if runs_on is RunsOn.HOST:
        differs = layout.device != "cpu"
        device = "cpu"
    else:
        differs = runs_on is RunsOn.DEVICE and not (
            layout.device == device or (":" not in device and layout.device.startswith(device))
        )
    if not differs or not _is_address(launch, argument):
        return ""
    return f"{describe(layout)} on {layout.device}, but the kernel runs on {device}"


def _is_address(launch: Launch, argument: Argument) -> bool:
    """True if the kernel gets the tensor's address.

    Of a CPU tensor with one element the generated code may read the number and pass that instead.
    """
    kinds = {value.name: value.value.type for grid in launch.grids for value in grid.arguments}
    if argument.spec.param in kinds:
        return kinds[argument.spec.param] is CType.ADDRESS
    return argument.layout is not None and len(argument.layout.shape) > 0


def check(flow: Dataflow) -> tuple[Finding, ...]:
    """The broken contracts of a run, one finding for each cause, in order; shared memory last."""
    return (*_ContractCheck(flow).findings(), *layouts.check_aliases(flow.run)) if flow.run.launches else ()


def input_finding(error: InputMismatch) -> Finding:
    """The finding of inputs that the model was not exported for, or of weights that it was not compiled for."""
    first = error.mismatches[0]
    position = "" if first.position < 0 else str(first.position)
    kind = "input" if position else "weight" if first.name else ""
    return Finding(
        CONTRACT,
        first.sentence,
        where=Place(input=first.name or position, input_kind=kind),
        evidence=tuple(mismatch.sentence for mismatch in error.mismatches[1:]),
        next=tuple(dict.fromkeys(_in_one_line(mismatch.advice) for mismatch in error.mismatches)),
    )


def _in_one_line(advice: str) -> str:
    """ "the model takes: x float32[8] on cpu, y float32[8] on cpu"."""
    first, *others = map(str.strip, advice.splitlines())
    return f"{first} {', '.join(others)}" if others else first


def zero_sized(launch: Launch) -> tuple[Argument, ...]:
    """The tensors without elements among a launch's arguments (which are no error in themselves)."""
    tensors = ((argument, argument.tensor) for argument in launch.args)
    return tuple(argument for argument, tensor in tensors if tensor is not None and tensor.layout.numel == 0)


@dataclass
class _Call:
    """The state of the checks in one call of the model.

    Attributes:
        symbols: the sizes of symbols, bound so far.
        scopes: the symbols of branches and loops, by name and iteration: unbacked sizes may differ in each.
        broken: the storages of tensors that broke their promise, by address. Problems of tensors computed from them
            are consequences, and not reported.
    """

    symbols: Symbols = field(default_factory=Symbols)
    scopes: dict[tuple[str, tuple[int, ...]], Symbols] = field(default_factory=dict)
    broken: set[int] = field(default_factory=set)

    def scope(self, launch: Launch) -> Symbols:
        """The symbols that hold for a launch."""
        key = (launch.site.subgraph, launch.loops)
        if not any(key):
            return self.symbols
        symbols = self.scopes.get(key)
        if symbols is None:
            symbols = self.scopes[key] = Symbols(self.symbols)
        return symbols


class _ContractCheck:
    def __init__(self, flow: Dataflow) -> None:
        run = flow.run
        self._run = run
        self._blame = Blame(flow)
        self._devices = Devices(run)
        self._specialisations = Specialisations(run.manifest)
        self._promises = {(promise.function, promise.name): promise for promise in _promises(run.manifest)}
        self._fixed: dict[tuple[str, str], Promised] = {}  # promises without symbols
        self._inputs = frozenset(run.manifest.inputs)
        self._reported: set[tuple[str, str]] = set()
        self._sound: set[tuple[int, int, int]] = set()  # site, argument and layout of what kept its promise
        self._plain_sites: dict[int, bool] = {}  # True: none of its arguments is the size of a tensor

    def findings(self) -> Iterator[Finding]:
        reading = {s.id for s in self._run.manifest.sites if self._inputs.intersection(arg.name for arg in s.args)}
        for launches in self._run.launches.by_call():
            call = _Call()
            for launch in launches:
                if launch.site.id in reading:
                    self._bind_input_sizes(launch, call)
            for launch in launches:
                if not self._is_like_earlier_ones(launch, call):
                    yield from self._check_launch(launch, call)

    def _is_like_earlier_ones(self, launch: Launch, call: _Call) -> bool:
        """True if nothing about a launch is new: its tensors have layouts that were sound, and it binds no size."""
        site = launch.site
        if site.id not in self._plain_sites:
            self._plain_sites[site.id] = not any(is_size(spec.text) for spec in site.args)
        if not self._plain_sites[site.id] or launch.has_grids or call.broken:
            return False
        for slot, tensor in enumerate(launch.tensors()):
            if tensor is None or tensor.layout.kind != "strided":
                continue
            if not tensor.data_ptr or (site.id, slot, id(tensor.layout)) not in self._sound:
                return False
        return True

    def _promise(self, launch: Launch, argument: Argument) -> Promise | None:
        return self._promises.get((launch.site.function, argument.name))

    def _bind_input_sizes(self, launch: Launch, call: _Call) -> None:
        """Binds symbols to the sizes of inputs, which have priority over sizes of other tensors."""
        for argument in launch.args:
            if argument.name in self._inputs and isinstance(argument.before, Tensor):
                _bind(call.symbols, self._promise(launch, argument), argument.before)

    def _check_launch(self, launch: Launch, call: _Call) -> Iterator[Finding]:
        symbols = call.scope(launch)
        for argument in launch.args:
            value = argument.before
            if isinstance(value, Number) and isinstance(value.value, int) and is_size(argument.spec.text):
                symbols.bind(argument.spec.text, value.value)
        read = (argument.before for argument in launch.args)
        reads_broken = bool(call.broken) and any(isinstance(t, Tensor) and t.storage_ptr in call.broken for t in read)
        findings: list[Finding] = []
        for argument in {argument.name: argument for argument in launch.args}.values():
            tensor = argument.tensor
            if tensor is not None and tensor.layout.kind == "strided":
                findings += self._check_tensor(launch, argument, tensor, symbols, call, reads_broken=reads_broken)
        if not findings and not reads_broken:
            findings += self._check_specialisations(launch)
        yield from findings

    def _check_tensor(
        self, launch: Launch, argument: Argument, tensor: Tensor, symbols: Symbols, call: _Call, *, reads_broken: bool
    ) -> Iterator[Finding]:
        """The findings of one argument: its promise, then the place of its elements.

        Args:
            reads_broken: the launch reads a tensor that broke its promise; what it computes from it is a consequence.
        """
        is_new = not isinstance(argument.before, Tensor)
        is_consequence = reads_broken if is_new else tensor.storage_ptr in call.broken
        promise = self._promise(launch, argument)
        # a launch of a loop is like the ones before it; the layouts of a run live as long as the run
        sound = (launch.site.id, argument.slot, id(tensor.layout))
        if sound in self._sound and tensor.data_ptr:
            if promise is not None:
                call.broken.discard(tensor.storage_ptr)
            return
        if promise is not None:
            _bind(symbols, promise, tensor)
            promised = self._resolve(promise, symbols)
            if layouts.differs(promised, tensor.layout):
                call.broken.add(tensor.storage_ptr)
                if not is_consequence and self._is_first_report(launch.site.function, argument.name):
                    yield self._blame.producer_finding(launch, argument, tensor, promised)
                return
        found = problem(launch, argument, tensor, self._devices.model)
        if found:
            call.broken.add(tensor.storage_ptr)
            if not is_consequence and self._is_first_report(launch.site.function, argument.name):
                name = model_name(self._run.manifest, argument)
                yield self._blame.reader_finding(launch, argument, f"was passed {name}: {found}")
        else:
            if promise is not None:
                call.broken.discard(tensor.storage_ptr)  # the memory belongs to another tensor now
            if promise is None or (promise.function, promise.name) in self._fixed:
                self._sound.add(sound)

    def _resolve(self, promise: Promise, symbols: Symbols) -> Promised:
        key = (promise.function, promise.name)
        promised = self._fixed.get(key)
        if promised is None:
            promised = layouts.resolve(promise, symbols, self._devices.real(promise.device))
            if all(size.isdigit() for size in (*promise.sizes, *promise.strides)):
                self._fixed[key] = promised
        return promised

    def _check_specialisations(self, launch: Launch) -> Iterator[Finding]:
        for broken in self._specialisations.broken_assumptions(launch):
            if self._is_first_report(launch.site.kernel, broken.parameter):
                yield self._blame.reader_finding(launch, launch.argument(broken.argument), broken.what, broken.evidence)

    def _is_first_report(self, owner: str, name: str) -> bool:
        """True if nothing was reported for the name yet; from now on it counts as reported."""
        reported = (owner, name) in self._reported
        self._reported.add((owner, name))
        return not reported


def _bind(symbols: Symbols, promise: Promise | None, tensor: Tensor) -> None:
    if promise is not None and len(promise.sizes) == len(tensor.layout.shape):
        for size, real in zip(promise.sizes, tensor.layout.shape, strict=True):
            symbols.bind(size, real)


def _promises(manifest: Manifest) -> Iterator[Promise]:
    """The promises of weights, made from the generated code's constants, and those of the manifest."""
    for constant in manifest.constants:
        shape, strides = tuple(map(str, constant.shape)), tuple(map(str, constant.strides))
        for function in (MODEL, FOLDING):
            yield Promise(constant.name, UNKNOWN, constant.dtype, shape, strides, function)
    yield from manifest.promises

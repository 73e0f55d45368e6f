"""Layouts and memory against what the graph promised: compares layouts; finds aliases that the graph does not know of.

Shared memory is harmless as long as it is only read: it is a finding only if a launch writes to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from aoti_debug.base.frozen import dataclass
from aoti_debug.instrument.wrapper.promised_layouts import UNKNOWN
from aoti_debug.package.argument_values import Layout, Tensor
from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.launch_traits import traits_of
from aoti_debug.package.manifest import Promise, Site
from aoti_debug.runs.diagnosis.dataflow import ByteRange, input_or_weight_name, model_name, span_of
from aoti_debug.runs.diagnosis.findings import Finding, Place, place_of
from aoti_debug.runs.rundir.launch import Argument, Launch
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.triage.results.finding_kinds import CONTRACT

_ATEN = "aten."


def check_aliases(run: RunDir) -> tuple[Finding, ...]:
    """Findings of overlapping inputs and of custom operators that return views, if a launch writes to the memory."""
    names, sites = set(run.manifest.inputs), run.manifest.sites
    reading = {site.id for site in sites if not names.isdisjoint(spec.name for spec in site.args)}
    custom = {site.id for site in sites if _promises_a_new_tensor(run, site)}
    findings: list[Finding] = []
    for launches in run.launches.by_call(reading | custom):
        findings += _shared_inputs(run, [launch for launch in launches if launch.site.id in reading])
        findings += _view_results(run, [launch for launch in launches if launch.site.id in custom])
    return tuple({finding.what: finding for finding in findings}.values())


def _shared_inputs(run: RunDir, reading: Sequence[Launch]) -> Iterator[Finding]:
    names = set(run.manifest.inputs)
    inputs = {a.name: (a, s) for x in reading for a in x.args if a.name in names and (s := span_of(a)) is not None}
    for (first_input, first), (second_input, second) in combinations(inputs.values(), 2):
        if not first.overlaps(second):
            continue
        shared = tuple(input_or_weight_name(run.manifest, argument) for argument in (first_input, second_input))
        for launch in run.launches.of_call(reading[0]):
            changed = _written(launch, (first, second))
            if changed is None:
                continue
            name = input_or_weight_name(run.manifest, changed)
            yield Finding(
                CONTRACT,
                f"the inputs {shared[0]} and {shared[1]} share memory, and the model writes to it",
                where=Place(input=name if name in shared else shared[0], argument=changed.name),
                evidence=(
                    f"launch {launch.id} {launch.kernel} writes to {name}; the model was compiled for inputs "
                    "that do not share memory",
                    f"{shared[0]} lies at {first.begin:#x} to {first.end:#x}, {shared[1]} at {second.begin:#x} to "
                    f"{second.end:#x}",
                ),
                next=(f"pass a copy: {shared[0]}.clone()",),
            )
            break


def _view_results(run: RunDir, custom: Sequence[Launch]) -> Iterator[Finding]:
    for launch in custom:
        for result, argument in _shared(launch):
            spans = tuple(s for s in (span_of(result), span_of(argument)) if s is not None)
            later = run.launches.later_in_call(launch)
            writer = next((x for x in later if _written(x, spans, result.name, argument.name) is not None), None)
            if writer is None:
                continue
            name = model_name(run.manifest, argument)
            yield Finding(
                CONTRACT,
                f"{launch.kernel} returned a view of its argument {name}, not a new tensor",
                where=place_of(launch, result.name),
                evidence=(
                    f"launch {writer.id} {writer.kernel} writes to the memory that {result.name} and {name} share",
                    f"{launch.site.op}: its schema promises a new tensor; return result.clone(), or declare the alias",
                ),
            )


def _promises_a_new_tensor(run: RunDir, site: Site) -> bool:
    """True for a custom operator whose results are not declared to share memory with its arguments."""
    is_custom = traits_of(site.kind).user_operator and not site.op.startswith(_ATEN)
    return is_custom and not _may_return_view(run, site.op)


def _may_return_view(run: RunDir, op: str) -> bool:
    """True if an operator's schema declares that a result may share memory with an argument: `-> Tensor(a)`."""
    schema = run.manifest.operator(op)
    return schema is not None and "Tensor(" in schema.text.rpartition("->")[2]


def _shared(launch: Launch) -> Iterator[tuple[Argument, Argument]]:
    """New tensors of a launch, each with an argument whose memory it shares."""
    arguments = {a.name: a for a in launch.args if isinstance(a.before, Tensor)}
    for result in launch.args:
        span = span_of(result)
        if isinstance(result.before, Tensor) or span is None:
            continue
        for argument in arguments.values():
            argument_span = span_of(argument)
            if argument_span is not None and span.overlaps(argument_span):
                yield result, argument


def _written(launch: Launch, spans: tuple[ByteRange, ...], *names: str) -> Argument | None:
    """The argument by which a launch writes to all the spans; with `names`, one of those or a view of one."""
    for argument in launch.args:
        span = span_of(argument)
        is_named = not names or argument.name in names or argument.spec.base in names
        if argument.written and span is not None and is_named and all(span.overlaps(other) for other in spans):
            return argument
    return None


@dataclass(frozen=True)
class Promised:
    """A promise with the sizes that its symbols have in one call; None for unknown sizes and strides.

    Attributes:
        device: "cpu", "cuda:0", "cuda" for any CUDA device, "" for any device.
    """

    device: str
    dtype: str
    sizes: tuple[int | None, ...]
    strides: tuple[int | None, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{_numbers(self.sizes)}]"

    @property
    def full(self) -> str:
        """ "float32[4, 8], strides [8, 1], on cpu"."""
        return f"{self}, strides [{_numbers(self.strides)}]" + (f", on {self.device}" if self.device else "")


def resolve(promise: Promise, symbols: Symbols, device: str) -> Promised:
    """The promise with its symbols replaced by their sizes.

    Args:
        device: the device on which the tensor has to be in this run.
    """
    return Promised(
        device,
        promise.dtype,
        tuple(symbols.value(size) for size in promise.sizes),
        tuple(symbols.value(stride) for stride in promise.strides),
    )


def differs(promised: Promised, real: Layout) -> bool:
    """True if the dtype, device, sizes or strides differ from the promise."""
    return (
        promised.dtype != real.dtype
        or _other_device(promised, real)
        or other_sizes(promised, real)
        or _other_strides(promised, real)
    )


def contrast(promised: Promised, real: Layout) -> tuple[str, str]:
    """(promised, real) as texts that include strides and devices only if they differ."""
    promised_text, real_text = str(promised), describe(real)
    if _other_strides(promised, real):
        promised_text += f" with strides [{_numbers(promised.strides)}]"
        real_text += f" with strides [{_numbers(real.strides)}]"
    if _other_device(promised, real):
        promised_text += f" on {promised.device}"
        real_text += f" on {real.device}"
    return promised_text, real_text


def other_sizes(promised: Promised, real: Layout) -> bool:
    """True if the number of dimensions or a known size differs from the promise."""
    if len(promised.sizes) != len(real.shape):
        return True
    return any(a is not None and a != b for a, b in zip(promised.sizes, real.shape, strict=True))


def describe(layout: Layout) -> str:
    """ "float32[4, 8]"."""
    return f"{layout.dtype}[{_numbers(layout.shape)}]"


def full(layout: Layout) -> str:
    """ "float32[4, 8], strides [8, 1], on cpu, in a storage of 128 bytes"."""
    strides = f"strides [{_numbers(layout.strides)}]"
    return f"{describe(layout)}, {strides}, on {layout.device}, in a storage of {layout.storage_bytes} bytes"


def _other_strides(promised: Promised, real: Layout) -> bool:
    """True if a stride differs in a dimension with more than one element; False if the sizes differ already."""
    if real.numel == 0 or other_sizes(promised, real) or len(promised.strides) != len(real.strides):
        return False
    return any(
        size > 1 and a is not None and a != b
        for size, a, b in zip(real.shape, promised.strides, real.strides, strict=True)
    )


def _other_device(promised: Promised, real: Layout) -> bool:
    if not promised.device:
        return False
    device = real.device if ":" in promised.device else real.device.partition(":")[0]
    return device != promised.device


def _numbers(numbers: Sequence[int | None]) -> str:
    return ", ".join("?" if number is None else str(number) for number in numbers)


class Devices:
    """Maps promised devices to those of a run: a package that was compiled for cuda:0 may run on cuda:1.

    Attributes:
        model: the model's device: "cpu", "cuda:0"; "cuda" if no launch shows the index.
    """

    def __init__(self, run: RunDir) -> None:
        self._compiled_for = _most_common(promise.device for promise in run.manifest.promises)
        self.model = _model_device(run)

    def real(self, promised: str) -> str:
        """The device that a promise means in this run."""
        if promised != UNKNOWN and promised == self._compiled_for and not promised.startswith(self.model):
            return self.model
        return promised if ":" in self.model else promised.partition(":")[0]


def _model_device(run: RunDir) -> str:
    """The device of most buffers that launches write; most of them are the model's own."""
    kind = run.manifest.device
    if kind == "cpu":
        return kind
    device = _most_common(
        argument.tensor.layout.device
        for launch in run.launches
        for argument in launch.args
        if argument.tensor is not None and argument.written and argument.name not in run.manifest.inputs
    )
    return device or kind


def _most_common(devices: Iterable[str]) -> str:
    """The most common device other than the CPU; "" if there is none."""
    counts = Counter(device for device in devices if device.partition(":")[0] not in ("", "cpu"))
    return max(counts, key=lambda device: counts[device], default="")

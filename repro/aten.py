"""ATen launches through the C shim: a call of torch.ops with the recorded arguments."""

from __future__ import annotations

import keyword
from collections.abc import Callable

from aoti_debug.base import dtypes
from aoti_debug.base.dtypes import LAYOUTS, device_name
from aoti_debug.base.errors import UsageError
from aoti_debug.package.argument_values import Number
from aoti_debug.package.manifest import Form, Kind, Manifest, OperatorSchema, Parameter
from aoti_debug.repro import literals, operators
from aoti_debug.repro.arguments import ReproArguments
from aoti_debug.repro.operators import is_operator, with_operator_libraries
from aoti_debug.repro.recorded_launch import RecordedLaunch, RecordedSlot
from aoti_debug.repro.script import Script, call

MEMORY_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")


def refusal(launch: RecordedLaunch, manifest: Manifest) -> str:
    """Returns the reason why a launch of this kind cannot be replayed; "" if it can."""
    site = launch.site
    if site.callee in WRITTEN_BY_HAND:
        return ""
    if site.op and not is_operator(site.op):
        return f"{site.op!r} is not the name of an operator"
    if site.op:
        return operators.missing(site.op, manifest)
    if site.kind is Kind.CUSTOM_SHIM:
        return "the package does not say which operator it is; build it again with this version"
    return f"the operator behind {site.callee} is not known"


def script(launch: RecordedLaunch, manifest: Manifest, arguments: ReproArguments) -> Script:
    """Returns what the launch contributes to repro.py.

    Raises:
        UsageError: the call does not fit the operator's schema, or a value that it passed was not recorded.
    """
    site = launch.site
    if site.callee in WRITTEN_BY_HAND:
        return WRITTEN_BY_HAND[site.callee](launch, arguments)
    operator = manifest.operator(site.op)
    assert operator is not None
    called = script_for(operators.of_version(operator, site.callee), launch, arguments)
    return with_operator_libraries(manifest, site.op, called)


def script_for(signature: OperatorSchema, launch: RecordedLaunch, arguments: ReproArguments) -> Script:
    """Returns the call of an operator with this schema."""
    outputs = [s.arg.value for s in launch.slots if s.arg.form is Form.OUTPUT_SLOT]
    first_result = min([operators.width(signature), *outputs])
    positional: list[str] = []
    named: list[str] = []
    values: dict[str, str] = {}
    for at, parameter in sorted(operators.in_c(signature), key=lambda item: signature.parameters.index(item[1])):
        if at >= first_result:
            if not parameter.default:
                raise _misfit(launch, f"{parameter.name} has no default and is not passed")
            continue
        value = values[parameter.name] = _ShimArguments(launch, arguments).value(at, parameter)
        by_position = not parameter.keyword_only and not named and parameter.type == "Tensor"
        if by_position or (keyword.iskeyword(parameter.name) and not named):
            positional.append(value)
        elif keyword.iskeyword(parameter.name):
            named.append(f"**{{{literals.text(parameter.name)}: {value}}}")
        else:
            named.append(f"{parameter.name}={value}")
    targets = _targets(signature, launch, arguments, first_result)
    line = call(f"{_prefix(targets)}torch.ops.{signature.op}", [*positional, *named])
    made = tuple(name for name in targets if name != "_")
    return Script((line,), made=made, random=_random(signature, values), imports=literals.imports_of(line))


def _prefix(targets: list[str]) -> str:
    return f"{', '.join(targets)} = " if any(name != "_" for name in targets) else ""


def _targets(
    signature: OperatorSchema, launch: RecordedLaunch, arguments: ReproArguments, first_result: int
) -> list[str]:
    """The variables for the results, in their order; "_" for one that the model does not use."""
    made = {s.arg.value - first_result: s for s in launch.slots if s.arg.form is Form.OUTPUT_SLOT}
    if max(made, default=-1) >= signature.returns:
        raise _misfit(launch, f"it returns {signature.returns} values and the model uses {max(made) + 1}")
    result_names = {r.slot.arg.name for r in arguments.results}
    return [
        arguments.names[made[i].arg.name] if i in made and made[i].arg.name in result_names else "_"
        for i in range(signature.returns)
    ]


def _clone_preserve_strides(launch: RecordedLaunch, arguments: ReproArguments) -> Script:
    """The C function copies all elements between the first and the last, gaps included."""
    (source,), (made,) = arguments.tensors, arguments.results
    layout = source.layout
    reach = sum((size - 1) * stride for size, stride in zip(layout.shape, layout.strides, strict=True)) + 1
    span = f"torch.as_strided({source.name}, ({reach if layout.numel else 0},), (1,)).clone()"
    line = call(f"{made.name} = torch.as_strided", [span, repr(layout.shape), repr(layout.strides)])
    return Script((line,), made=(made.name,))


def _mm_plus_mm(launch: RecordedLaunch, arguments: ReproArguments) -> Script:
    """out = a @ b + c @ d, as the C function computes it."""
    out, a, b, c, d = (arguments.names[launch.by_value(i)[0].arg.name] for i in range(5))
    return Script((f"torch.mm({a}, {b}, out={out})", f"{out}.addmm_({c}, {d})"))


# C functions that call no single operator.
WRITTEN_BY_HAND: dict[str, Callable[[RecordedLaunch, ReproArguments], Script]] = {
    "aoti_torch_clone_preserve_strides": _clone_preserve_strides,
    "aoti_torch__mm_plus_mm_out": _mm_plus_mm,
}


def _random(signature: OperatorSchema, values: dict[str, str]) -> str:
    """The reason why a random operator's values cannot be compared; "" where it draws no numbers in this launch."""
    idle = values.get("dropout_p") == "0.0" or values.get("train") == "False"
    return "" if idle else operators.random_reason(signature)


def _misfit(launch: RecordedLaunch, why: str) -> UsageError:
    return UsageError(
        f"launch {launch.id} does not fit the schema of {launch.site.op}: {why}",
        hint="use the torch that the package was built with",
    )


class _ShimArguments:
    """Turns the recorded values behind C parameters into Python source."""

    def __init__(self, launch: RecordedLaunch, arguments: ReproArguments) -> None:
        self.launch = launch
        self.arguments = arguments

    def value(self, at: int, parameter: Parameter) -> str:
        if parameter.type == "Generator":
            return "None"
        if parameter.type in ("List[Tensor]", "List[Optional[Tensor]]"):
            return self._list(at, parameter, self._tensor)
        if parameter.type == "List[int]":
            return self._list(at, parameter, self._int)
        slots = self.launch.by_value(at)
        if not slots and parameter.optional:
            return "None"  # a null pointer without a type has no slot
        if len(slots) != 1:
            raise UsageError(
                f"launch {self.launch.id} cannot be replayed: its argument {parameter.name} was not recorded",
                hint=f"the C call passes it as expression {at} ({parameter.type})",
            )
        (slot,) = slots
        if slot.absent:
            if not parameter.optional:
                raise _misfit(self.launch, f"{parameter.name} is None")
            return "None"
        if parameter.type == "Tensor":
            return self._tensor(slot)
        if parameter.type == "str":
            return self._string(slot)
        if parameter.type == "Device":
            return self._device(slot, self.launch.by_value(at + 1))
        return self._scalar(slot, parameter)

    def _list(self, at: int, parameter: Parameter, element: Callable[[RecordedSlot], str]) -> str:
        slots = self.launch.by_value(at)
        if parameter.optional and (not slots or (slots[0].absent and slots[0].arg.element < 0)):
            return "None"
        length = self._length(at + 1)
        if length is None:
            length = len(slots)
        elements = {max(s.arg.element, 0): s for s in slots}
        if sorted(elements) != list(range(length)):
            raise UsageError(
                f"launch {self.launch.id} cannot be replayed: {len(elements)} of the {length} elements of its "
                f"argument {parameter.name} were recorded"
            )
        return f"[{', '.join(element(elements[i]) for i in range(length))}]"

    def _length(self, at: int) -> int | None:
        slots = self.launch.by_value(at)
        if len(slots) == 1 and isinstance(slots[0].value, Number):
            return int(slots[0].value.value)
        return None

    def _tensor(self, slot: RecordedSlot) -> str:
        if slot.absent:
            return "None"
        if slot.tensor is None:
            raise _misfit(self.launch, f"{slot.arg.name} is not a tensor")
        return self.arguments.names[slot.arg.name]

    def _int(self, slot: RecordedSlot) -> str:
        return literals.number(int(self._number(slot)))

    def _string(self, slot: RecordedSlot) -> str:
        text = literals.c_string(slot.arg.text)
        if text is None:
            raise _misfit(self.launch, f"{slot.arg.text} is not a string literal")
        return literals.text(text)

    def _device(self, slot: RecordedSlot, index: tuple[RecordedSlot, ...]) -> str:
        name = device_name(int(self._number(slot)), int(self._number(index[0])) if index else -1)
        return literals.device(name)

    def _scalar(self, slot: RecordedSlot, parameter: Parameter) -> str:
        value = self._number(slot)
        if parameter.type == "bool":
            return repr(bool(value))
        if parameter.type in ("float", "number"):  # the C function takes both as a double
            return literals.number(float(value))
        if parameter.type == "ScalarType":
            dtype = dtypes.of_scalar_type(int(value))
            if dtype is None:
                raise _misfit(self.launch, f"{parameter.name} is {value}, which is no known dtype")
            return dtype.torch_name
        if parameter.type == "Layout":
            return f"torch.{LAYOUTS[int(value)]}"
        if parameter.type == "MemoryFormat":
            return f"torch.{MEMORY_FORMATS[int(value)]}"
        if parameter.type in ("int", "DeviceIndex", "SymInt"):
            return literals.number(int(value))
        raise _misfit(self.launch, f"{parameter.name} has type {parameter.type}, which has no replay")

    def _number(self, slot: RecordedSlot) -> int | float | bool:
        if not isinstance(slot.value, Number):
            raise _misfit(self.launch, f"{slot.arg.name} is not a number")
        return slot.value.value

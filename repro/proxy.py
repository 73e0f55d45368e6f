"""Operators behind the proxy executor: a call of torch.ops with the recorded tensors and integers.

Constants, such as floats and strings, are not passed in the call; the manifest holds them as torch.export
writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aoti_debug.base.errors import RunDirError, UsageError
from aoti_debug.base.machine.files import json_data
from aoti_debug.package.argument_values import Number
from aoti_debug.package.manifest import Manifest, ProxyArgument
from aoti_debug.repro import literals, operators
from aoti_debug.repro.arguments import ReproArguments
from aoti_debug.repro.operators import is_of_torch, is_operator, with_operator_libraries
from aoti_debug.repro.recorded_launch import RecordedLaunch, RecordedSlot
from aoti_debug.repro.script import Script, call

DTYPES: dict[int, str] = {
    1: "torch.uint8",
    2: "torch.int8",
    3: "torch.int16",
    4: "torch.int32",
    5: "torch.int64",
    6: "torch.float16",
    7: "torch.float32",
    8: "torch.float64",
    9: "torch.complex32",
    10: "torch.complex64",
    11: "torch.complex128",
    12: "torch.bool",
    13: "torch.bfloat16",
    28: "torch.uint16",
    29: "torch.float8_e4m3fn",
    30: "torch.float8_e5m2",
    31: "torch.float8_e4m3fnuz",
    32: "torch.float8_e5m2fnuz",
    33: "torch.float8_e8m0fnu",
    34: "torch.uint32",
    35: "torch.uint64",
}
LAYOUTS: dict[int, str] = {
    1: "torch.sparse_coo",
    2: "torch.sparse_csr",
    3: "torch.sparse_csc",
    4: "torch.sparse_bsr",
    5: "torch.sparse_bsc",
    6: "torch._mkldnn",
    7: "torch.strided",
}
MEMORY_FORMATS: dict[int, str] = {
    1: "torch.contiguous_format",
    2: "torch.channels_last",
    3: "torch.channels_last_3d",
    4: "torch.preserve_format",
}


CONSTANTS = "_const_run_impl"


def refusal(launch: RecordedLaunch, manifest: Manifest) -> str:
    """Returns the reason why a launch of this kind cannot be replayed; "" if it can."""
    if "::" not in launch.site.op:
        return "the package does not say which operator it is"
    names = [operand.name for operand in launch.site.operands if not operand.name.isidentifier()]
    if names or not is_operator(launch.site.op):
        return f"{names[0] if names else launch.site.op!r} is not the name of an operator or of its argument"
    if launch.slots and not launch.site.operands:
        if launch.site.function == CONSTANTS:
            return "the package does not hold the operator's arguments of calls in constant folding"
        return "the package does not hold the operator's arguments; build it again with this version"
    held = [operand.name for operand in launch.site.operands if _kind(operand) in _HELD]
    if held:
        return f"its argument {held[0]} is an object that only the package holds"
    return operators.missing(launch.site.op, manifest) if is_of_torch(launch.site.op) else ""


def script(launch: RecordedLaunch, manifest: Manifest, arguments: ReproArguments) -> Script:
    """Returns what the launch contributes to repro.py.

    Raises:
        UsageError: a value that the call passed was not recorded.
        RunDirError: the manifest is damaged.
    """
    reader = _ProxyArguments(launch, arguments)
    passed = []
    for operand in launch.site.operands:
        value = reader.value(operand.name, _object(operand.value))
        passed.append(f"{operand.name}={value}" if operand.keyword else value)
    results = [reader.target(f"ret{i}", _object(text)) for i, text in enumerate(launch.site.results)]
    op = launch.site.op.replace("::", ".")
    line = call(f"{_assignment(results)}torch.ops.{op}", passed)
    operator = manifest.operator(op)  # None of a custom operator that was not registered when the package was built
    random = operators.random_reason(operator) if operator else ""
    written = Script((line,), made=tuple(reader.made), random=random, imports=literals.imports_of(line))
    return with_operator_libraries(manifest, op, written)


def _kind(operand: ProxyArgument) -> str:
    return next(iter(_object(operand.value)))


def _object(text: str) -> Mapping[str, Any]:
    """An argument or a result as the manifest keeps it, such as {"as_int": 3}.

    Raises:
        RunDirError: it is damaged.
    """
    try:
        found = json_data.parse_object(text)
    except json_data.DamagedJsonError as error:
        raise RunDirError(f"the manifest is damaged: {text!r}: {error}", hint="run the package again") from error
    if not found:
        raise RunDirError(f"the manifest is damaged: {text!r} is empty", hint="run the package again")
    return found


def _assignment(targets: list[str]) -> str:
    """The left side of the assignment; a result list that is the only result stands without brackets."""
    if all(target == "_" for target in targets):
        return ""
    only = targets[0].removeprefix("[").removesuffix("]") if len(targets) == 1 else ", ".join(targets)
    return f"{only}, = " if len(targets) == 1 and targets[0].startswith("[") and "," not in only else f"{only} = "


_HELD = ("as_custom_obj", "as_graph", "as_operator", "as_sym_bool", "as_sym_bools", "as_sym_float", "as_sym_floats")


class _ProxyArguments:
    """Turns arguments as torch.export writes them into Python source."""

    def __init__(self, launch: RecordedLaunch, arguments: ReproArguments) -> None:
        self.launch = launch
        self.arguments = arguments
        self.slots = {slot.arg.param: slot for slot in launch.slots}
        self.made: list[str] = []

    def value(self, name: str, tagged: Mapping[str, Any]) -> str:
        """
        Args:
            name: of the parameter, "xs[1]" of an element.
            tagged: {"as_float": 1.5}
        """
        kind, value = next(iter(tagged.items()))
        if kind == "as_none":
            return "None"
        if kind in ("as_tensor", "as_int", "as_sym_int"):
            return self._passed(name)
        if kind == "as_optional_tensor":
            return self.value(name, value)
        if kind == "as_optional_tensors":
            return self._list(name, value, self.value)
        if kind in ("as_tensors", "as_ints", "as_sym_ints"):
            return self._list(name, value, lambda element, _: self._passed(element))
        if isinstance(value, list):
            return self._list(name, value, lambda element, item: self._constant(element, kind.removesuffix("s"), item))
        return self._constant(name, kind, value)

    def target(self, name: str, tagged: Mapping[str, Any]) -> str:
        """The variable that a result is bound to; "_" for one that is no tensor, or is an argument."""
        kind, value = next(iter(tagged.items()))
        if kind == "as_tensors":
            return f"[{', '.join(self._result(f'{name}[{i}]') for i in range(len(value)))}]"
        return self._result(name)

    def _result(self, name: str) -> str:
        slot = self.slots.get(name)
        if slot is None or slot.tensor is None or not slot.is_made:
            return "_"
        self.made.append(self.arguments.names[slot.arg.name])
        return self.made[-1]

    def _list(self, name: str, values: list[Any], element: Callable[[str, Any], str]) -> str:
        return f"[{', '.join(element(f'{name}[{i}]', value) for i, value in enumerate(values))}]"

    def _passed(self, name: str) -> str:
        """A value that the call passes: a tensor or an integer."""
        slot = self.slots.get(name)
        if slot is not None and slot.tensor is not None:
            return self.arguments.names[slot.arg.name]
        if slot is None or not isinstance(slot.value, Number):
            raise self._missing(name, slot)
        return literals.number(int(slot.value.value))

    def _constant(self, name: str, kind: str, value: Any) -> str:
        if kind == "as_float":
            return literals.number(float(value))
        if kind == "as_bool":
            return repr(bool(value))
        if kind == "as_string":
            return literals.text(str(value))
        if kind == "as_device":
            index = "" if value.get("index") is None else f":{value['index']}"
            return literals.device(value["type"] + index)
        if kind == "as_complex":
            return f"complex({literals.number(float(value['real']))}, {literals.number(float(value['imag']))})"
        text = _ENUMERATIONS.get(kind, {}).get(value) if isinstance(value, int) else None
        if text is None:
            raise UsageError(f"launch {self.launch.id} cannot be replayed: its argument {name} is {kind} {value}")
        return text

    def _missing(self, name: str, slot: RecordedSlot | None) -> UsageError:
        why = "was not recorded" if slot is None else f"was {slot.value}"
        return UsageError(f"launch {self.launch.id} cannot be replayed: its argument {name} {why}")


_ENUMERATIONS: Mapping[str, Mapping[int, str]] = {
    "as_scalar_type": DTYPES,
    "as_layout": LAYOUTS,
    "as_memory_format": MEMORY_FORMATS,
}

"""An attempt: some calls of a start as a script, checked in one way, with inputs in one form."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from enum import Enum
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.errors import UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.fx_repro.module_text import ModuleText, module_text
from aoti_debug.compare.fx_repro.script_text import input_text
from aoti_debug.compare.protocol.request import InputTensor
from aoti_debug.repro import literals
from aoti_debug.triage.minify.script_text import IN_EAGER, SCRIPT, ScriptCheck, ScriptSetup, script_text
from aoti_debug.triage.minify.start_parts import EagerValue, Start, Unit, part_of

SMALL = 2  # the size of a dimension that is made smaller


class InputMode(str, Enum):
    """The form of the elements of inputs in a script."""

    SEED = "random"
    LITERAL = "as literals where they are small, else random"
    FILE = "as literals where they are small, else as files"


@dataclass(frozen=True)
class InputTexts:
    """The inputs of a script.

    Attributes:
        expressions: by their names in the module.
        files: those beside the script, by their names.
    """

    expressions: Mapping[str, str]
    files: Mapping[str, Path]


@dataclass(frozen=True)
class InputForm:
    """The form of the inputs of a script.

    Attributes:
        sizes: other sizes of dimensions, by the recorded ones: of random inputs.
    """

    given: InputMode = InputMode.FILE
    sizes: Mapping[int, int] = field(default_factory=dict)


def input_texts(start: Start, module: ModuleText, form: InputForm) -> InputTexts:
    """The inputs of a module in a form."""
    expressions, files, device = {}, {}, start.device
    for name, key in module.inputs.items():
        value = start.values[key]
        assert value.tensor is not None
        if form.given is InputMode.SEED:
            expressions[name] = input_text(_resized(replace(value.tensor, data=""), form.sizes), device)
        elif small := _small(value, device):
            expressions[name] = small
        elif form.given is InputMode.LITERAL:
            expressions[name] = input_text(value.tensor, device)
        else:
            file = f"{name}.pt"
            files[file] = start.folder / value.file
            expressions[name] = f"torch.load(Path(__file__).with_name({literals.text(file)})){_to(device)}"
    return InputTexts(expressions, files)


def sizes_of(start: Start, module: ModuleText) -> Iterator[int]:
    """The sizes of dimensions of the inputs that could be smaller, the largest first."""
    tensors = (start.values[key].tensor for key in module.inputs.values())
    yield from sorted({size for t in tensors if t is not None for size in t.shape if size > SMALL}, reverse=True)


def _small(value: EagerValue, device: str) -> str:
    """An expression of the elements; "" if they are too many."""
    if value.literal:
        return value.literal + _to(device)
    assert value.tensor is not None
    return input_text(value.tensor, device) if value.tensor.data else ""


def _to(device: str) -> str:
    return "" if device == "cpu" else f".to({literals.text(device)})"


def _resized(tensor: InputTensor, sizes: Mapping[int, int]) -> InputTensor:
    """The tensor with other sizes, then row-major; integers may be indices, and become as small as the sizes."""
    if not sizes:
        return tensor
    shape = tuple(sizes.get(size, size) for size in tensor.shape)
    smallest, largest = (min(number, SMALL - 1) for number in (tensor.smallest, tensor.largest))
    return replace(
        tensor,
        smallest=smallest,
        largest=largest,
        shape=shape,
        strides=tuple(math.prod(shape[n + 1 :]) for n in range(len(shape))),
    )


@dataclass(frozen=True)
class Attempt:
    """Some calls of a start as a script.

    Attributes:
        runs: how often it looks.
    """

    start: Start
    units: tuple[Unit, ...]
    check: ScriptCheck
    form: InputForm = field(default_factory=InputForm)
    runs: int = 1

    @property
    def name(self) -> str:
        """ "2 of 13 calls of launch 0.3, random inputs"."""
        calls = f"{len(self.units)} of {wording.pluralize(len(self.start.units), 'call')} of {self.start.name}"
        form = "" if self.form.given is InputMode.FILE else f", inputs {self.form.given.value}"
        sizes = f", {wording.comma_separated(map(str, self.form.sizes))} as {SMALL}" if self.form.sizes else ""
        return f"{calls}{form}{sizes}{f', {self.runs} runs' if self.runs > 1 else ''}"


@dataclass(frozen=True)
class AttemptScript:
    """The script of an attempt.

    Attributes:
        inputs: their expressions, and the files beside it.
    """

    text: str
    module: ModuleText
    inputs: InputTexts

    @cached_property
    def hash(self) -> str:
        """The identity of the script and its files."""
        digest = sha256(self.text.encode())
        for name, source in sorted(self.inputs.files.items()):
            digest.update(name.encode() + sha256(source.read_bytes()).digest())
        return digest.hexdigest()

    @property
    def lines(self) -> int:
        """The number of its lines."""
        return len(self.text.splitlines())

    def write(self, folder: Path) -> Path:
        """Writes the script and its files into a new folder; returns the path of the script.

        Raises:
            OSError: it cannot be written.
        """
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, source in self.inputs.files.items():
            shutil.copyfile(source, folder / name)
        path = folder / SCRIPT
        path.write_text(self.text, encoding="utf-8")
        return path


def script_of(attempt: Attempt, title: str, setting: ScriptSetup) -> AttemptScript | None:
    """The script of an attempt; None where it would show nothing, or cannot be written.

    A part that begins with NaN shows no NaN of its own; one that draws random numbers is not the same in eager. Where
    eager returns, the script first has it do so: its inputs may be others than the recorded ones.
    """
    start = attempt.start
    region = part_of(start, attempt.units)
    calls = {name for unit in attempt.units for name in unit}
    if region is None or (attempt.check is ScriptCheck.SAME and calls & start.random):
        return None
    given = [start.values[item.value] for item in region.inputs]
    if attempt.check is ScriptCheck.NAN and any(value.has_nan for value in given):
        return None
    if attempt.check is ScriptCheck.INFINITY and any(value.has_nan or value.has_infinity for value in given):
        return None
    try:
        module = module_text(start.reference, start.graph, region)
    except UsageError:
        return None
    inputs = input_texts(start, module, attempt.form)
    first = [IN_EAGER] if attempt.check is ScriptCheck.ENDS and start.failing not in calls else []
    used = replace(setting, device=start.device)
    text = script_text(title, module, inputs.expressions, attempt.check, used, attempt.runs, first)
    return AttemptScript(text, module, inputs)

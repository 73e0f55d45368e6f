"""Judges what a triage says of the origin of a planted fault, for origins.py."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from benchmarks.triage.origins_programs import Files
from benchmarks.triage.planted_origins import FAULT, MADE, Case, Element, Program, inputs_of, model_of

ELEMENT, LINE, NOTHING = "element", "line", ""  # how much of an origin is stated
_NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|-?inf|nan"
_HELD = re.compile(rf"([A-Za-z_][\w.]*)(?:\[([\d, ]*)\])?,? (?:which is|is|=|held|holds) ({_NUMBER})(?![\w.]*[\w\[])")
_SIZE = re.compile(r"([A-Za-z_][\w.]*) has (?:(\d+) rows|size (\d+) in dimension (\d+))")
_PAST = re.compile(r"(?:from|to|on) ([A-Za-z_][\w.]*): element -?\d+ of (\d+)")
_ORIGIN = re.compile(r"\b(?:came|comes?) from\b|\borigin\b|\bmodel's input\b|\bruns through\b")
_CLAIM = re.compile(
    rf"([A-Za-z_][\w.]*)(?:\[([\d, ]*)\])?(?:, which)? is \S+: with ({_NUMBER}) there, the (?:model|graph)"
)
_SUBGRAPH, _ARGUMENT = re.compile(r"_graph_\d"), re.compile(r"arg\d+_1")


@dataclass(frozen=True)
class Judgement:
    """What is right and what is wrong in a verdict.

    Attributes:
        is_line_right: None where no line can be known.
        stated: ELEMENT, LINE (a launch or a line of the model), or NOTHING.
        origin: in words.
        wrong_origin: why the stated origin is not true; "".
        wrong: sentences that are not true, each with the reason.
        claims: sentences that say that nothing fails with another number, and where it is put.
    """

    is_found: bool
    is_line_right: bool | None
    stated: str
    origin: str
    wrong_origin: str
    wrong: tuple[str, ...]
    claims: tuple[tuple[str, Element], ...]

    def is_enough(self, case: Case) -> bool:
        """True if the origin is stated as far as it can be, and true."""
        return self.stated in ((ELEMENT,) if case.is_element else (ELEMENT, LINE)) and not self.wrong_origin


class Judge:
    """Knows the true origin of a case and every number that comes in."""

    def __init__(self, case: Case, program: Program, files: Files) -> None:
        self._case = case
        self._program = program
        self._names: Mapping[str, str] = json.loads(files.names.read_text())
        elements = (*case.planted, *case.innocent)
        model = model_of(program, elements)
        self._tensors: dict[str, Tensor] = {
            **dict(model.named_buffers()),
            **{name: tensor.detach() for name, tensor in model.named_parameters()},
            **dict(zip(program.names, inputs_of(program, elements), strict=True)),
        }

    def judge(self, verdict: Mapping[str, Any]) -> Judgement:
        """
        Args:
            verdict: as `aoti-debug triage --json` prints it.
        """
        is_line_right = None
        if verdict["file"] or not self._case.is_compiled:
            is_line_right = _line(verdict) in self._program.lines(FAULT, self._case.line)
        stated, origin, wrong_origin = self._origin(verdict["origin"])
        is_made_elsewhere = bool(self._program.lines(MADE) - self._program.lines(FAULT))
        if stated == NOTHING and not self._case.is_element and not is_made_elsewhere and is_line_right is not False:
            stated = LINE  # the finding itself names the launch that makes the bad value
        wrong, claims = tuple(self._wrong(verdict)), tuple(self._claims(verdict))
        return Judgement(verdict["kind"] == "fault", is_line_right, stated, origin, wrong_origin, wrong, claims)

    def _origin(self, place: Mapping[str, Any] | None) -> tuple[str, str, str]:
        if place is None:
            return NOTHING, "", ""
        named = self._names.get(place["input"] or place["argument"] or "", "")
        element = place["element"]
        if place["input"] and not named:
            return ELEMENT, str(place["input"]), "there is no such input"
        if named and element is not None:
            index = _unravel(int(element), self._tensors[named].shape)
            text = f"{named}[{', '.join(map(str, index))}]"
            return ELEMENT, text, "" if (named, index) in self._case.origins else f"{text} is as it should be"
        if place["input"]:
            is_true = named in {name for name, _ in self._case.origins}
            return LINE, named, "" if is_true else f"{named} is as it should be"
        line = _line(place)
        text = f"line {line[1]}" if line is not None else f"launch {place['launch']}"
        marked = self._program.lines(MADE) | self._program.lines(FAULT)
        return LINE, text, "" if line is None or line in marked else "nothing goes wrong in this line"

    def _wrong(self, verdict: Mapping[str, Any]) -> Iterator[str]:
        texts = (*verdict["evidence"], *verdict["confirmed_by"], *verdict["possible"])
        if any(_SUBGRAPH.search(text) for text in texts):  # its arguments are called arg0_1, too
            self._names = {called: name for called, name in self._names.items() if not _ARGUMENT.fullmatch(called)}
        for sentence in verdict["possible"]:
            if "may" not in sentence.split():
                yield f"{sentence}: it is not observed, and does not say may"
        for sentence in texts:
            for reason in self._untrue(sentence):
                yield f"{sentence}: {reason}"
        for sentence in verdict["evidence"]:
            for name, index in self._elements(sentence):
                if _ORIGIN.search(sentence) and (name, index) not in self._case.origins:
                    yield f"{sentence}: {name}{list(index)} is not the origin"
                elif (name, index) in {(e.tensor, e.index) for e in self._case.innocent}:
                    yield f"{sentence}: {name}{list(index)} has nothing to do with it"

    def _claims(self, verdict: Mapping[str, Any]) -> Iterator[tuple[str, Element]]:
        for sentence in verdict["evidence"]:
            for called, index, value in _CLAIM.findall(sentence):
                name = self._names.get(called, "")
                if name:
                    yield sentence, Element(name, _coordinates(index), float(value) if "." in value else int(value))

    def _elements(self, sentence: str) -> Iterator[tuple[str, tuple[int, ...]]]:
        """The elements of what comes in that a sentence gives a value of."""
        for called, index, _ in _HELD.findall(sentence):
            name = self._names.get(called, "")
            if name and (index or not self._tensors[name].dim()):
                yield name, _coordinates(index)

    def _untrue(self, sentence: str) -> Iterator[str]:
        """What a sentence says of the numbers and sizes of what comes in, and is not so."""
        for called, index, value in _HELD.findall(sentence):
            name = self._names.get(called, "")
            if name and (index or not self._tensors[name].dim()):
                yield from self._other_value(name, _coordinates(index), value)
        for called, rows, size, dimension in _SIZE.findall(sentence):
            name = self._names.get(called, "")
            if name and self._tensors[name].shape[int(dimension or 0)] != int(rows or size):
                yield f"{name} has the shape {tuple(self._tensors[name].shape)}"
        for called, count in _PAST.findall(sentence):
            name = self._names.get(called, "")
            if name and self._tensors[name].numel() != int(count):
                yield f"{name} has {self._tensors[name].numel()} elements"

    def _other_value(self, name: str, index: tuple[int, ...], value: str) -> Iterator[str]:
        tensor = self._tensors[name]
        if len(index) != tensor.dim() or any(i >= size for i, size in zip(index, tensor.shape, strict=True)):
            yield f"{name} has no element {list(index)}"
            return
        held = tensor[index].item()
        is_equal = held == int(value) if re.fullmatch(r"-?\d+", value) else abs(held - float(value)) <= 1e-3 * abs(held)
        if not is_equal:
            yield f"{name}{list(index)} is {held}"


def _coordinates(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part.strip())


def _unravel(element: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    index: list[int] = []
    for size in reversed(shape):
        element, at = divmod(element, size)
        index.insert(0, at)
    return tuple(index)


def _line(place: Mapping[str, Any]) -> tuple[str, int] | None:
    return (Path(place["file"]).name, int(place["line"])) if place["file"] and place["line"] else None

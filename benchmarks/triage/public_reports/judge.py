"""Judges an answer against the truth of a report: the verdict, the culprit, and each sentence."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.triage.public_reports.answers import Answer, Place
from benchmarks.triage.public_reports.report import Example, Report, culprits

NUMBER = r"-?(?:inf|Inf|\d[\d_]*(?:\.\d*)?(?:e[+-]?\d+)?)|[nN]a[nN]|True|False"
VALUE = re.compile(
    rf"(?<![\w.])([A-Za-z_][\w.]*)\[(\d+(?:, ?\d+)*)\] (?:is|was|=|holds|read as) ({NUMBER})"
    r"(?![\w.]*\[|[\w.+-]*, should be)"  # of what the model writes
)
FROM = re.compile(r"(?:came|comes|come) from|\borigin")
ELEMENT = re.compile(r"(?<![\w.])([A-Za-z_][\w.]*)(?:\[(\d+(?:, ?\d+)*)\]| element (\d+))")
# Sentences that are wrong of any program
ALWAYS_FALSE = (r"innermost .*frame.*/aoti_debug/", r"outside of installed packages: \S*/aoti_debug/")
KERNEL = re.compile(r"\b(?:cpp|triton)_\w*fused_\w+")


@dataclass(frozen=True)
class Judgement:
    """
    Attributes:
        is_right: whether the verdict is one of the right ones.
        named: which of "operator", "line", "element" the answer names.
        wanted: which of them there are.
        wrong: sentences that are not true, each with the reason.
    """

    is_right: bool
    named: tuple[str, ...]
    wanted: tuple[str, ...]
    wrong: tuple[str, ...]

    @property
    def names_culprit(self) -> bool:
        return bool(self.named) or not self.wanted


def judge(report: Report, answer: Answer) -> Judgement:
    example = report.make()
    lines = culprits(example.module)
    wanted = {"operator": bool(report.operators), "line": bool(lines), "element": bool(report.elements)}
    texts = [KERNEL.sub("", text) for text in (*answer.observed, *answer.possible)]
    named = {
        "operator": any(
            re.search(pattern, text)
            for pattern in report.operators
            for text in (*texts, *(place.operator for place in (*answer.places, *answer.origins)))
        ),
        "line": any(
            _is_at(place, line.file, line.line) for place in (*answer.places, *answer.origins) for line in lines
        )
        or any(f"{line.file.name}:{line.line}" in text or f"`{line.text}`" in text for text in texts for line in lines),
        "element": any(_names(element, answer, texts, example) for element in report.elements),
    }
    return Judgement(
        answer.kind in report.kinds,
        tuple(what for what, there in wanted.items() if there and named[what]),
        tuple(what for what, there in wanted.items() if there),
        tuple(dict.fromkeys(_wrong(report, example, answer))),
    )


def _is_at(place: Place, file: Path, line: int) -> bool:
    return place.line == line and Path(place.file).name == file.name


def _plain(name: str) -> str:
    """A weight is `linear.weight` to the user and `linear_weight` in C++."""
    return name.replace(".", "_")


def _element_text(name: str, element: int, tensors: Mapping[str, Tensor]) -> str:
    """An element by its row-major index: "x[3, 7]"."""
    tensor = {_plain(key): value for key, value in tensors.items()}.get(_plain(name))
    if tensor is None or element >= tensor.numel():
        return f"{name}[{element}]"
    return f"{name}[{', '.join(str(int(at)) for at in torch.unravel_index(torch.tensor(element), tensor.shape))}]"


def _same_element(one: str, other: str) -> bool:
    """Compares two spellings; a bare name stands for any element."""
    (a, _, at), (b, _, where) = (_plain(text.replace(" ", "")).partition("[") for text in (one, other))
    return a == b and (not at or not where or at == where)


def _names(element: str, answer: Answer, texts: list[str], example: Example) -> bool:
    tensors = example.named()
    places = [p for p in (*answer.places, *answer.origins) if p.input and p.element is not None]
    if any(_same_element(element, _element_text(place.input, place.element or 0, tensors)) for place in places):
        return True
    return any(_same_element(element, spelled) for text in texts for spelled in _elements(text, tensors))


def _elements(text: str, tensors: Mapping[str, Tensor]) -> Iterator[str]:
    """The elements of inputs and weights that a sentence names."""
    known = {_plain(name) for name in tensors}
    for name, at, flat in ELEMENT.findall(text):
        if _plain(name) in known:
            yield f"{name}[{at}]" if at else _element_text(name, int(flat), tensors)


def _with_positions(example: Example) -> dict[str, Tensor]:
    """What the model reads, by name, and as a compiled package calls it: "arg4_1"."""
    named = example.named()
    return {**{f"arg{number}_1": tensor for number, tensor in enumerate(named.values())}, **named}


def _is_to_blame(said: str, report: Report, example: Example) -> bool:
    name, bracket, at = said.partition("[")
    positions = {f"arg{number}_1": known for number, known in enumerate(example.named())}
    said = positions.get(name, name) + bracket + at
    return any(_same_element(said, element) for element in report.elements)


def _wrong(report: Report, example: Example, answer: Answer) -> Iterator[str]:
    if answer.kind == "clean" and not report.is_clean:
        yield f"CLEAN, and it is not: {' '.join(answer.observed[:1])}"
    elif answer.code == 0 and not report.is_clean and answer.kind != "error":
        yield f"exit code 0 for {answer.kind}"
    if report.is_clean and answer.kind not in (*report.kinds, "incomplete", "error"):
        yield f"false alarm: {answer.kind}: {' '.join(answer.observed[:1])}"
    tensors = _with_positions(example)
    if report.drive is not None:  # a script may give the model other weights
        tensors = {
            name: tensor for name, tensor in tensors.items() if name not in dict(example.module.named_parameters())
        }
    for text in answer.observed:
        yield from _wrong_values(text, tensors)
        if FROM.search(text):
            yield from (
                f"{text}: {said} is not to blame"
                for said in _elements(text, tensors)
                if not _is_to_blame(said, report, example)
            )
    for text in (*answer.observed, *answer.possible):
        yield from (f"{text}: is false" for p in (*report.false, *ALWAYS_FALSE) if re.search(p, text))
    yield from (f"{text}: not observed, and without may" for text in answer.possible if not re.search(r"\bmay\b", text))
    yield from _wrong_origins(report, example, answer)


def _wrong_values(text: str, tensors: Mapping[str, Tensor]) -> Iterator[str]:
    known = {_plain(name): tensor for name, tensor in tensors.items()}
    for name, at, value in VALUE.findall(text):
        tensor = known.get(_plain(name))
        if tensor is None:
            continue
        index = tuple(int(i) for i in at.split(","))
        if len(index) == 1 and tensor.dim() != 1:
            flat = tensor.reshape(-1)
            true = flat[index[0]].item() if index[0] < flat.numel() else None
        elif len(index) == tensor.dim() and all(i < size for i, size in zip(index, tensor.shape, strict=True)):
            true = tensor[index].item()
        else:
            true = None
        if true is None or not _is(value, true):
            yield f"{text}: {name}[{at}] is {'no element' if true is None else true}"


def _is(said: str, true: float) -> bool:
    """Whether a printed number stands for this one, rounded to its digits."""
    if said in ("True", "False"):
        return bool(true) == (said == "True")
    number, true = float(said.replace("_", "")), float(true)
    if math.isnan(true) or math.isinf(true):
        return str(number) == str(true)
    return math.isclose(number, true, rel_tol=1e-3, abs_tol=1e-12)


def _wrong_origins(report: Report, example: Example, answer: Answer) -> Iterator[str]:
    """Origins that are not where the bad value was made."""
    lines, tensors = culprits(example.module), _with_positions(example)
    for origin in answer.origins:
        if origin.input:
            said = origin.input if origin.element is None else _element_text(origin.input, origin.element, tensors)
            if not _is_to_blame(said, report, example):
                yield f"origin {said}, instead of {' or '.join(report.elements) or 'no input'}"
        elif lines and origin.file and not any(_is_at(origin, line.file, line.line) for line in lines):
            wanted = " or ".join(line.text for line in lines)
            yield f"origin {Path(origin.file).name}:{origin.line}, instead of {wanted}"

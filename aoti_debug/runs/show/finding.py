"""The finding of a triage: its first screen, and all of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from aoti_debug.base import terminal_cells, wording
from aoti_debug.package.manifest import ModelLine
from aoti_debug.runs.diagnosis.findings import Finding, Place

FIRST_SCREEN = 11  # lines, with the one that names the report
_SENTENCE = 3  # lines of a sentence on it
_LABEL = 11
_FOLDER = re.compile(r"\bat /(?:\S*/)?(?=\S)")
_OF_SYSTEM = re.compile(r" at (?:/(?:usr|lib)/|\S*/lib/python3\.\d+/(?!(?:site|dist)-packages/(?!torch/)))")
_LEAST = 16  # cells of a name or of a line of code that is shortened


def finding_lines(finding: Finding, width: int, report: str = "", rest: str = "--verbose") -> list[str]:
    """The first screen of a finding, at most FIRST_SCREEN lines, in the order in which a person asks.

    What is wrong, where in the model, which input element, what shows it, what to do next. One block for the finding,
    then one for each other finding of its triage after a blank line.

    Args:
        report: the path of the page; "" if there is none.
        rest: the option or the command that prints the lines that are left out.
    """
    lines = _first_screen(finding, width)
    hidden = sum(map(_hidden, (finding, *finding.also)))
    last = [report] if report else []
    if hidden:
        last.append(f"{hidden} more: {rest}")
    if last:
        lines += _labelled("report" if report else "more", "; ".join(last))
    for other in finding.also:
        lines += ["", *_first_screen(other, width)]
    return lines


def all_finding_lines(finding: Finding, width: int, report: str = "") -> list[str]:
    """All that a finding holds, then all of each other finding of its triage after a blank line.

    Args:
        report: as for `finding_lines`.
    """
    lines = terminal_cells.fitted(_headline(finding), width)
    if finding.where is not None:
        lines += _place("where", finding.where, width)
    lines += _listed("because", finding.evidence, width)
    lines += _listed("maybe", finding.possible, width)
    if _has_origin(finding):
        lines += _place("origin", finding.origin or Place(), width)
    lines += _listed("shown by", finding.confirmed_by, width)
    lines += _listed("not by", finding.contradicted_by, width)
    lines += _listed("stack", finding.stack, width)
    lines += _listed("note", finding.warnings, width)
    if finding.repro:
        lines += _labelled("repro", finding.repro)
    lines += [line for command in finding.next for line in _labelled("next", command)]
    lines += _labelled("report", report) if report else []
    for other in finding.also:
        lines += ["", *all_finding_lines(other, width)]
    return lines


def with_relative_paths(finding: Finding) -> Finding:
    """The finding with its paths relative to the working directory, if they are inside it."""
    prefix = f"{Path.cwd()}/"
    return replace(
        finding,
        repro=finding.repro.removeprefix(prefix),
        next=tuple(command.replace(prefix, "") for command in finding.next),
        also=tuple(map(with_relative_paths, finding.also)),
    )


def place_text(place: Place) -> str:
    """ "0.3  cpp_fused_index_2  buf1[3, 4]", "input ids[2, 5]", "weight a.b"; "buf1, element 9" without coordinates."""
    element = "" if place.element is None else f", element {place.element}"
    if place.coordinates:
        element = f"[{', '.join(map(str, place.coordinates))}]"
    if place.input and not place.launch:
        named = f"{place.input_kind or 'input'} {place.input}{element}"
        return "  ".join(word for word in (named, place.kernel, place.operator) if word)
    operator = "" if place.operator == place.kernel else place.operator
    named = f"({operator})" if place.launch and operator else operator
    what = f"{place.input or place.argument}{element}".removeprefix(", ")
    return "  ".join(word for word in (place.launch, place.kernel, named, what) if word)


def _first_screen(finding: Finding, width: int) -> list[str]:
    """At most ten lines."""
    lines = [terminal_cells.Sentence(_headline(finding)).fit(width)]
    if not finding.kind.is_fault:
        commands = [line for command in finding.next[:1] for line in _labelled("next", command)]
        notes = _listed("note", finding.warnings, width)[: FIRST_SCREEN - 2 - len(commands)]
        return [*lines, *notes, *commands]
    place = finding.where
    if place is not None:
        room = width - _LABEL
        model_line = "" if place.frame is None else _model_line(place.frame, room)
        where = [line for line in (model_line, f"{_short_place(place, room)}{_source(finding, room)}") if line]
        lines += [f"  {label:<{_LABEL - 2}}{line}" for label, line in zip(("where", ""), where, strict=False)]
    if _has_origin(finding):
        origin = finding.origin or Place()
        same_line = place is not None and origin.frame == place.frame
        line = "" if origin.frame is None or same_line else f"  {_model_line(origin.frame, width)}"
        lines += _short("origin", place_text(origin) + line, width)
    elif finding.possible:
        lines += _short("maybe", finding.possible[0], width)
    shown = _shown_by(finding)
    if finding.evidence:
        sentences = [_without_model_line(sentence, place) for sentence in finding.evidence]
        strongest = next((sentence for sentence in sentences if sentence not in finding.what), sentences[0])
        lines += _short("because", strongest, width, f" ({shown})" if shown else "")
    elif shown:
        lines += _short("because", shown, width)
    return [*lines, *(line for command in finding.next[:1] for line in _labelled("next", command))]


def _hidden(finding: Finding) -> int:
    """The number of sentences, frames and commands that the first screen leaves out."""
    if not finding.kind.is_fault:
        notes = FIRST_SCREEN - 2 - len(finding.next[:1])
        return max(0, len(finding.warnings) - notes) + len(finding.next[1:])
    possible = finding.possible if _has_origin(finding) else finding.possible[1:]
    tried = (finding.confirmed_by, finding.contradicted_by)
    rest = (finding.evidence[1:], possible, *tried, finding.stack, finding.warnings)
    return sum(map(len, rest)) + len(finding.next[1:])


def _headline(finding: Finding) -> str:
    return f"{finding.heading} {wording.first_line(finding.what)}"


def _has_origin(finding: Finding) -> bool:
    return finding.origin is not None and finding.origin != finding.where


def _shown_by(finding: Finding) -> str:
    """The tools that show the same from the repro alone, and those that do not: "shown by cubin; not by memcheck"."""
    parts = (("shown by", finding.confirmed_by), ("not by", finding.contradicted_by))
    named = [f"{label} {', '.join(line.partition(':')[0] for line in lines)}" for label, lines in parts if lines]
    return "; ".join(named)


def _without_model_line(sentence: str, place: Place | None) -> str:
    """The sentence without the text of the model line that stands above it already."""
    return (
        sentence if place is None or place.frame is None else sentence.removeprefix(f"`{place.frame.text.strip()}`: ")
    )


def _model_line(frame: ModelLine, width: int) -> str:
    """The place and the text of a line; a long file loses its beginning, the text its end."""
    where = f":{frame.line} in {frame.function}"
    room = max(width - terminal_cells.count(where), _LEAST)
    path = wording.short_path(Path(frame.file))
    file = path if terminal_cells.count(path) <= room else f"…{path[1 - room :]}"
    text = f": {frame.text.strip()}" if frame.text.strip() else ""
    left = room - terminal_cells.count(file)
    if terminal_cells.count(text) > left:
        text = wording.truncated(text, left) if left > _LEAST else ""
    return f"{file}{where}{text}"


def _short_place(place: Place, width: int) -> str:
    """A place in at most `width` cells: the names of kernel and operator lose their middles."""
    text = place_text(place)
    for name in (place.operator, place.kernel):
        missing = terminal_cells.count(text) - width
        if missing > 0 and name:
            shorter = terminal_cells.shorten_middle(name, max(terminal_cells.count(name) - missing, _LEAST))
            text = text.replace(name, shorter)
    return terminal_cells.shorten_middle(text, width)


def _source(finding: Finding, width: int) -> str:
    """ "  in mine::scale_cpu at scale.cpp:25" behind the launch of a user's operator, where there is room."""
    place = finding.where
    if place is None or "::" not in place.operator:
        return ""
    own = (frame for frame in finding.stack if not _OF_SYSTEM.search(frame))
    frame = next((f"  in {_FOLDER.sub('at ', frame)}" for frame in own if _FOLDER.search(frame)), "")
    return frame if terminal_cells.count(_short_place(place, width) + frame) <= width else ""


def _place(label: str, place: Place, width: int) -> Iterator[str]:
    yield from _labelled(label, _short_place(place, width - _LABEL))
    if place.frame is not None:
        where = f"{place.frame.file}:{place.frame.line} in {place.frame.function}"
        yield terminal_cells.shorten_middle(f"{'':{_LABEL}}{where}", width)
        if place.frame.text:
            yield terminal_cells.shorten_middle(f"{'':{_LABEL + 2}}{place.frame.text.strip()}", width)


def _labelled(label: str, value: str) -> list[str]:
    return [f"  {label:<{_LABEL - 2}}{value}"]


def _short(label: str, sentence: str, width: int, end: str = "") -> list[str]:
    """A sentence and its end under a label, in at most three lines: it loses its last words."""
    indent, text = " " * _LABEL, wording.first_line(sentence)
    lines = terminal_cells.wrapped(f"{text}{end}", width, indent)
    if len(lines) > _SENTENCE:
        whole = terminal_cells.wrapped(text, width, indent)
        rest = " ".join(line.strip() for line in whole[_SENTENCE - 1 :])
        last = terminal_cells.Sentence(rest).fit(max(width - _LABEL - len(end), _LEAST))
        lines = [*whole[: _SENTENCE - 1], f"{indent}{last}{end}"]
    return [f"  {label:<{_LABEL - 2}}{lines[0][_LABEL:]}", *lines[1:]]


def _listed(label: str, sentences: Sequence[str], width: int) -> list[str]:
    """Sentences under one label, in as many lines as they need."""
    lines = [
        line
        for sentence in sentences
        for line in terminal_cells.wrapped(wording.first_line(sentence), width, " " * _LABEL)
    ]
    if lines:
        lines[0] = f"  {label:<{_LABEL - 2}}{lines[0][_LABEL:]}"
    return lines

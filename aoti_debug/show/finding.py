"""The finding of a triage in a few lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aoti_debug import wording
from aoti_debug.diagnosis.findings import Finding, Place
from aoti_debug.show import terminal_cells

MOST_LINES = 23  # with a blank line above and the report below: 25
_LABEL = 11
_MOST_EVIDENCE = 7  # lines
_MOST_WARNINGS = 3


def finding_lines(finding: Finding, width: int) -> list[str]:
    """The lines of a finding, then those of the other findings of its triage after a blank line each."""
    return [*_lines(finding, width), *(line for other in finding.also for line in ("", *finding_lines(other, width)))]


def _lines(finding: Finding, width: int) -> list[str]:
    """Verdict, place, evidence, origin, confirmation, repro and the next commands: at most MOST_LINES lines."""
    lines = wording.wrapped(f"{finding.kind.heading} {wording.first_line(finding.what)}", width)[:2]
    if finding.where is not None:
        lines += _place("where", finding.where, width)
    tail: list[str] = []
    if finding.origin is not None and finding.origin != finding.where:
        tail += _place("origin", finding.origin, width)
    tail += _cut("shown by", finding.confirmed_by, width, 5)
    tail += _cut("not by", finding.contradicted_by, width, 2)
    tail += _listed("note", finding.warnings, width, _MOST_WARNINGS)
    if finding.repro:
        tail += _labelled("repro", finding.repro)
    tail += [line for command in finding.next[:2] for line in _labelled("next", command)]
    room = min(_MOST_EVIDENCE, MOST_LINES - len(lines) - len(tail))
    return [*lines, *_listed("because", finding.evidence, width, max(room, 1)), *tail][:MOST_LINES]


def place_text(place: Place) -> str:
    """ "0.3  cpp_fused_index_2  buf1, element 100"."""
    if place.launch:
        named = place.operator if place.operator and place.operator != place.kernel else ""
        words = [place.launch, place.kernel, f"({named})" if named else ""]
    else:
        words = [f"input {place.input}" if place.input else "", place.kernel, place.operator]
    what = place.argument if place.launch or not place.input else ""
    if place.element is not None:
        what += f", element {place.element}" if what else f"element {place.element}"
    return "  ".join(word for word in (*words, what) if word)


def _place(label: str, place: Place, width: int) -> Iterator[str]:
    yield from (terminal_cells.shorten_middle(line, width) for line in _labelled(label, place_text(place)))
    if place.frame is not None:
        where = f"{place.frame.file}:{place.frame.line} in {place.frame.function}"
        yield terminal_cells.shorten_middle(f"{'':{_LABEL}}{where}", width)
        if place.frame.text:
            yield terminal_cells.shorten_middle(f"{'':{_LABEL + 2}}{place.frame.text.strip()}", width)


def _labelled(label: str, value: str) -> list[str]:
    return [f"  {label:<{_LABEL - 2}}{value}"]


def _cut(label: str, sentences: Sequence[str], width: int, most: int) -> Iterator[str]:
    """Sentences under one label, a line each."""
    for number, sentence in enumerate(sentences[:most]):
        head = label if number == 0 else ""
        yield terminal_cells.shorten_middle(f"  {head:<{_LABEL - 2}}{wording.first_line(sentence)}", width)


def _listed(label: str, sentences: Sequence[str], width: int, most: int) -> list[str]:
    """Sentences under one label in at most `most` lines; those that do not fit are counted."""
    indent = " " * _LABEL
    lines: list[str] = []
    for number, sentence in enumerate(sentences):
        block = wording.wrapped(wording.first_line(sentence), width, indent)
        rest = len(sentences) - number
        if len(lines) + len(block) > most - (rest > 1) and lines:
            lines.append(f"{indent}and {rest} more")
            break
        lines += block[:most]
    if lines:
        lines[0] = f"  {label:<{_LABEL - 2}}{lines[0][_LABEL:]}"
    return lines

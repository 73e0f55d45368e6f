"""The finding of a triage: its first screen, and all of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from aoti_debug.base import terminal_cells, wording
from aoti_debug.package.manifest import ModelLine
from aoti_debug.runs.diagnosis.findings import Finding, Place

FIRST_SCREEN = 7  # lines, with the one that names the report
_LABEL = 11


def finding_lines(finding: Finding, width: int, report: str = "") -> list[str]:
    """The first screen of a finding, at most FIRST_SCREEN lines, in the order in which a person asks.

    What is wrong, where in the model, which input element, what shows it, what to do next. One block for the finding,
    then one for each other finding of its triage after a blank line.

    Args:
        report: the path of the page; "" if there is none.
    """
    lines = _first_screen(finding, width)
    hidden = sum(map(_hidden, (finding, *finding.also)))
    last = [report] if report else []
    if hidden:
        last.append(f"{wording.pluralize(hidden, 'more line')}: --verbose")
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
    lines = terminal_cells.wrapped(_headline(finding), width)
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


def place_text(place: Place) -> str:
    """ "0.3  cpp_fused_index_2  buf1[3, 4]", "input ids[2, 5]"; "buf1, element 100" without coordinates."""
    element = "" if place.element is None else f", element {place.element}"
    if place.coordinates:
        element = f"[{', '.join(map(str, place.coordinates))}]"
    if place.input and not place.launch:
        return "  ".join(word for word in (f"input {place.input}{element}", place.kernel, place.operator) if word)
    operator = "" if place.operator == place.kernel else place.operator
    named = f"({operator})" if place.launch and operator else operator
    what = f"{place.input or place.argument}{element}".removeprefix(", ")
    return "  ".join(word for word in (place.launch, place.kernel, named, what) if word)


def _first_screen(finding: Finding, width: int) -> list[str]:
    """At most six lines."""
    lines = [terminal_cells.shorten_middle(_headline(finding), width)]
    if not finding.kind.is_fault:
        return [*lines, *_listed("note", finding.warnings, width)[: FIRST_SCREEN - 2]]
    place = finding.where
    if place is not None:
        model_line = "" if place.frame is None else _model_line(place.frame)
        lines += _short_lines("where", [line for line in (model_line, place_text(place)) if line], width)
    if _has_origin(finding):
        origin = finding.origin or Place()
        same_line = place is not None and origin.frame == place.frame
        line = "" if origin.frame is None or same_line else f"  {_model_line(origin.frame)}"
        lines += _short_lines("origin", [place_text(origin) + line], width)
    elif finding.possible:
        lines += _short_lines("maybe", finding.possible[:1], width)
    shown = _shown_by(finding)
    if finding.evidence:
        strongest = _without_model_line(finding.evidence[0], place)
        lines += _short_lines("because", [strongest], width, f" ({shown})" if shown else "")
    elif shown:
        lines += _short_lines("because", [shown], width)
    return [*lines, *_short_lines("next", finding.next[:1], width)]


def _hidden(finding: Finding) -> int:
    """The number of sentences, frames and commands that the first screen leaves out."""
    if not finding.kind.is_fault:
        return max(0, len(finding.warnings) - (FIRST_SCREEN - 2))
    possible = finding.possible if _has_origin(finding) else finding.possible[1:]
    tried = (finding.confirmed_by, finding.contradicted_by)
    rest = (finding.evidence[1:], possible, *tried, finding.stack, finding.warnings)
    return sum(map(len, rest)) + len(finding.next[1:])


def _headline(finding: Finding) -> str:
    return f"{finding.kind.heading} {wording.first_line(finding.what)}"


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


def _model_line(frame: ModelLine) -> str:
    text = f": {frame.text.strip()}" if frame.text.strip() else ""
    return f"{frame.file}:{frame.line} in {frame.function}{text}"


def _place(label: str, place: Place, width: int) -> Iterator[str]:
    yield from (terminal_cells.shorten_middle(line, width) for line in _labelled(label, place_text(place)))
    if place.frame is not None:
        where = f"{place.frame.file}:{place.frame.line} in {place.frame.function}"
        yield terminal_cells.shorten_middle(f"{'':{_LABEL}}{where}", width)
        if place.frame.text:
            yield terminal_cells.shorten_middle(f"{'':{_LABEL + 2}}{place.frame.text.strip()}", width)


def _labelled(label: str, value: str) -> list[str]:
    return [f"  {label:<{_LABEL - 2}}{value}"]


def _short_lines(label: str, sentences: Iterable[str], width: int, end: str = "") -> Iterator[str]:
    """Sentences under one label, a line each, shortened before `end`."""
    for number, sentence in enumerate(sentences):
        head = label if number == 0 else ""
        line = f"  {head:<{_LABEL - 2}}{wording.first_line(sentence)}"
        yield terminal_cells.shorten_middle(line, max(width - len(end), 2 * _LABEL)) + end


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

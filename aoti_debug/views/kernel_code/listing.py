"""The source of a kernel with the model lines beside it, as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aoti_debug.base import wording
from aoti_debug.package.manifest import Provenance
from aoti_debug.runs.show import terminal_cells
from aoti_debug.views.kernel_code.kernel_code import KernelCode
from aoti_debug.views.kernel_code.line_origins import LineOrigin

_WIDEST = 32  # columns of what stands beside a line
_INDENT = "  "
_LEGEND = "beside a line: the operator that it computes or a part of, < what it reads, > what it writes"


def listing(code: KernelCode, provenance: Provenance, width: int) -> list[str]:
    """The lines of the listing: what is known of the kernel as a whole, then its source, a number before each line.

    Args:
        provenance: of the launch.
        width: columns of the terminal, for what stands above the source; the source is never wrapped.
    """
    kernel = code.kernel
    lines = [f"{kernel.name} ({kernel.language}, sha256 {kernel.sha256[:12]})"]
    lines += _whole(code, provenance, width)
    source = kernel.source.splitlines()
    digits = len(str(len(source)))
    beside = {number: _beside(origin) for number, origin in code.origins.items()}
    places = {number: _place(origin) for number, origin in code.origins.items()}
    place, text = (
        min(_WIDEST, max(map(terminal_cells.count, column.values()), default=0)) for column in (places, beside)
    )
    for number, line in enumerate(source, 1):
        columns = [f"{number:>{digits}}", _column(places, number, place), _column(beside, number, text)]
        lines.append(f"{'  '.join(columns)} │ {line}".rstrip())
    return lines


def _whole(code: KernelCode, provenance: Provenance, width: int) -> Iterator[str]:
    """What is known of all lines together."""
    if code.unknown:
        frames = dict.fromkeys(f"{_file(frame.file)}:{frame.line}" for frame in provenance.source)
        known = f"; all of it comes from {', '.join(frames)}" if frames else ""
        yield from _wrapped(f"which line comes from which model line is not known: {code.unknown}{known}", width)
        return
    groups: dict[tuple[str, str], dict[str, None]] = {}
    for _, origin in sorted(code.origins.items()):
        if origin.node:
            groups.setdefault((_place(origin), origin.module), {})[origin.node] = None
    for (place, module), nodes in groups.items():
        words = [word for word in (place, module) if word]
        yield from _wrapped("  ".join([*words, ", ".join(nodes)]), width)
    yield from _wrapped(_LEGEND, width)


def _wrapped(text: str, width: int) -> list[str]:
    return wording.wrapped(text, width, _INDENT)


def _column(texts: Mapping[int, str], number: int, width: int) -> str:
    return terminal_cells.pad(terminal_cells.shorten_middle(texts.get(number, ""), width), width)


def _beside(origin: LineOrigin) -> str:
    words = [origin.node] if origin.node else []
    words += [f"< {', '.join(origin.reads)}"] if origin.reads else []
    words += [f"> {origin.writes}"] if origin.writes else []
    return " ".join(words)


def _place(origin: LineOrigin) -> str:
    return "" if origin.model_line is None else f"{_file(origin.model_line.file)}:{origin.model_line.line}"


def _file(path: str) -> str:
    return path.rpartition("/")[2]

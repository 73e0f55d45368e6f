"""Finds the launch that wrote outside of a buffer, by the damage to the guard zones around it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from aoti_debug.base import wording
from aoti_debug.base.abi import NoteCode
from aoti_debug.base.frozen import dataclass
from aoti_debug.package.manifest import Manifest
from aoti_debug.runs.diagnosis.dataflow import ByteRange, span_of
from aoti_debug.runs.diagnosis.findings import Finding, place_of
from aoti_debug.runs.rundir.formats.journal_records import GuardDamage, LaunchKey
from aoti_debug.runs.rundir.launch import Argument, Launch
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.show import text
from aoti_debug.runs.show.text import decode, format_element
from aoti_debug.triage.results.finding_kinds import OVERRUN

_SHOWN = 4  # of a list


@dataclass(frozen=True)
class _Hit:
    """Damage to a guard zone, and the argument of its launch that lies in the buffer, if there is one."""

    damage: GuardDamage
    argument: Argument | None

    @property
    def is_before(self) -> bool:
        return self.damage.first < 0

    @property
    def nearest(self) -> int:
        """The offset of the damaged byte that is nearest to the buffer."""
        return self.damage.last if self.is_before else self.damage.first

    @property
    def distance(self) -> int:
        """The number of bytes between the buffer and the nearest damaged byte."""
        return -self.nearest - 1 if self.is_before else self.nearest - self.damage.size


def find(run: RunDir) -> Finding | None:
    """The first launch that wrote outside of a guarded buffer; None where none did, or the run had no guards."""
    order = {d.key: at for d in run.timeline.damages if (at := run.launches.position(d.key)) is not None}
    damages = [damage for damage in run.timeline.damages if damage.key in order]
    if not damages:
        return None
    first = min(damages, key=lambda damage: order[damage.key]).key
    launch = run.launches[order[first]]
    hits = sorted((_hit(launch, d) for d in damages if d.key == first), key=lambda h: (h.argument is None, h.distance))
    main = hits[0]
    return Finding(
        kind=OVERRUN,
        what=_what(run.manifest, launch, main),
        where=place_of(launch, _name(run.manifest, main), _element(main)),
        evidence=(
            *_evidence(run.manifest, launch, main),
            *(_further_damage(run.manifest, hit) for hit in hits[1:_SHOWN]),
        ),
        possible=(
            f"without guards it may overwrite what lies {'before' if main.is_before else 'after'} "
            f"{_buffer(run.manifest, main.damage)}",
        ),
        warnings=(*_others([run.launches[order[key]] for key in _later(damages, first, order)]), *without_guards(run)),
    )


def without_guards(run: RunDir) -> tuple[str, ...]:
    """Lines on the writes that guards cannot detect; empty for a run without guards."""
    if not run.info.guards:
        return ()
    names = [f"{a.name} ({a.reason})" for a in run.manifest.allocations if not a.guarded]
    shown = names[:_SHOWN] + ([f"{len(names) - _SHOWN} more"] if len(names) > _SHOWN else [])
    unguarded = f", nor around buffers without guards: {', '.join(shown)}" if shown else ""
    notes = tuple(note.text for note in run.timeline.notes if note.code is NoteCode.GUARDS)
    return (f"writes around model inputs and weights are not checked{unguarded}", *notes)


def _hit(launch: Launch, damage: GuardDamage) -> _Hit:
    """The damage with the argument that ends (or begins) nearest to it; written arguments are preferred."""
    inside = [
        argument
        for argument in launch.args
        if (span := span_of(argument)) is not None
        and damage.data <= span.begin
        and span.end <= damage.data + damage.size
    ]
    reach = damage.data + damage.first
    ordered = sorted(inside, key=lambda a: (not a.written, min(abs(reach - edge) for edge in _edges(span_of(a)))))
    return _Hit(damage, ordered[0] if ordered else None)


def _edges(span: ByteRange | None) -> tuple[int, ...]:
    return (0,) if span is None else (span.begin, span.end)


def _buffer(manifest: Manifest, damage: GuardDamage) -> str:
    """The variable that the buffer was allocated for; other variables may have reused its memory since."""
    allocations = manifest.allocations
    return (
        allocations[damage.allocation].name if damage.allocation < len(allocations) else f"buffer {damage.allocation}"
    )


def _name(manifest: Manifest, hit: _Hit) -> str:
    return hit.argument.name if hit.argument else _buffer(manifest, hit.damage)


def _element(hit: _Hit) -> int | None:
    """The offset of the damage in elements from the argument's first; negative before it."""
    tensor = hit.argument.tensor if hit.argument else None
    if tensor is None or tensor.layout.item_bytes == 0:
        return None
    return (hit.damage.data + hit.nearest - tensor.data_ptr) // tensor.layout.item_bytes


def _what(manifest: Manifest, launch: Launch, hit: _Hit) -> str:
    side = "before the start of" if hit.is_before else "past the end of"
    return f"{launch.kernel} writes {_length(hit)} {side} {_name(manifest, hit)}"


def _length(hit: _Hit) -> str:
    span = hit.damage.last + 1 - hit.damage.first
    written = wording.pluralize(hit.damage.damaged, "byte")
    return written if span == hit.damage.damaged else f"{written} (of {span})"


def _evidence(manifest: Manifest, launch: Launch, hit: _Hit) -> tuple[str, ...]:
    buffer, damage = _buffer(manifest, hit.damage), hit.damage
    element, argument = _element(hit), hit.argument
    distance = wording.pluralize(hit.distance, "byte")
    side = "before the start" if hit.is_before else "past the end"
    intact = "the guard zones around it were intact before the launch"
    if argument is None or argument.tensor is None or element is None:
        written = wording.comma_separated([a.name for a in launch.args if a.written])
        return (
            f"writes {_length(hit)}, {distance} {side} of {buffer}; {intact}",
            f"{buffer} is not one of its arguments: the address is far from everything that it writes ({written})",
        )
    layout = argument.tensor.layout
    return (
        f"writes {_length(hit)} at element {element} of {layout.numel} of {argument.name}, "
        f"{distance} {side} of its buffer",
        f"{argument.name}, {text.shape(layout)}, lies in {_memory(buffer, damage, argument)}; {intact}",
        *_written_values(hit, layout.dtype, layout.item_bytes),
    )


def _memory(buffer: str, damage: GuardDamage, argument: Argument) -> str:
    size = wording.pluralize(damage.size, "byte")
    owner = "it" if argument.name == buffer else buffer
    return f"a buffer of {size} that was allocated for {owner}"


def _written_values(hit: _Hit, dtype: str, item: int) -> tuple[str, ...]:
    """The damage as values if it holds whole elements, else as bytes."""
    damage = hit.damage
    start = -(damage.first - damage.size) % item if not hit.is_before else -damage.first % item
    data = damage.found[start:]
    elements = data[: len(data) // item * item][: _SHOWN * item]
    if not elements or start:
        return (f"bytes in the guard zone: {damage.found.hex(' ')}",)
    values = ", ".join(format_element(value, dtype) for value in decode(elements, dtype))
    return (f"values in the guard zone: {values}",)


def _further_damage(manifest: Manifest, hit: _Hit) -> str:
    side = "before the start of" if hit.is_before else "past the end of"
    return f"the same launch writes {_length(hit)} {side} {_name(manifest, hit)}, {hit.distance} bytes away from it"


def _later(damages: Iterable[GuardDamage], first: LaunchKey, order: Mapping[LaunchKey, int]) -> list[LaunchKey]:
    """The other launches that damaged guard zones, in order."""
    return sorted({damage.key for damage in damages if damage.key != first}, key=order.__getitem__)


def _others(launches: Sequence[Launch]) -> tuple[str, ...]:
    if not launches:
        return ()
    names = [f"{launch.id} {launch.kernel}" for launch in launches[:_SHOWN]]
    more = [f"{len(launches) - _SHOWN} more"] if len(launches) > _SHOWN else []
    return (
        f"{wording.pluralize(len(launches), 'later launch')} wrote outside of buffers too: {', '.join(names + more)}",
    )

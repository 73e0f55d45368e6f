"""The launch that wrote outside of a buffer, by the damage that it did to the zones around it (a run with guards)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from aoti_debug import wording
from aoti_debug.abi import NoteCode
from aoti_debug.diagnosis.dataflow import ByteRange, span_of
from aoti_debug.diagnosis.findings import Finding, FindingKind, place_of
from aoti_debug.manifest import Manifest
from aoti_debug.rundir.records import GuardDamage, LaunchKey
from aoti_debug.rundir.run_directory import RunDir
from aoti_debug.rundir.timeline import Argument, Launch
from aoti_debug.show import text
from aoti_debug.show.elements import decode, format_element

_SHOWN = 4  # of a list


@dataclass(frozen=True)
class _Hit:
    """A damage, and the argument of its launch that lies in the damaged buffer, if there is one."""

    damage: GuardDamage
    argument: Argument | None

    @property
    def in_front(self) -> bool:
        return self.damage.first < 0

    @property
    def nearest(self) -> int:
        """Offset of the damaged byte that is nearest to the buffer."""
        return self.damage.last if self.in_front else self.damage.first

    @property
    def distance(self) -> int:
        """Bytes between the buffer and the nearest damaged byte."""
        return -self.nearest - 1 if self.in_front else self.nearest - self.damage.size


def find(run: RunDir) -> Finding | None:
    """The first launch that wrote outside of a guarded buffer; None where none did, or the run had no guards."""
    launches = {launch.key: launch for launch in run.launches}
    order = {key: index for index, key in enumerate(launches)}
    known = [damage for damage in run.timeline.damages if damage.key in launches]
    if not known:
        return None
    first = min(known, key=lambda damage: order[damage.key]).key
    launch = launches[first]
    hits = sorted((_hit(launch, d) for d in known if d.key == first), key=lambda h: (h.argument is None, h.distance))
    main = hits[0]
    return Finding(
        kind=FindingKind.OVERRUN,
        what=_what(run.manifest, launch, main),
        where=place_of(launch, _name(run.manifest, main), _element(main)),
        evidence=(*_evidence(run.manifest, launch, main), *(_also(run.manifest, hit) for hit in hits[1:_SHOWN])),
        warnings=(*_others([launches[key] for key in _later(known, first, order)]), *without_guards(run)),
    )


def without_guards(run: RunDir) -> tuple[str, ...]:
    """One line on what a run with guards cannot watch; empty where it had none."""
    if not run.info.guards:
        return ()
    names = [f"{a.name} ({a.reason})" for a in run.manifest.allocations if not a.guarded]
    shown = names[:_SHOWN] + ([f"{len(names) - _SHOWN} more"] if len(names) > _SHOWN else [])
    also = f", and buffers without guards: {', '.join(shown)}" if shown else ""
    said = tuple(note.text for note in run.timeline.notes if note.code is NoteCode.GUARDS)
    return (f"writes around model inputs and weights are not watched{also}", *said)


def _hit(launch: Launch, damage: GuardDamage) -> _Hit:
    """The argument is the one that ends (or begins) nearest to the damage; one that is written goes first."""
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
    """The variable that the buffer was allocated for; its memory may have passed on to others since."""
    known = manifest.allocations
    return known[damage.allocation].name if damage.allocation < len(known) else f"buffer {damage.allocation}"


def _name(manifest: Manifest, hit: _Hit) -> str:
    return hit.argument.name if hit.argument else _buffer(manifest, hit.damage)


def _element(hit: _Hit) -> int | None:
    """Where the damage begins, counted in elements from the argument's first; below 0 in front of it."""
    tensor = hit.argument.tensor if hit.argument else None
    if tensor is None or tensor.layout.item_bytes == 0:
        return None
    return (hit.damage.data + hit.nearest - tensor.data_ptr) // tensor.layout.item_bytes


def _what(manifest: Manifest, launch: Launch, hit: _Hit) -> str:
    side = "in front of" if hit.in_front else "past the end of"
    return f"{launch.kernel} writes {_length(hit)} {side} {_name(manifest, hit)}"


def _length(hit: _Hit) -> str:
    span = hit.damage.last + 1 - hit.damage.first
    written = wording.count(hit.damage.damaged, "byte")
    return written if span == hit.damage.damaged else f"{written} (of {span})"


def _evidence(manifest: Manifest, launch: Launch, hit: _Hit) -> tuple[str, ...]:
    buffer, damage = _buffer(manifest, hit.damage), hit.damage
    element, argument = _element(hit), hit.argument
    away = wording.count(hit.distance, "byte")
    side = "in front of the begin" if hit.in_front else "past the end"
    whole = "the guard zones around it were whole before the launch"
    if argument is None or argument.tensor is None or element is None:
        written = wording.listed([a.name for a in launch.args if a.written])
        return (
            f"writes {_length(hit)}, {away} {side} of {buffer}; {whole}",
            f"{buffer} is none of its arguments: the address lies far outside of what it writes ({written})",
        )
    layout = argument.tensor.layout
    return (
        f"writes {_length(hit)} at element {element} of {layout.numel} of {argument.name}, {away} {side} of its buffer",
        f"{argument.name}, {text.shape(layout)}, lies in {_memory(buffer, damage, argument)}; {whole}",
        *_found(hit, layout.dtype, layout.item_bytes),
        f"without guards it hits whatever lies {'in front of' if hit.in_front else 'behind'} {buffer}",
    )


def _memory(buffer: str, damage: GuardDamage, argument: Argument) -> str:
    size = wording.count(damage.size, "byte")
    return f"{size} of its own" if argument.name == buffer else f"{size} that were allocated for {buffer}"


def _found(hit: _Hit, dtype: str, item: int) -> tuple[str, ...]:
    """What was written, where whole elements are there."""
    damage = hit.damage
    start = -(damage.first - damage.size) % item if not hit.in_front else -damage.first % item
    data = damage.found[start:]
    whole = data[: len(data) // item * item][: _SHOWN * item]
    if not whole or start:
        return (f"found there: {damage.found.hex(' ')}",)
    values = ", ".join(format_element(value, dtype) for value in decode(whole, dtype))
    return (f"found there: {values}",)


def _also(manifest: Manifest, hit: _Hit) -> str:
    side = "in front of" if hit.in_front else "past the end of"
    return f"the same launch writes {_length(hit)} {side} {_name(manifest, hit)}, {hit.distance} bytes away from it"


def _later(damages: Iterable[GuardDamage], first: LaunchKey, order: Mapping[LaunchKey, int]) -> list[LaunchKey]:
    """The other launches that did damage, in order."""
    return sorted({damage.key for damage in damages if damage.key != first}, key=order.__getitem__)


def _others(launches: Sequence[Launch]) -> tuple[str, ...]:
    if not launches:
        return ()
    names = [f"{launch.id} {launch.kernel}" for launch in launches[:_SHOWN]]
    more = [f"{len(launches) - _SHOWN} more"] if len(launches) > _SHOWN else []
    return (f"{wording.count(len(launches), 'later launch')} wrote outside of buffers too: {', '.join(names + more)}",)

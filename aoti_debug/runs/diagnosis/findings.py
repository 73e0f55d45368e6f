"""Findings, the results of a triage: the fault, its place and origin, the evidence and the confirmation.

A finding is plain data: it is stored as JSON (docs/triage.schema.json) and rendered in a terminal or an HTML page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from enum import Enum
from typing import Any

from aoti_debug.base.errors import EXIT_CLEAN, EXIT_FINDING, EXIT_INCOMPLETE
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import json_data
from aoti_debug.base.machine.files.json_data import DamagedJsonError
from aoti_debug.package.manifest import ModelLine
from aoti_debug.runs.rundir.launch import Launch


class Tone(str, Enum):
    """The colour of a finding on a page: green, amber, red."""

    GOOD = "good"
    OPEN = "open"
    BAD = "bad"


@dataclass(frozen=True)
class FindingKind:
    """The category of a finding. A category is declared beside the code that looks for it.

    Attributes:
        value: its name in JSON: "nonfinite".
        description: one line: "NaN or an unintended infinity".
        heading: the first words on a terminal: "NOT FINITE".
        title: the name on an HTML page: "not finite".
        sign: one character for an HTML page.
        exit_code: of a command that ends in a finding of this kind.
        tone: its colour on an HTML page.
    """

    value: str
    description: str
    heading: str
    title: str
    sign: str = "✖"
    exit_code: int = EXIT_FINDING
    tone: Tone = Tone.BAD

    @property
    def is_fault(self) -> bool:
        """True if something is wrong; False for a clean model, as far as it could be compared."""
        return self.exit_code == EXIT_FINDING


CLEAN = FindingKind("clean", "nothing is wrong", "CLEAN", "clean", "✔", EXIT_CLEAN, Tone.GOOD)
INCOMPLETE = FindingKind(
    "incomplete",
    "nothing is wrong in what was compared, and not everything was",
    "CLEAN as far as compared:",
    "clean as far as compared",
    "◐",
    EXIT_INCOMPLETE,
    Tone.OPEN,
)
UNFINISHED = FindingKind(
    "unfinished",
    "its time was over before all was looked at",
    "NOT FINISHED",
    "not finished",
    "…",
    EXIT_INCOMPLETE,
    Tone.OPEN,
)
NO_FAULT = FindingKind("no_fault", "a run ended well", "NO FAULT", "no fault", "○", EXIT_CLEAN, Tone.GOOD)
FAULT = FindingKind("fault", "a launch crashed, threw an exception, or caused a device error", "FAULT", "fault")
NONFINITE = FindingKind("nonfinite", "NaN or an unintended infinity", "NOT FINITE", "not finite", "∞", tone=Tone.OPEN)
HANG = FindingKind("hang", "no launch begins or ends any more", "HANG", "hang", "◌")


@dataclass(frozen=True)
class Place:
    """A launch, or a model input or weight (then `launch` is "").

    Attributes:
        launch: "0.3".
        kernel: "triton_poi_fused_0"; for operators the callee's name.
        operator: "aten.addmm.out", "mylib::op.default"; "" for a generated kernel.
        input: the model input or weight; of a launch, the one that its argument is, or "".
        argument: the tensor in question, by its name in the launch.
        element: the row-major index of the element in question; None if there is none.
        frame: the model line.
        coordinates: the indices of the element, one a dimension; () if the tensor has none or its shape is unknown.
        input_kind: "input", "weight", "buffer" or "constant": what of the model `input` is; "" if that is not known.
    """

    launch: str = ""
    kernel: str = ""
    operator: str = ""
    input: str = ""
    argument: str = ""
    element: int | None = None
    frame: ModelLine | None = None
    coordinates: tuple[int, ...] = ()
    input_kind: str = ""


@dataclass(frozen=True)
class Finding:
    """A fault of the model, or a clean result.

    Attributes:
        what: one line: "CUDA error 700: an illegal memory access was encountered", "NaN in buf3".
        where: the launch to blame.
        evidence: sentences about what was observed, the strongest first.
        origin: the place that was observed to produce the bad value, if it is another one, or the same in more detail.
        chain: from the origin to `where`, both included; empty if they are the same.
        confirmed_by: tools that found the same in the repro: "interpret: load outside buf1, element 64010 of 64000".
        contradicted_by: tools that were tried and did not find it.
        repro: the folder of the repro; "" if there is none.
        next: commands to type.
        warnings: other observations, one line each; they are not findings.
        also: other findings of the same triage.
        possible: sentences about what was not observed, each with "may".
        stack: useful frames of the host's call stack, innermost first; none if it is not known or says nothing.
        signal: that ended the process: "SIGSEGV"; "" if none did, or that is not known.
        address: that the thread accessed at that signal, in a core file; None if it is not known.
        package: of a script that calls several: the file name of the one at fault; else "".
        call: the number of its call, from 0; None if it is not known.
    """

    kind: FindingKind
    what: str
    where: Place | None = None
    evidence: tuple[str, ...] = ()
    origin: Place | None = None
    chain: tuple[Place, ...] = ()
    confirmed_by: tuple[str, ...] = ()
    contradicted_by: tuple[str, ...] = ()
    repro: str = ""
    next: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    also: tuple[Finding, ...] = ()
    possible: tuple[str, ...] = ()
    stack: tuple[str, ...] = ()
    signal: str = ""
    address: int | None = None
    package: str = ""
    call: int | None = None

    @property
    def heading(self) -> str:
        """The first words on a terminal: "NOT FINITE", "NOT FINITE in call 3 of model-8450f9b3.pt2:"."""
        call = "" if self.call is None else f"call {self.call} of "
        return f"{self.kind.heading} in {call}{self.package}:" if self.package else self.kind.heading


def map_repros(finding: Finding, change: Callable[[str], str]) -> Finding:
    """The finding with the paths of its repro, and of those of the findings with it, changed."""
    repro = change(finding.repro) if finding.repro else ""
    return replace(finding, repro=repro, also=tuple(map_repros(other, change) for other in finding.also))


def place_of(launch: Launch, argument: str = "", element: int | None = None, input_: str = "") -> Place:
    """The place of a launch, with the innermost frame of its provenance.

    Args:
        input_: the user's name of the model input or weight that the argument is; "" if it is neither.
    """
    site = launch.site
    frame = site.provenance.source[0] if site.provenance.source else None
    return Place(launch.id, site.kernel, site.op, input_, argument, element, frame)


def to_json(finding: Finding) -> dict[str, Any]:
    """The finding as plain data (docs/triage.schema.json): its place's members lie beside `kind`; null: unknown."""
    return {
        "kind": finding.kind.value,
        "what": finding.what,
        **_place_to_json(finding.where or Place()),
        "origin": None if finding.origin is None else _place_to_json(finding.origin),
        "chain": [_place_to_json(place) for place in finding.chain],
        "evidence": list(finding.evidence),
        "possible": list(finding.possible),
        "stack": list(finding.stack),
        "signal": finding.signal or None,
        "address": None if finding.address is None else f"{finding.address:#x}",
        "package": finding.package or None,
        "call": finding.call,
        "confirmed_by": list(finding.confirmed_by),
        "contradicted_by": list(finding.contradicted_by),
        "repro": finding.repro or None,
        "next": list(finding.next),
        "warnings": list(finding.warnings),
        "also": [to_json(other) for other in finding.also],
    }


def from_json(data: Mapping[str, Any], kinds: Mapping[str, FindingKind], where: str = "") -> Finding:
    """The inverse of `to_json`.

    Args:
        kinds: those that a finding may be of, by their values.
        where: the place of `data` in its file, for messages; "" for the whole of it.

    Raises:
        DamagedJsonError: `data` is malformed.
    """
    members = json_data.from_data(_FindingJson, data, where)
    place = _place(json_data.from_data(_PlaceJson, data, where))
    return Finding(
        kind=_kind(members.kind, kinds),
        what=members.what,
        where=None if place == Place() else place,
        evidence=members.evidence,
        possible=members.possible,
        stack=members.stack,
        signal=members.signal or "",
        address=_address(members.address),
        package=members.package or "",
        call=members.call,
        origin=None if members.origin is None else _place(members.origin),
        chain=tuple(map(_place, members.chain)),
        confirmed_by=members.confirmed_by,
        contradicted_by=members.contradicted_by,
        repro=members.repro or "",
        next=members.next,
        warnings=members.warnings,
        also=tuple(from_json(other, kinds, f"{where}.also" if where else "also") for other in members.also),
    )


@dataclass(frozen=True)
class _PlaceJson:
    """A place as JSON: null for unknown members, the members of its frame among its own."""

    launch: str | None
    kernel: str | None
    operator: str | None
    input: str | None
    argument: str | None
    element: int | None
    file: str | None
    line: int | None
    function: str | None
    text: str | None
    coordinates: tuple[int, ...] = ()
    input_kind: str | None = None


@dataclass(frozen=True)
class _FindingJson:
    """A finding as JSON, without its place, whose members are beside these."""

    kind: str
    what: str
    origin: _PlaceJson | None
    chain: tuple[_PlaceJson, ...]
    evidence: tuple[str, ...]
    confirmed_by: tuple[str, ...]
    contradicted_by: tuple[str, ...]
    repro: str | None
    next: tuple[str, ...]
    warnings: tuple[str, ...]
    also: tuple[Mapping[str, Any], ...] = ()
    possible: tuple[str, ...] = ()
    stack: tuple[str, ...] = ()
    signal: str | None = None
    address: str | None = None
    package: str | None = None
    call: int | None = None


def _address(text: str | None) -> int | None:
    try:
        return None if text is None else int(text, 16)
    except ValueError:
        raise DamagedJsonError(f"address is {text!r}, no hexadecimal number") from None


def _kind(value: str, kinds: Mapping[str, FindingKind]) -> FindingKind:
    if value not in kinds:
        raise json_data.DamagedJsonError(f"kind is {value!r}, not one of {', '.join(kinds)}")
    return kinds[value]


_TEXTS = ("launch", "kernel", "operator", "input", "argument")


def _place_to_json(place: Place) -> dict[str, Any]:
    frame = dict.fromkeys(("file", "line", "function", "text")) if place.frame is None else asdict(place.frame)
    texts = {name: getattr(place, name) or None for name in _TEXTS}
    kind = {"input_kind": place.input_kind or None}
    return {**texts, "element": place.element, **frame, "coordinates": place.coordinates, **kind}


def _place(place: _PlaceJson) -> Place:
    texts = {name: getattr(place, name) or "" for name in _TEXTS}
    kind = place.input_kind or ""
    return Place(**texts, element=place.element, frame=_frame(place), coordinates=place.coordinates, input_kind=kind)


def _frame(place: _PlaceJson) -> ModelLine | None:
    if place.file is None:
        return None
    if place.line is None:
        raise DamagedJsonError(f"a place in {place.file} has no line")
    return ModelLine(place.file, place.line, place.function or "", place.text or "")

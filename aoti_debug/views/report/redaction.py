"""Redaction: removes values of tensors, or source, from texts and findings."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from enum import Enum

from aoti_debug.base.frozen import dataclass
from aoti_debug.package.manifest import Manifest
from aoti_debug.runs.diagnosis.findings import Finding, Place

LEFT_OUT = "[left out]"
_MIN_LINE = 6  # characters; shorter source lines are not searched for
# A number that is not part of a name: 64010, -1.5e3, 0x7f; not the 3 of buf3. Paths and ids of launches are kept.
_NUMBER = re.compile(
    r"(?P<kept>(?<!\S)[(\"']?[.~]{0,2}/\S+|\blaunch c?\d+\.\d+|[\w-]+\.(?:py|cpp|h|cu):\d+)"
    r"|(?<![\w.#])[-+]?(?:0x[0-9a-f]+|(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)(?![\w.])",
    re.IGNORECASE,
)
_PUNCTUATION = re.compile(r"[^\w\s]")  # tells a line of source from plain words
_CODE = re.compile(r"[{}=]|;\s*$|\w\(|->|\w\[\w*[a-z_]\w*\]|^\s*(?:File \"|def |return )", re.MULTILINE)


class RedactedPart(str, Enum):
    """A kind of content that a bundle or a report can leave out."""

    TENSORS = "tensors"  # values of tensors and everything computed from them
    SOURCE = "source"  # source of kernels and of the model, stacks


@dataclass(frozen=True)
class Redaction:
    """The parts to leave out, and how texts and findings are stripped of them.

    Attributes:
        parts: what is left out.
        lines: lines of source that no text may quote.
    """

    parts: frozenset[RedactedPart] = frozenset()
    lines: frozenset[str] = frozenset()

    @property
    def removes_tensors(self) -> bool:
        """True if values of tensors are left out."""
        return RedactedPart.TENSORS in self.parts

    @property
    def removes_source(self) -> bool:
        """True if source is left out."""
        return RedactedPart.SOURCE in self.parts

    def redact(self, sentence: str) -> str:
        """The sentence without the numbers, or the source, that it may quote.

        A sentence that merely looks like source is left out as well: better to lose a sentence than to leak a line.
        """
        if self.removes_source:
            sentence = sentence.partition("\n")[0]
            for line in sorted((line for line in self.lines if line in sentence), key=len, reverse=True):
                sentence = sentence.replace(line, LEFT_OUT)
            if _CODE.search(sentence):
                sentence = LEFT_OUT
        if self.removes_tensors:
            sentence = _NUMBER.sub(lambda match: match["kept"] or "#", sentence)
        return sentence

    def redact_all(self, sentences: Iterable[str]) -> tuple[str, ...]:
        """Every sentence, redacted."""
        return tuple(self.redact(sentence) for sentence in sentences)

    def redact_finding(self, finding: Finding) -> Finding:
        """The finding, redacted. The path of the repro stays; the repro itself is left out of a redacted bundle."""
        if not self.parts:
            return finding
        return replace(
            finding,
            what=self.redact(finding.what),
            where=self._place(finding.where),
            origin=self._place(finding.origin),
            chain=tuple(place for each in finding.chain if (place := self._place(each)) is not None),
            evidence=self.redact_all(finding.evidence),
            possible=self.redact_all(finding.possible),
            stack=() if self.removes_source else self.redact_all(finding.stack),
            confirmed_by=self.redact_all(finding.confirmed_by),
            contradicted_by=self.redact_all(finding.contradicted_by),
            warnings=self.redact_all(finding.warnings),
            also=tuple(map(self.redact_finding, finding.also)),
        )

    def _place(self, place: Place | None) -> Place | None:
        """The place without its source line, or without its element: an index may have been read from a tensor."""
        if place is None:
            return None
        frame = place.frame
        if self.removes_source and frame is not None:
            frame = replace(frame, text="")
        if self.removes_tensors:
            place = replace(place, element=None, coordinates=())
        return replace(place, frame=frame)


NO_REDACTION = Redaction()


def redaction_for(parts: Collection[RedactedPart], manifests: Iterable[Manifest], finding: Finding) -> Redaction:
    """The redaction of these parts; source lines are taken from the manifests and the finding."""
    if not parts:
        return NO_REDACTION
    places = [place for each in (finding, *finding.also) for place in (each.where, each.origin, *each.chain)]
    texts = [place.frame.text for place in places if place and place.frame]
    for manifest in manifests:
        texts += [kernel.source for kernel in manifest.kernels]
        texts += [
            manifest.triton_helpers,
            *(text for call in manifest.unrecognised for text in (call.text, call.reason)),
        ]
        for site in manifest.sites:
            texts += [frame.text for frame in site.provenance.source]
            texts += site.provenance.stacks
    lines = {line.strip() for text in texts for line in text.splitlines()}
    quotable = frozenset(line for line in lines if len(line) >= _MIN_LINE and _PUNCTUATION.search(line))
    return Redaction(frozenset(parts), quotable)

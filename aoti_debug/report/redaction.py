"""What may not leave the house, taken out of texts and findings."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import Enum

from aoti_debug.diagnosis.findings import Finding, Place
from aoti_debug.manifest import Manifest


class RedactedPart(str, Enum):
    TENSORS = "tensors"  # values of tensors and everything computed from them
    SOURCE = "source"  # source of kernels and of the model, stacks


LEFT_OUT = "[left out]"
_SHORTEST = 6  # characters of a source line that is looked for
# A number that is not part of a name: 64010, -1.5e3, 0x7f; not the 3 of buf3. Paths and ids of launches are kept.
_NUMBER = re.compile(
    r"(?P<kept>(?<!\S)[(\"']?[.~]{0,2}/\S+|\blaunch c?\d+\.\d+|[\w-]+\.(?:py|cpp|h|cu):\d+)"
    r"|(?<![\w.#])[-+]?(?:0x[0-9a-f]+|(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)(?![\w.])",
    re.IGNORECASE,
)
_SIGN = re.compile(r"[^\w\s]")  # what words of a sentence do not have
_CODE = re.compile(r"[{}=]|;\s*$|\w\(|->|\w\[\w*[a-z_]\w*\]|^\s*(?:File \"|def |return )", re.MULTILINE)


@dataclass(frozen=True)
class Withheld:
    """
    Attributes:
        parts: what is left out.
        lines: lines of source that no text may quote.
    """

    parts: frozenset[RedactedPart] = frozenset()
    lines: frozenset[str] = frozenset()

    @property
    def tensors(self) -> bool:
        return RedactedPart.TENSORS in self.parts

    @property
    def source(self) -> bool:
        return RedactedPart.SOURCE in self.parts

    def text(self, sentence: str) -> str:
        """A sentence for people without the numbers, or the source, that it may quote.

        What of it may be source in other words is left out as well: rather a sentence too few.
        """
        if self.source:
            sentence = sentence.partition("\n")[0]
            for line in sorted((line for line in self.lines if line in sentence), key=len, reverse=True):
                sentence = sentence.replace(line, LEFT_OUT)
            if _CODE.search(sentence):
                sentence = LEFT_OUT
        if self.tensors:
            sentence = _NUMBER.sub(lambda found: found["kept"] or "#", sentence)
        return sentence

    def texts(self, sentences: Iterable[str]) -> tuple[str, ...]:
        return tuple(self.text(sentence) for sentence in sentences)

    def finding(self, finding: Finding) -> Finding:
        """The finding without what is withheld. With either part the repro is no part of what is sent."""
        if not self.parts:
            return finding
        return replace(
            finding,
            what=self.text(finding.what),
            where=self._place(finding.where),
            origin=self._place(finding.origin),
            chain=tuple(place for each in finding.chain if (place := self._place(each)) is not None),
            evidence=self.texts(finding.evidence),
            confirmed_by=self.texts(finding.confirmed_by),
            contradicted_by=self.texts(finding.contradicted_by),
            warnings=self.texts(finding.warnings),
        )

    def _place(self, place: Place | None) -> Place | None:
        """An element is where a value points to, or where it lies."""
        if place is None:
            return None
        frame = place.frame
        if self.source and frame is not None:
            frame = replace(frame, text="")
        return replace(place, frame=frame, element=None if self.tensors else place.element)


NOTHING = Withheld()


def withheld(parts: Collection[RedactedPart], manifests: Iterable[Manifest], finding: Finding) -> Withheld:
    """What to leave out; the source lines are those that the manifests and the finding know."""
    if not parts:
        return NOTHING
    texts = [place.frame.text for place in (finding.where, finding.origin, *finding.chain) if place and place.frame]
    for manifest in manifests:
        texts += [kernel.source for kernel in manifest.kernels]
        texts += [manifest.triton_helpers, *(call.text for call in manifest.unrecognised)]
        for site in manifest.sites:
            texts += [frame.text for frame in site.provenance.source]
            texts += site.provenance.stacks
    lines = {line.strip() for text in texts for line in text.splitlines()}
    known = frozenset(line for line in lines if len(line) >= _SHORTEST and _SIGN.search(line))
    return Withheld(frozenset(parts), known)

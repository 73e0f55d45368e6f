"""The attempts that may become the result: one after another is triaged until that confirms the finding."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from aoti_debug.triage.minify.scripts.attempt import Attempt
from aoti_debug.triage.minify.start.start import Unit

MOST = 4  # candidates that are triaged


def candidates(
    simplified: Attempt, reduced: Attempt, seen: Iterable[Attempt], others: Iterable[Attempt]
) -> Iterator[Attempt]:
    """Yields the smallest attempt, the same with the recorded inputs, then larger ones that showed the finding.

    Args:
        simplified: with simpler inputs, or equal to `reduced`.
        seen: while it was reduced; the next larger one comes first.
        others: that were not reduced, the likeliest first; read only as far as they are asked for.
    """
    yield simplified
    if reduced != simplified:
        yield reduced
    known = {_identity(reduced)}
    for attempt in itertools.chain(sorted(seen, key=lambda attempt: len(attempt.units)), others):
        is_larger = len(attempt.units) > len(reduced.units)
        if is_larger and _identity(attempt) not in known:
            known.add(_identity(attempt))
            yield attempt


def _identity(attempt: Attempt) -> tuple[str, tuple[Unit, ...]]:
    return attempt.start.name, attempt.units

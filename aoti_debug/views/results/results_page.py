"""The page that lists what commands have made, and leads to the page of each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from aoti_debug.base import wording
from aoti_debug.base.frozen import dataclass
from aoti_debug.views.report.page import PageParts, render
from aoti_debug.views.results.made_results import MadeResult, ResultSummary

_PARTS = PageParts("results.html", ("results.js",), ("report.css",), ())
_MESSAGE = PageParts("message.html", (), ("report.css",), ())


@dataclass(frozen=True)
class _Row:
    """A line of the list.

    Attributes:
        link: the address of its page.
        age: "12 min".
        made: seconds since 1970.
    """

    name: str
    link: str
    kind: str
    shown: ResultSummary
    age: str
    made: int


def results_page(results: Sequence[MadeResult], home: Path) -> str:
    """The text of the page, the newest result first.

    Args:
        home: the directory whose results are listed, to be named.
    """
    now = time.time()
    rows = [
        _Row(
            result.name,
            f"/page/{quote(result.name, safe='')}",
            result.kind.value,
            result.summary,
            wording.age(now - result.made),
            int(result.made),
        )
        for result in sorted(results, key=lambda result: -result.made)
    ]
    values = {
        "title": f"{wording.pluralize(len(rows), 'result')} in {home}",
        "home": str(home),
        "rows": rows,
        "kinds": list(dict.fromkeys(row.kind for row in rows)),
    }
    return render(_PARTS, {}, values)


def message_page(title: str, lines: Sequence[str]) -> str:
    """The text of a page that says why there is no other."""
    return render(_MESSAGE, {}, {"title": title, "lines": lines})

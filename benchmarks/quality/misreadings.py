"""Changes generated wrappers, and looks for what is then read wrongly of their launches without a word.

usage: python -m benchmarks.quality.misreadings [--minutes M] [--seed N] [--keep DIR]

The changes are those of the suite (tests/instrument/wrapper/changed_*.py): parameters that are renamed, added or in
another order, launches from lambdas and loops, calls of what is not known. A variant that is misread is written to DIR,
with what is wrong. Prints a Markdown table; exits with 1 after a misreading.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from pathlib import Path

from benchmarks import markdown
from tests.instrument.wrapper.changed_wrappers import SHIMS, Variant, Wrapper
from tests.instrument.wrapper.test_misreadings import EDITS, WRAPPERS, misreadings


def wrong_in(wrapper: Wrapper, variant: Variant) -> list[str]:
    """What is misread of a variant; an exception is, too."""
    try:
        return misreadings(wrapper, variant)
    except Exception as error:  # noqa: BLE001  # a wrapper that nobody knows may not end the tool
        return [f"{type(error).__name__}: {error}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=Path("misreadings"), metavar="DIR")
    options = parser.parse_args()
    made: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    end = time.monotonic() + 60 * options.minutes
    rng = random.Random(options.seed)
    while time.monotonic() < end:
        name = rng.choice(list(EDITS))
        wrappers, make = EDITS[name]
        wrapper = WRAPPERS[rng.choice(wrappers)]
        variant = make(wrapper, rng)
        if variant is None or (variant.text == wrapper.text and variant.shims == SHIMS):
            continue
        made[name] += 1
        if found := wrong_in(wrapper, variant):
            wrong[name] += 1
            options.keep.mkdir(parents=True, exist_ok=True)
            file = options.keep / f"{name}-{made[name]}-{wrapper.name}.cpp"
            file.write_text(variant.text)
            file.with_suffix(".txt").write_text("\n".join(found) + "\n")
            print(f"{file}: {found[0]}", file=sys.stderr, flush=True)
    rows = [(name.replace("_", " "), str(made[name]), str(wrong[name])) for name in sorted(EDITS)]
    total = ("all", str(made.total()), str(wrong.total()))
    markdown.table(("change", "wrappers", "misread"), (*rows, total))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

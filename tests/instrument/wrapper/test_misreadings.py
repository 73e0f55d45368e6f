"""Generated wrappers with one construct changed: each launch is read as it then is, or it is not recognised.

An edit keeps the numbers of the lines, and says what may be read of the launches in the lines that it concerns.
Launches in other lines are read as before, or not at all.
"""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from aoti_debug.instrument.wrapper.analysis import Analysis, analyse
from aoti_debug.package.manifest import Site
from tests.instrument.wrapper import changed_calls, changed_functions, texts
from tests.instrument.wrapper.changed_wrappers import ALL, SHIMS, Variant, Wrapper, as_before

SEED = 20261127
VARIANTS = 12  # of each edit
EDITS = changed_functions.EDITS | changed_calls.EDITS

WRAPPERS = {name: Wrapper(name, texts.text(name), texts.analysis(name)) for name in ALL}


def analysed(name: str, variant: Variant) -> Analysis:
    proxy = texts.WRAPPERS / f"{name}.proxy.json"
    return analyse(
        variant.text,
        proxy=proxy.read_text() if proxy.exists() else "",
        headers=[variant.shims],
        operators=texts.OPERATORS,
        schemas=texts.SCHEMAS,
    )


def misreadings(wrapper: Wrapper, variant: Variant) -> list[str]:
    """What is read of a variant and is not so, or what is lost without a word."""
    found = analysed(wrapper.name, variant)
    unrecognised = {call.line for call in found.unrecognised}
    by_line: defaultdict[int, list[Site]] = defaultdict(list)
    for site in found.sites:
        by_line[site.line].append(site)
    wrong = []
    for before in wrapper.analysis.sites:
        checks = variant.lines.get(before.line, (as_before(before),))
        read = [site for site in by_line[before.line] if site.callee == before.callee]
        wrong += [f"line {before.line}: {site}" for site in read if not any(check(site) for check in checks)]
        if (not read or changed_calls.named in checks) and before.line not in unrecognised:
            wrong.append(f"line {before.line}: {before.callee} is neither read nor named")
    lines = {before.line for before in wrapper.analysis.sites}
    wrong += [f"line {line}: {sites[0].callee} is new" for line, sites in by_line.items() if line not in lines]
    for kernel in found.kernels:
        names = variant.kernels.get(kernel.name, ())
        if names is None or (names and tuple(p.name for p in kernel.params) != names):
            wrong.append(f"kernel {kernel.name}: {[p.name for p in kernel.params]}")
    return wrong


@pytest.mark.parametrize("name", EDITS)
def test_no_change_is_misread(name: str) -> None:
    wrappers, make = EDITS[name]
    rng = random.Random(f"{SEED} {name}")
    made = 0
    for _ in range(20 * VARIANTS):
        wrapper = WRAPPERS[rng.choice(wrappers)]
        variant = make(wrapper, rng)
        if variant is None or (variant.text == wrapper.text and variant.shims == SHIMS):
            continue
        assert misreadings(wrapper, variant) == [], f"variant {made} of {wrapper.name}"
        made += 1
        if made == VARIANTS:
            return
    raise AssertionError(f"only {made} variants")


def test_the_oracle_accepts_the_wrappers_themselves() -> None:
    assert [found for w in WRAPPERS.values() for found in misreadings(w, Variant(w.text))] == []

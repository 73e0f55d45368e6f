"""Generated wrappers with a construct changed, and what may then be read of their launches."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from aoti_debug.instrument.wrapper.analysis import Analysis
from aoti_debug.package.manifest import Arg, Role, Site
from tests.instrument.wrapper import texts

SEED = 20261127
VARIANTS = 12  # of each edit
FIRST_RUN = ("torch_2.14.1_first_run", "torch_2.15.0_first_run_with_sources")
CUDA = (
    *("cuda", "cuda_dynamic", "cuda_multi_kernel", "cuda_forms"),
    *("torch_2.14.1_own_kernel", "torch_2.15.0_tensor_descriptors", "torch_2.15.0_overlapping"),
    *FIRST_RUN,
)
ALL = tuple(name for name in texts.NAMES if not name.endswith("profiled"))
SHIMS = (texts.WRAPPERS / "shim.h.txt").read_text()
PLUMBING = ("device_idx_", "stream_", "kernels_", "cubin_dir_")
_FUNCTION = re.compile(
    r"^template[^\n]*\nstatic [^\n]*void (call_\w+)\(\n(.*?)\n\)\{(.*?)^\}\n", re.DOTALL | re.MULTILINE
)
_CALL = r"(?<!void )\b{}\((?P<arguments>.*)\);"

Check = Callable[[Site], bool]


@dataclass(frozen=True)
class Variant:
    """A changed wrapper.

    Attributes:
        lines: lines with launches that the edit concerns, with what may be read there; an empty tuple: nothing may be.
        kernels: Triton kernels that the edit concerns, with the names of their arguments; None: none is known.
    """

    text: str
    lines: Mapping[int, tuple[Check, ...]] = field(default_factory=dict)
    kernels: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    shims: str = SHIMS


@dataclass(frozen=True)
class Wrapper:
    name: str
    text: str
    analysis: Analysis

    def line(self, offset: int) -> int:
        return self.text.count("\n", 0, offset) + 1


@dataclass(frozen=True)
class Function:
    """A `call_*` function: where it stands, its parameters, and the calls of it."""

    name: str
    start: int
    end: int
    parameters: tuple[str, ...]
    own: int  # how many of them are those of the kernel
    calls: tuple[re.Match[str], ...]

    def text(self, wrapper: Wrapper) -> str:
        return wrapper.text[self.start : self.end]

    def arguments(self, call: re.Match[str]) -> list[str]:
        return split(call["arguments"])


def split(text: str) -> list[str]:
    """The parts of a text between the commas outside of brackets."""
    parts, depth, last = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            parts.append(text[last:i].strip())
            last = i + 1
    return [*parts, text[last:].strip()]


def functions(wrapper: Wrapper) -> list[Function]:
    found = []
    for match in _FUNCTION.finditer(wrapper.text):
        parameters = tuple(line.strip().rstrip(",") for line in match[2].split("\n"))
        own = sum(re.split(r"\W+", p.partition("=")[0].strip())[-1] not in PLUMBING for p in parameters)
        calls = tuple(re.finditer(_CALL.format(match[1]), wrapper.text))
        if calls:
            found.append(Function(match[1], match.start(), match.end(), parameters, own, calls))
    return found


def edited(text: str, edits: Iterable[tuple[int, int, str]]) -> str:
    for start, end, new in sorted(edits, reverse=True):
        assert new.count("\n") == text.count("\n", start, end), "an edit keeps the numbers of the lines"
        text = text[:start] + new + text[end:]
    return text


def pick_function(wrapper: Wrapper, rng: random.Random) -> Function | None:
    found = functions(wrapper)
    return rng.choice(found) if found else None


def name_of(parameter: str) -> str:
    return re.split(r"\W+", parameter.partition("=")[0].strip())[-1]


def site_at(wrapper: Wrapper, line: int) -> Site:
    return next(site for site in wrapper.analysis.sites if site.line == line)


def lines_of(wrapper: Wrapper, function: Function) -> list[int]:
    return [wrapper.line(call.start()) for call in function.calls]


def weaker(role: Role, true: Role) -> bool:
    """True if a role that is read claims nothing that is not so."""
    return role in (true, Role.UNKNOWN)


def same_args(site: Site, args: Iterable[Arg]) -> bool:
    """True if a site is read with these arguments; of roles less may be known."""
    args = tuple(args)
    return len(site.args) == len(args) and all(
        (a.name, a.param, a.form, a.ctype, a.text, a.value, a.element, a.base)
        == (b.name, b.param, b.form, b.ctype, b.text, b.value, b.element, b.base)
        and weaker(a.role, b.role)
        for a, b in zip(site.args, args, strict=True)
    )


def as_before(site: Site) -> Check:
    def check(read: Site) -> bool:
        # The numbers of sites move when one before is not read, also those of the sites that it waits for.
        numbered = replace(read, id=site.id, waits_for=site.waits_for)
        same = replace(numbered, args=site.args, provenance=site.provenance) == site
        return same and same_args(read, site.args)

    return check


NOTHING: tuple[Check, ...] = ()
Edit = Callable[[Wrapper, random.Random], "Variant | None"]
Edits = dict[str, tuple[tuple[str, ...], Edit]]


def registered_in(edits: Edits, names: tuple[str, ...]) -> Callable[[Edit], Edit]:
    """Makes a decorator for edits of these wrappers."""

    def register(function: Edit) -> Edit:
        edits[function.__name__] = (names, function)
        return function

    return register

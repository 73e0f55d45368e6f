from __future__ import annotations

from dataclasses import replace

import pytest

from aoti_debug.base.abi import Level
from aoti_debug.base.errors import UsageError
from aoti_debug.package import recording_settings
from aoti_debug.package.manifest import Certainty, Manifest, ModelLine, PackageOrigin, Provenance, Site
from aoti_debug.package.origins import common_module
from aoti_debug.package.recording_settings import Criterion, SiteFilter
from tests.factories import make_manifest, site


@pytest.mark.parametrize("level", Level)
def test_a_level_is_read_as_it_is_written(level: Level) -> None:
    assert recording_settings.level_number(recording_settings.written_level(level)) == level
    assert recording_settings.level_number(str(recording_settings.written_level(level))) == level
    assert recording_settings.level_number(level) == level


def test_only_the_one_without_a_number_has_a_name() -> None:
    assert [recording_settings.written_level(level) for level in Level] == [0, 1, 2, 3, "hash"]


@pytest.mark.parametrize("level", [7, -1, "4", "Hash", "", "values"])
def test_what_is_no_level(level: int | str) -> None:
    with pytest.raises(UsageError, match="is not one of 0, 1, 2, 3, hash"):
        recording_settings.level_number(level)


def test_a_level_that_is_not_allowed_here() -> None:
    with pytest.raises(UsageError, match="level 3 is not one of 1, 2, hash"):
        recording_settings.level_number(3, recording_settings.WITH_HASHES)


STACK = """\
  File "/home/u/model.py", line 20, in forward
    x = self.encoder(x)
  File "/usr/lib/python3/site-packages/torch/nn/modules/linear.py", line 125, in forward
    return F.linear(input, self.weight, self.bias)
  File "/home/u/layers.py", line 7, in forward
    return self.linear(x)
"""


def in_modules(kernel: str, *modules: str, stacks: tuple[str, ...] = ()) -> Site:
    line = ModelLine("/home/u/model.py", 30, "forward", "y = x + 1")
    return site(kernel, provenance=Provenance(Certainty.EXACT, source=(line,), stacks=stacks, modules=modules))


FUSED = in_modules("cpp_fused_0", "encoder.layers.0.norm1", "encoder.layers.1")
HEAD = in_modules("aoti_torch_cpu_addmm_out", "head", stacks=(STACK,))
OWN = in_modules("cpp_fused_1")
PACKAGE = make_manifest(FUSED, HEAD, OWN)


@pytest.mark.parametrize(
    ("modules", "chosen"),
    [
        (("encoder",), (FUSED,)),
        (("encoder.layers.0",), (FUSED,)),
        (("encoder.layers.1.*",), ()),
        (("*.norm?", "head"), (FUSED, HEAD)),
        (("!head",), (FUSED, OWN)),
        (("encoder", "!*.norm1"), ()),
    ],
)
def test_a_fused_kernel_belongs_to_all_of_its_modules(modules: tuple[str, ...], chosen: tuple[Site, ...]) -> None:
    filter_ = SiteFilter(modules=modules)
    assert tuple(found for found in (FUSED, HEAD, OWN) if filter_.selects(found)) == chosen


@pytest.mark.parametrize(
    ("line", "selected"),
    [
        ("model.py:20", True),
        ("u/layers.py:7", True),
        ("/home/u/layers.py:7", True),
        ("*.py:7", True),
        ("odel.py:20", False),
        ("layers.py:8", False),
        ("linear.py:125", False),
    ],
)
def test_a_line_stands_for_all_that_it_calls(line: str, selected: bool) -> None:
    assert SiteFilter(lines=(line,)).selects(HEAD) == selected


def test_every_list_must_be_passed() -> None:
    assert SiteFilter(("cpp_*",), ("encoder",), ("model.py:30",)).selects(FUSED)
    assert not SiteFilter(("aoti_*",), ("encoder",)).selects(FUSED)
    assert SiteFilter(("!aoti_*",)).selects(OWN)


def test_patterns_that_match_nothing() -> None:
    chosen = SiteFilter(("cpp_*", "!triton_*", "CPP_*"), ("encodr.layers.0", "head"), ("model.py:31",))
    missed = recording_settings.unmatched(PACKAGE, chosen)
    assert [(m.criterion, m.pattern) for m in missed] == [
        (Criterion.KERNEL, "!triton_*"),
        (Criterion.KERNEL, "CPP_*"),
        (Criterion.MODULE, "encodr.layers.0"),
        (Criterion.LINE, "model.py:31"),
    ]
    assert missed[2].known == ("encoder.layers.1", "encoder.layers.0.norm1", "head")
    assert missed[3].known[0] in ("/home/u/model.py:30", "/home/u/model.py:20")
    assert recording_settings.unmatched(PACKAGE, SiteFilter(("cpp_*", "!aoti_*"))) == ()


def test_the_words_of_a_filter() -> None:
    chosen = SiteFilter(("a", "!b"), lines=("m.py:1",))
    assert str(chosen) == "filter a !b, line m.py:1"
    assert chosen.options == "--filter a --filter !b --line m.py:1"
    assert not SiteFilter()


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (SiteFilter(("!",)), "an empty filter"),
        (SiteFilter(modules=("a,b",)), "--module 'a,b' contains a comma"),
        (SiteFilter(lines=("model.py",)), "--line 'model.py' is not FILE:LINE"),
    ],
)
def test_patterns_that_make_no_sense(chosen: SiteFilter, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        recording_settings.check_patterns(chosen)
    assert str(caught.value) == message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("package", "hint"),
    [
        (replace(make_manifest(OWN), source=PackageOrigin.COMPILED), "--exported PROGRAM.pt2"),
        (make_manifest(OWN), "without submodules"),
        (replace(make_manifest(OWN), without_source="no source"), "only --filter"),
    ],
)
def test_a_package_without_module_paths(package: Manifest, hint: str) -> None:
    with pytest.raises(UsageError, match=r"^p\.pt2 holds no module paths$") as caught:
        recording_settings.require_names(package, SiteFilter(modules=("encoder",)), "p.pt2")
    assert hint in caught.value.hint
    recording_settings.require_names(package, SiteFilter(lines=("model.py:30",)), "p.pt2")
    (missed,) = recording_settings.unmatched(package, SiteFilter(modules=("encoder",)))
    assert missed.missing == "no module paths"


@pytest.mark.parametrize(
    ("paths", "module"),
    [
        ((), ""),
        (("encoder.norm",), "encoder.norm"),
        (("encoder.layers.0.norm1", "encoder.layers.0"), "encoder.layers.0"),
        (("encoder.layers.0", "encoder.layers.01"), "encoder.layers"),
        (("encoder", "head"), ""),
    ],
)
def test_the_module_that_contains_all(paths: tuple[str, ...], module: str) -> None:
    assert common_module(paths) == module

"""Changes of how a program is built, as lines to paste and applied to a build."""

from __future__ import annotations

from aoti_debug.compare.bisect.build_changes import Build, LeaveOut, Part, SettingChange, applied, lines_of, name_of
from aoti_debug.instrument.frontend.protocol.messages import LeftOut

RELU, CAT = (LeaveOut(Part.LOWERING, f"aten.{name}.default") for name in ("relu", "cat"))
NOOPS, FOLDING = (LeaveOut(Part.PASS, name) for name in ("remove_noop_ops", "constant_folding"))
SILU = LeaveOut(Part.DECOMPOSITION, "aten.silu.default")
WIDTH = SettingChange("cpp.simdlen", 1, "the vector width")
FREEZING = SettingChange("freezing", None, "asked for")


def test_a_build_with_changes() -> None:
    build = Build({"freezing": True, "disabled_passes": "mine"})
    changed = applied((FREEZING, WIDTH, NOOPS, FOLDING, RELU, CAT, SILU), build)
    assert changed.configs == {"cpp.simdlen": 1, "disabled_passes": "mine,remove_noop_ops,constant_folding"}
    assert changed.left_out == LeftOut(("aten.silu.default",), ("aten.relu.default", "aten.cat.default"))


def test_lines_to_paste() -> None:
    assert lines_of((FREEZING, WIDTH)) == ("without --inductor-config freezing", "--inductor-config cpp.simdlen=1")
    assert lines_of((NOOPS, FOLDING)) == ("--inductor-config disabled_passes=remove_noop_ops,constant_folding",)
    assert lines_of((RELU, SILU)) == (
        "torch._inductor.lowering.make_fallback(torch.ops.aten.relu.default, override_decomp=True)",
        "torch._inductor.decomposition.decompositions.pop(torch.ops.aten.silu.default)",
    )


def test_names() -> None:
    assert name_of((WIDTH,)) == "--inductor-config cpp.simdlen=1"
    assert name_of((FREEZING, WIDTH)) == "other settings: freezing, cpp.simdlen"
    assert name_of((RELU,)) == "without the lowering of aten.relu.default"
    assert name_of((RELU, CAT)) == "without the lowerings of aten.relu.default, aten.cat.default"
    assert name_of((NOOPS,) * 5) == "without the passes " + ", ".join(["remove_noop_ops"] * 3) + " and 2 more"


def test_concerns() -> None:
    assert FREEZING.concern == "freezing, which was asked for"
    assert NOOPS.concern == "the pass remove_noop_ops"
    assert SILU.concern == "the decomposition of aten.silu.default; the line goes into a module for --import"

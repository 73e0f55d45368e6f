from __future__ import annotations

import pytest

from aoti_debug.package.manifest import Certainty, ModelLine, Provenance
from aoti_debug.runs.show.place_columns import ModuleCell, place_columns, short_path


def origin(line: int, *modules: str) -> Provenance:
    frame = ModelLine("/home/u/model.py", line, "forward", "y = self.linear(x)")
    return Provenance(Certainty.EXACT, source=(frame,), modules=modules)


BLOCKS = [origin(18, f"layers.{n}.{name}_proj") for n in range(4) for name in "qkv"]


def titles(*origins: Provenance) -> list[tuple[str, int]]:
    return [(column.title, column.dropped_below) for column in place_columns(origins).columns]


def test_the_column_that_differs_stays_in_a_narrow_table() -> None:
    assert titles(*BLOCKS) == [("model line", 140), ("module", 0)]
    assert titles(origin(1, "a"), origin(2, "a")) == [("model line", 0), ("module", 140)]
    assert titles(origin(1), origin(2)) == [("model line", 0)]


def test_cells_of_a_launch_without_a_module_and_of_a_row_that_is_no_launch() -> None:
    places = place_columns([*BLOCKS, None])
    assert [str(cell) for cell in places.cells(BLOCKS[0])] == ["model.py:18", "layers.0.q_proj"]
    assert [str(cell) for cell in places.cells(origin(3))] == ["model.py:3", "-"]
    assert places.cells(None) == ["", ""]


PATH = "language_model.layers.10.self_attn.o_proj"


@pytest.mark.parametrize(
    ("width", "short"),
    [
        (41, PATH),
        (40, "…layers.10.self_attn.o_proj"),
        (26, "…10.self_attn.o_proj"),
        (19, "…10.self…ttn.o_proj"),
        (14, "…10.s…n.o_proj"),
        (12, "…10.s…n.o…j"),
        (9, "lang…proj"),
    ],
)
def test_a_path_keeps_its_number_and_its_end(width: int, short: str) -> None:
    assert short_path(PATH, width) == short


def test_a_path_without_numbers() -> None:
    assert short_path("model.post_attention_layernorm", 25) == "…post_attention_layernorm"
    assert short_path("model.post_attention_layernorm", 19) == "…post_atte…ayernorm"
    assert short_path("layernorm", 5) == "la…rm"


def test_of_several_modules_one_is_named_in_a_narrow_column() -> None:
    fused = ModuleCell(("layers.0.mlp.gate", "layers.0.mlp", "layers.0.mlp.up"))
    assert fused.fit(100) == str(fused) == "layers.0.mlp.gate, layers.0.mlp, layers.0.mlp.up"
    assert fused.fit(20) == "layers.0.mlp +2"
    assert fused.fit(10) == "…0.mlp +2"
    assert ModuleCell(("embed", "layers.0.norm")).fit(16) == "layers.0.norm +1"

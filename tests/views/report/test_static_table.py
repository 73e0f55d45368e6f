from __future__ import annotations

from aoti_debug.base.terminal_cells import Column, Sentence
from aoti_debug.runs.show.place_columns import ModuleCell
from aoti_debug.views.report.static_table import LONGEST, StaticCell, static_rows

COLUMNS = (
    Column("bytes", align_right=True),
    Column("kernel", share=1),
    Column("module", share=2),
    Column("hint", share=2),
)


def test_names_are_cut_and_sentences_are_not() -> None:
    module = f"layers.0.{'a_long_name_of_a_module_' * 4}"
    sentence = "little work for each launch: " * 4
    ((size, kernel, path, hint),) = static_rows(
        COLUMNS, [["4 B", "cpp_fused_relu_0", ModuleCell((module,)), Sentence(sentence)]]
    )
    assert size == StaticCell("4 B", "4 B", is_name=False)
    assert kernel == StaticCell("cpp_fused_relu_0", "cpp_fused_relu_0", is_name=True)
    assert (path.text, len(path.shown), path.is_name) == (module, LONGEST, True)
    assert hint == StaticCell(sentence, sentence, is_name=False)

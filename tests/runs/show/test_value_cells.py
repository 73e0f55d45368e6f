from __future__ import annotations

from aoti_debug.runs.show.overview import ValueCell, aligned


def test_values_stand_below_each_other() -> None:
    found = aligned(["-4.343 in buf0", "3 NaN in buf10 (read)", "-", "never returned"])
    assert [str(cell) for cell in found] == ["-4.343 in buf0", " 3 NaN in buf10 (read)", "-", "never returned"]


def test_only_names_are_shortened() -> None:
    cell = ValueCell(" 3.099", "encoder_layers_0_norm1_bias")
    assert cell.fit(20) == " 3.099 in encod…bias"
    assert cell.fit(100) == str(cell) == " 3.099 in encoder_layers_0_norm1_bias"

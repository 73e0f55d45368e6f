from __future__ import annotations

from pathlib import Path

import pytest

from aoti_debug.base import terminal_cells
from aoti_debug.package.manifest import Role
from aoti_debug.runs.rundir.run_directory import open_run
from aoti_debug.runs.show.overview import ArgumentNames, argument_names
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, tensor

LAYER = ArgumentNames(("buf10", "encoder_layers_0_norm1_weight", "encoder_layers_0_norm1_bias"), ("buf10", "buf11"))


def test_arguments_of_a_launch(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.launch(0, 0, *(tensor(2) for _ in range(4)))
    package = make_manifest(
        site("k", arg("u", Role.UNKNOWN), arg("a"), arg("a"), arg("o", Role.OUT)),
    )
    run = open_run(run_directory(tmp_path, package, writer))
    assert argument_names(run.launch("0")) == ArgumentNames(("u?", "a"), ("o",))


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (ArgumentNames(("u?", "a"), ("o",)), "u?, a → o"),
        (ArgumentNames(("a",), ()), "a"),
        (ArgumentNames((), ("o",)), "→ o"),
        (ArgumentNames((), ()), ""),
    ],
)
def test_in_full(names: ArgumentNames, text: str) -> None:
    assert str(names) == names.fit(len(text)) == names.fit(terminal_cells.UNLIMITED) == text


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (90, "buf10, encoder_layers_0_norm1_weight, encoder_layers_0_norm1_bias → buf10, buf11"),
        (60, "buf10, encoder_l…1_weight, encoder_l…rm1_bias → buf10, buf11"),
        (40, "buf10, enco…ght, enco…ias → buf10, buf11"),
        (30, "buf10, +2 → buf10, buf11"),
        (22, "buf10, +2 → buf10, +1"),
        (18, "b…0, +2 → b…0, +1"),
    ],
)
def test_names_are_shortened_before_they_are_counted(width: int, text: str) -> None:
    assert LAYER.fit(width) == text


@pytest.mark.parametrize("width", range(8, 90))
def test_never_wider_than_asked_for(width: int) -> None:
    assert terminal_cells.count(LAYER.fit(width)) <= width

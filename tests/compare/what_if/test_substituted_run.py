from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aoti_debug.base.errors import RunDirError, UsageError
from aoti_debug.compare.what_if.substituted_run import Instruction, Replace, Skip, Stop, Wait, write
from aoti_debug.runs.run.saved_outputs import write_tensor


def test_a_line_for_each_instruction(tmp_path: Path) -> None:
    tensor, number = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    write_tensor(tensor, "buf4", torch.zeros(4, 8, dtype=torch.bfloat16).t())
    write_tensor(number, "buf5", torch.tensor(3))
    given: list[Instruction] = [Skip("0.1"), Stop("0.7"), Wait("0.7", tmp_path / "wait")]
    write(tmp_path / "i", [*given, Replace("0.2", "buf4", tensor), Replace("c0.2", "buf5", number)])
    *others, first, second = (tmp_path / "i").read_text().splitlines()
    assert others == ["skip\t0.1", "stop\t0.7", f"wait\t0.7\t{tmp_path}/wait"]
    assert first.split("\t")[:5] == ["value", "0.2", "buf4", "15", "8,4"]
    assert second.split("\t")[:5] == ["value", "c0.2", "buf5", "4", "-"]
    offset = int(second.split("\t")[5])
    assert number.read_bytes()[offset:] == (3).to_bytes(8, "little")


def test_a_name_that_would_end_a_line_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a tab or an end of line"):
        write(tmp_path / "i", [Wait("0.1", tmp_path / "a\nb")])


def test_a_missing_tensor_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunDirError, match="is missing"):
        write(tmp_path / "i", [Replace("0.1", "buf0", tmp_path / "gone.safetensors")])

"""Which outputs of a run were not compared with what eager returns."""

from __future__ import annotations

from pathlib import Path

import torch

from aoti_debug.compare import compare_run
from aoti_debug.compare.evaluation_process import EvaluatedRun
from aoti_debug.compare.protocol.measurement import ExportedOutputs
from aoti_debug.runs.run import saved_outputs


def test_an_output_that_cannot_be_saved_is_not_compared(tmp_path: Path) -> None:
    saved_outputs.save((torch.ones(2), torch.ones(2).to_sparse()), tmp_path)
    evaluated = EvaluatedRun()
    evaluated.exported_outputs = ExportedOutputs(eager=str(tmp_path))
    said = compare_run._outputs_missing(tmp_path, evaluated)
    assert said == "output 1 (a tensor of float32, torch.sparse_coo, cannot be saved)"

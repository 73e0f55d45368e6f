from __future__ import annotations

import math

import torch

from aoti_debug.base.machine.files import json_data
from aoti_debug.views.call_text.calls import EagerAnswer, parse_condition
from aoti_debug.views.call_text.eager_worker import CallRecorder


def test_tensors_without_a_finite_element_are_answered() -> None:
    broken, empty = torch.full((2,), math.nan), torch.empty(0)
    with CallRecorder(hashes=False, values=True) as recorder:
        torch.neg(broken)
        torch.neg(empty)
    answer = EagerAnswer(tuple(recorder.calls), ())
    read = json_data.parse(EagerAnswer, json_data.to_text(answer))
    assert read == answer
    is_nan = parse_condition("nan")
    assert [is_nan.holds(tensor) for found in read.calls for tensor in found.call.tensors] == [True, True, False, False]

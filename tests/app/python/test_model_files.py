from __future__ import annotations

import pytest
import torch

from aoti_debug.app.python.model_files import GivenModel, batched
from aoti_debug.base.errors import UsageError
from aoti_debug.package.inputs.input_files import Inputs


def test_a_batch_size_of_the_first_axes() -> None:
    inputs = Inputs((torch.ones(3, 2), [torch.ones(3), torch.ones(2, 3)], 4), {})
    call = batched(GivenModel(torch.nn.Linear(2, 2), inputs), (1, 16))
    first, (second, third), fourth = call.dynamic_shapes
    assert first[0] is second[0]
    assert (first[0].min, first[0].max, third, fourth) == (1, 16, None, None)
    assert batched(GivenModel("model.pt2", inputs), (1, 16)).dynamic_shapes is None
    with pytest.raises(UsageError, match="keyword arguments"):
        batched(GivenModel(torch.nn.Linear(2, 2), Inputs((), {"x": torch.ones(3, 2)})), (1,))

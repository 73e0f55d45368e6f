from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from aoti_debug.compare.evaluate import tensor_float


def test_the_nearest_number_with_ten_bits_of_mantissa() -> None:
    values = torch.tensor([1.0, 1 + 2**-11, 1 + 2**-10, 1 + 1.4 * 2**-10, -(1 + 1.6 * 2**-10), 0.0])
    expected = torch.tensor([1.0, 1 + 2**-10, 1 + 2**-10, 1 + 2**-10, -(1 + 2 * 2**-10), 0.0])
    assert torch.equal(tensor_float.rounded(values), expected)
    random = torch.randn(1000)
    relative = ((tensor_float.rounded(random) - random) / random).abs().max()
    assert 2**-12 < relative <= 2**-11


def test_what_is_not_finite_or_not_float32_stays() -> None:
    special = torch.tensor([float("nan"), float("inf"), -float("inf")])
    assert torch.equal(tensor_float.rounded(special).isnan(), special.isnan())
    assert torch.equal(tensor_float.rounded(special)[1:], special[1:])
    half = torch.randn(4, dtype=torch.float16)
    assert tensor_float.rounded(half) is half
    assert tensor_float.rounded(3) == 3


@pytest.fixture
def switches() -> Iterator[None]:
    """Restores what may use TF32."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


@pytest.mark.usefixtures("switches")
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
@pytest.mark.parametrize("convolutions", [True, False])
def test_what_may_use_it_on_a_gpu(device: str, convolutions: bool) -> None:
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = convolutions, not convolutions
    assert tensor_float.may_use("aten.convolution.default", device) is convolutions
    assert tensor_float.may_use("aten.mm.default", device) is not convolutions
    assert not tensor_float.may_use("aten.add.Tensor", device)
    assert not tensor_float.may_use("aten.convolution.default", "cpu")

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch.export import Dim

from aoti_debug.base.errors import ArtifactError
from aoti_debug.package.inputs import signature
from aoti_debug.package.inputs.signature import Dim as SignatureDim
from aoti_debug.package.inputs.signature import Leaf, ModelSignature, keyword_names
from tests.wrong_types import assert_refused


class Model(torch.nn.Module):
    def forward(
        self, x: torch.Tensor, pair: tuple[torch.Tensor, torch.Tensor], n: int, *, scale: torch.Tensor
    ) -> torch.Tensor:
        return x * scale + pair[0] * n + pair[1]


@pytest.fixture(scope="module")
def described() -> ModelSignature:
    batch = Dim("batch", min=2, max=9)
    program = torch.export.export(
        Model(),
        (torch.randn(3, 4), (torch.randn(4).double(), torch.zeros(2, 4).t()[:, 0]), 2),
        {"scale": torch.randn(4)},
        dynamic_shapes={"x": {0: batch}, "pair": (None, None), "n": None, "scale": None},
    )
    return signature.describe(program)


def fixed(*sizes: int) -> tuple[SignatureDim, ...]:
    return tuple(SignatureDim(size, size) for size in sizes)


def test_describes_every_leaf(described: ModelSignature) -> None:
    x, *others = described.leaves
    assert (x.name, x.dtype, x.device, x.strides) == ("x", "torch.float32", "cpu", (4, 1))
    assert [(dim.minimum, dim.maximum) for dim in x.shape] == [(2, 9), (4, 4)]
    assert others == [
        Leaf("pair_0", "torch.float64", "cpu", fixed(4), (1,)),
        Leaf("pair_1", "torch.float32", "cpu", fixed(4), (1,)),
        Leaf("n", constant="2"),
        Leaf("scale", "torch.float32", "cpu", fixed(4), (1,)),
    ]


def test_the_text_of_leaves(described: ModelSignature) -> None:
    symbol = described.leaves[0].shape[0].symbol
    assert [str(leaf) for leaf in described.leaves] == [
        f"float32[{symbol}:2..9, 4] on cpu",
        "float64[4] on cpu",
        "float32[4] on cpu",
        "2",
        "float32[4] on cpu",
    ]


def test_json_is_its_own_inverse(described: ModelSignature) -> None:
    assert signature.from_json(signature.to_json(described)) == described


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"leaves": [{}], "in_spec": ""}', json.dumps({"leaves": 3}), "[" * 200_000]
)
def test_damaged_text_is_refused(text: str) -> None:
    with pytest.raises(ArtifactError, match="input signature is damaged"):
        signature.from_json(text)


def test_wrong_types_are_damage() -> None:
    leaf = Leaf("x", "torch.float32", "cpu", (SignatureDim(2, 9, "s0"), SignatureDim(4, 4)), ("4", 1))
    data = json.loads(signature.to_json(ModelSignature((leaf, Leaf("n", constant="2")), "[1]", 1)))
    assert_refused(lambda changed: signature.from_json(json.dumps(changed)), data, ArtifactError)


@pytest.mark.parametrize(
    ("dim", "admitted", "refused"),
    [
        (SignatureDim(3, 3), [3], [0, 2, 4]),
        (SignatureDim(2, 9), [2, 5, 9], [1, 10]),
        (SignatureDim(0, -1, "s0"), [0, 1, 1 << 40], []),
    ],
)
def test_dimensions_admit_their_range(dim: SignatureDim, admitted: list[int], refused: list[int]) -> None:
    assert [size for size in (*admitted, *refused) if dim.admits(size)] == admitted


@pytest.mark.parametrize(
    ("args", "kwargs", "names"),
    [
        ((1, 2), {}, ("", "")),
        ((1,), {"index": 2, "weights": 3}, ("", "index", "weights")),
        (({"x": 1},), {"batch": {"ids": 2, "pages": [3, 4]}}, ("", "batch_ids", "batch_pages_0", "batch_pages_1")),
    ],
)
def test_the_names_of_keyword_arguments(args: Any, kwargs: Any, names: tuple[str, ...]) -> None:
    from torch.utils import _pytree as pytree

    spec = pytree.treespec_dumps(pytree.tree_flatten((args, kwargs))[1])
    assert keyword_names(ModelSignature((), spec)) == names


@pytest.mark.parametrize("spec", ["", "[1, {}]", "[1, 2]", "{"])
def test_a_structure_that_says_nothing_has_no_names(spec: str) -> None:
    assert keyword_names(ModelSignature((), spec)) == ()

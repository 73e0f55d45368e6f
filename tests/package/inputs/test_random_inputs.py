from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.utils import _pytree as pytree

from aoti_debug.package.inputs import input_files as inputs
from aoti_debug.package.inputs import random_inputs
from aoti_debug.package.inputs.input_files import Inputs
from aoti_debug.package.inputs.random_inputs import index_limits, make, shapes
from aoti_debug.package.inputs.signature import Dim, Leaf, ModelSignature
from aoti_debug.package.manifest import Constant, Form, Kind, Manifest, Role
from tests import factories


def leaf(name: str, dtype: str, *sizes: int | Dim, strides: tuple[int | str, ...] | None = None) -> Leaf:
    shape = tuple(size if isinstance(size, Dim) else Dim(size, size) for size in sizes)
    return Leaf(name, f"torch.{dtype}", "cpu", shape, strides)


def described(*leaves: Leaf) -> ModelSignature:
    return ModelSignature(leaves, pytree.treespec_dumps(pytree.tree_structure(((0,) * len(leaves), {}))))


def constant(name: str, *shape: int) -> Constant:
    return Constant(name, name, "float32", shape, tuple(range(len(shape))), folded=False)


def model(*reads: tuple[str, ...], inputs: tuple[str, ...], constants: tuple[Constant, ...] = ()) -> Manifest:
    """A launch for each of `reads`, which all write out."""
    out = factories.arg("out", Role.OUT)
    sites = [factories.site("k", out, *(factories.arg(name) for name in names), kind=Kind.CPP) for names in reads]
    return replace(factories.make_manifest(*sites), inputs=inputs, constants=constants)


ROWS = Dim(2, 64, "s77")


def test_inputs_fit_and_are_reproducible() -> None:
    signature = described(
        leaf("x", "float32", ROWS, 16, strides=(1, "s77")),
        leaf("y", "bfloat16", ROWS, Dim(4, 128, "2*s77")),
        leaf("flags", "bool", 5),
        leaf("z", "complex64", 2, strides=(0,)),
        leaf("small", "float8_e4m3fn", 3, 3),
        leaf("n", "int64"),
        leaf("none", "uint8", 0, 4),
        Leaf("mode", constant="'fast'"),
    )
    manifest = model(("x", "y"), inputs=tuple(leaf.name for leaf in signature.leaves))
    made = make(signature, manifest, 3)
    inputs.check(made, signature, "the random inputs")
    x, y, flags, z, small, n, none, mode = made.args
    assert (x.stride(), y.shape[1], z.stride(), mode) == ((1, x.shape[0]), 2 * x.shape[0], (0,), "fast")
    assert (flags.dtype, small.dtype, none.shape) == (torch.bool, torch.float8_e4m3fn, (0, 4))
    assert int(n) in (0, 1)
    again, other = (make(signature, manifest, seed) for seed in (3, 4))
    assert torch.equal(again.args[0], x)
    assert other.args[0].shape != x.shape or not torch.equal(other.args[0], x)


def test_unknown_arguments_that_are_not_tensors() -> None:
    spec = pytree.treespec_dumps(pytree.tree_structure(((0, 0), {"scale": 0})))
    signature = ModelSignature((leaf("x", "float32", 3), leaf("y", "int64", 2)), spec, others=1)
    made = make(signature, model(("x", "y"), inputs=("x", "y")), 0)
    inputs.check(made, signature, "the random inputs")
    assert set(made.kwargs) == {"scale"}


def test_indices_beside_arguments_that_are_not_tensors() -> None:
    signature = described(leaf("table", "float32", 5, 7), Leaf("mode", constant="'fast'"), leaf("index", "int64", 6))
    manifest = model(("table", "index"), inputs=("table", "index"))
    assert index_limits(signature, manifest, shapes(signature, 0))[2] == 5


def test_inputs_have_the_structure_of_the_signature() -> None:
    spec = pytree.treespec_dumps(pytree.tree_structure(((0,), {"scale": 0})))
    signature = ModelSignature((leaf("x", "float32", 2), leaf("scale", "float32")), spec)
    made = make(signature, model(inputs=("x", "scale")), 0)
    assert (len(made.args), list(made.kwargs)) == (1, ["scale"])
    flat = make(ModelSignature(signature.leaves), model(inputs=("x", "scale")), 0)
    assert isinstance(flat, Inputs)
    assert (len(flat.args), flat.kwargs) == (2, {})


def test_sizes_stay_within_bounds_and_equal_ones_equal() -> None:
    signature = ModelSignature(
        (
            leaf("a", "float32", Dim(2, 64), Dim(2, 64)),
            leaf("b", "float32", Dim(2, 64), Dim(1000, -1), Dim(0, 1), Dim(7, 9)),
        )
    )
    for seed in range(20):
        (first, second), (third, large, tiny, between) = shapes(signature, seed)
        assert first == second == third
        assert 2 <= first <= 64
        assert 1000 <= large <= 1014
        assert tiny == 1
        assert 7 <= between <= 9
    assert len({shapes(signature, seed) for seed in range(20)}) > 5


@pytest.mark.parametrize(
    ("reads", "limit"),
    [
        ((("index", "table"),), 8),  # the smallest dimension of a table of 100 rows and 8 columns
        ((("index", "x"),), 4),
        ((("index", "table"), ("index", "x", "table")), 4),
        ((("index", "table"), ("index",)), 2),
        ((("index", "buf3", "table"),), 2),  # the size of buf3 is unknown
        ((("x", "table"),), 2),
        ((), 2),
    ],
)
def test_integers_are_indices_within_range(reads: tuple[tuple[str, ...], ...], limit: int) -> None:
    signature = described(leaf("index", "int64", 500), leaf("x", "float32", 16, 4))
    manifest = model(*reads, inputs=("index", "x"), constants=(constant("table", 100, 8),))
    assert index_limits(signature, manifest, shapes(signature, 0))[0] == limit
    index = make(signature, manifest, 0).args[0]
    assert (int(index.min()), int(index.max())) == (0, limit - 1)


def test_a_view_has_the_limit_of_its_base() -> None:
    site = factories.site(
        "aoti_torch_cpu_index_out",
        factories.arg("out", Role.OUT),
        factories.arg("index_view", base="index"),
        factories.arg("table_view", base="table"),
        factories.arg("dim", Role.NONE, Form.SCALAR),
    )
    manifest = replace(factories.make_manifest(site), inputs=("index",), constants=(constant("table", 9, 30),))
    assert index_limits(described(leaf("index", "int64", 5)), manifest, ((5,),)) == (9,)


def test_unknown_variables_get_the_smallest_limit() -> None:
    signature = described(leaf("index", "int64", 5), leaf("x", "float32", 16, 4))
    assert index_limits(signature, model(("index", "x"), inputs=("index",)), ((5,), (16, 4))) == (
        random_inputs.UNKNOWN_LIMIT,
        random_inputs.UNKNOWN_LIMIT,
    )

from __future__ import annotations

import json

import pytest

from aoti_debug.base.errors import ArtifactError
from aoti_debug.instrument.wrapper.analysis import analyse
from aoti_debug.instrument.wrapper.provenance import attach, with_operator_stacks
from aoti_debug.package.manifest import Certainty, Site
from tests import factories
from tests.instrument.wrapper import texts


def site(name: str, callee: str) -> Site:
    return next(s for s in texts.analysis(name).sites if s.callee == callee)


def test_a_recorded_launch_is_exact() -> None:
    provenance = site("mixed", "aoti_torch_cpu_convolution").provenance
    assert (provenance.certainty, provenance.handle) == (Certainty.EXACT, "aoti_torch_cpu_convolution:3")
    assert (provenance.post_grad_nodes, provenance.pre_grad_nodes) == (("convolution",), ("conv2d",))
    assert [frame.text for frame in provenance.source] == ["picture = self.conv(image).relu()"]


@pytest.mark.parametrize(
    ("name", "callee", "line"),
    [
        ("mutation", "aoti_torch_cpu_bernoulli__float", "bernoulli_(0.3)"),
        ("mutation", "aoti_torch_index_put_out", "self.cache[:, rows] = values"),
        ("mixed", "aoti_torch_cpu_scatter_reduce_two_out", 'scatter_reduce(0, index, src, "mean"'),
        ("control", "aoti_torch_item_bool", "torch.cond(x.sum() > 0"),
        ("control", "aoti_torch_item_int64", "return y, z, i, x + k"),
        ("mutation", "aoti_torch_clone", "self.cache["),
    ],
)
def test_what_inductor_does_not_record_is_inferred(name: str, callee: str, line: str) -> None:
    provenance = site(name, callee).provenance
    assert (provenance.certainty, provenance.handle) == (Certainty.INFERRED, "")
    assert [line in frame.text for frame in provenance.source] == [True]


def test_a_record_without_a_stack_is_completed_from_a_neighbour() -> None:
    provenance = site("mixed", "aoti_torch_cpu_randint_low_out").provenance
    assert (provenance.certainty, provenance.handle) == (Certainty.INFERRED, "aoti_torch_cpu_randint_low_out:9")
    assert provenance.post_grad_nodes == ("inductor_seeds_default",)
    assert provenance.source


def test_a_kernel_that_the_user_wrote_stands_where_it_is_called() -> None:
    """Inductor records the nodes that make its arguments, too, and their lines."""
    records = json.loads((texts.WRAPPERS / "cuda.provenance.json").read_text())
    record = records["add_kernel_0:15"]
    assert record["post_grad_nodes"] == ["triton_kernel_wrapper_mutation", "mul_4"]
    record["stack_traces"].append('File "/home/user/gpu.py", line 21, in forward\n    h3=h2*0.5')
    sites = analyse(texts.text("cuda"), provenance=json.dumps(records), operators=texts.OPERATORS).sites
    (kernel,) = (site for site in sites if site.kernel == "add_kernel_0")
    assert [frame.line for frame in kernel.provenance.source] == [22]
    assert len(kernel.provenance.stacks) == 1


def test_without_records_the_comments_still_name_the_nodes() -> None:
    sites = {
        s.callee: s for s in analyse(texts.text("mixed"), headers=[(texts.WRAPPERS / "shim.h.txt").read_text()]).sites
    }
    provenance = sites["aoti_torch_cpu_convolution"].provenance
    assert (provenance.certainty, provenance.pre_grad_nodes, provenance.source) == (Certainty.EXACT, ("conv2d",), ())
    assert sites["cpp_fused_relu_1"].provenance.certainty is Certainty.NONE


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[]", "3", "[" * 200_000, '{"k:1": []}', '{"k:1": {"stack_traces": "x"}}'),
        *('{"k:1": {"stack_traces": [1]}}', '{"k:1": {"post_grad_nodes": {}}}', '{"k:1": {"pre_grad_nodes": [null]}}'),
    ],
)
def test_damaged_records_are_refused(text: str) -> None:
    with pytest.raises(ArtifactError, match="kernel_information"):
        attach([], text)


def test_a_custom_operator_that_is_called_once_stands_where_the_program_calls_it() -> None:
    stack = 'File "/home/u/model.py", line 7, in forward\n    tail = torch.ops.mylib.tail(x)'
    sites = (
        factories.site("mylib::tail.default", op="mylib::tail.default", line=8),
        factories.site("aten", op="aten.add.out", line=9),
    )
    (tail, other) = with_operator_stacks(sites, {"mylib::tail.default": stack, "aten.add.out": stack.replace("7", "1")})
    assert [frame.line for frame in tail.provenance.source] == [7]
    assert [frame.line for frame in other.provenance.source] == [1]
    twice = with_operator_stacks((sites[0], sites[0]), {"mylib::tail.default": stack})
    assert [s.provenance.source[0].line for s in twice] == [8, 8]

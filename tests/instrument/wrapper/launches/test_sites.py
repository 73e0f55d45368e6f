"""Kinds, roles and names of the arguments of launches; the golden listings show them all."""

from __future__ import annotations

import pytest

from aoti_debug.base.errors import ArtifactError
from aoti_debug.instrument.wrapper.analysis import analyse
from aoti_debug.instrument.wrapper.launches.sites import is_launch_name
from aoti_debug.package.manifest import Arg, CType, Form, Kind, Role, Site
from tests.instrument.wrapper import texts


def site(name: str, kernel: str, nth: int = 0) -> Site:
    return [s for s in texts.analysis(name).sites if s.kernel == kernel][nth]


def arg(launch: Site, name: str) -> Arg:
    return next(a for a in launch.args if a.name == name)


@pytest.mark.parametrize(
    ("name", "kernel", "kind"),
    [
        ("mixed", "cpp_fused_relu_1", Kind.CPP),
        ("gemm", "cpp_fused_addmm_t_0", Kind.CPP),
        ("mixed", "aoti_torch_cpu_addmm_out", Kind.SHIM_OUT),
        ("mixed", "aoti_torch_cpu_randint_low_out", Kind.SHIM_OUT),
        ("cuda_forms", "aoti_torch__mm_plus_mm_out", Kind.SHIM_OUT),
        ("mixed", "aoti_torch_cpu__embedding_bag", Kind.SHIM_ALLOC),
        ("mixed", "aoti_torch_cpu_view_as_real", Kind.SHIM_ALLOC),
        ("mixed", "aoti_torch_cpu_scatter_reduce_two_out", Kind.SHIM_INPLACE),
        ("mutation", "aoti_torch_index_put_out", Kind.SHIM_INPLACE),
        ("mutation", "aoti_torch_cpu_bernoulli__float", Kind.SHIM_INPLACE),
        ("mutation", "aoti_torch_copy_", Kind.SHIM_INPLACE),
        ("cuda_forms", "aoti_torch_zero_", Kind.SHIM_INPLACE),
        ("cuda_forms", "aoti_torch_cpu__c10d_functional_all_reduce_", Kind.SHIM_INPLACE),
        ("shimmed", "aoti_torch_cpu_shimmed", Kind.CUSTOM_SHIM),
        ("mixed", "aten::complex.default", Kind.PROXY),
        ("mutation", "aoti_torch_clone", Kind.CLONE),
        ("cuda", "aoti_torch_clone_preserve_strides", Kind.CLONE),
        ("control", "aoti_torch_item_bool", Kind.ITEM),
        ("cuda", "add_kernel_0", Kind.TRITON),
        ("cpu_forms", "add_kernel_0", Kind.TRITON),
        ("cuda_forms", "cuda_fused_mm_0", Kind.CUTLASS),
    ],
)
def test_kinds(name: str, kernel: str, kind: Kind) -> None:
    assert site(name, kernel).kind is kind


def test_every_call_that_looks_like_a_launch_is_read_in_real_wrappers() -> None:
    real = [name for name in texts.NAMES if not name.endswith(("_forms", "_streams"))]
    assert {name: texts.analysis(name).unrecognised for name in real} == dict.fromkeys(real, ())


@pytest.mark.parametrize("version", ["2.14.1", "2.15.0"])
def test_operators_of_a_part_run_on_its_stream_and_kernels_on_the_one_they_are_given(
    version: str,
) -> None:
    """`record_event` and `wait_event` start nothing."""
    found = texts.analysis(f"torch_{version}_streams")
    assert not found.unrecognised
    launches = [(s.kind, s.stream) for s in found.sites if s.kind is not Kind.CLONE]
    assert launches == [(Kind.TRITON, 0), (Kind.SHIM_OUT, 1), (Kind.TRITON, 0)]


@pytest.mark.parametrize("version", ["2.14.1", "2.15.0"])
@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            "make_unique<AOTICudaStreamGuard>(_aoti_aux_stream_cache.get(1,",
            "make_unique<AOTICudaStreamGuard>(pick(1,",
            "",
        ),
        ("    _aoti_current_stream_guard = std::make", "    if (x) _aoti_current_stream_guard = std::make", ""),
        (
            "\n    AtenTensorHandle buf0_handle;",
            "\n    stream1 = stream; AtenTensorHandle buf0_handle;",
            "stream stream1 =",
        ),
        ("device_idx_, stream, kernels", "device_idx_, stream4, kernels", "stream stream4"),
    ],
)
def test_a_launch_on_a_stream_that_is_not_known_is_not_recorded(version: str, old: str, new: str, reason: str) -> None:
    text = texts.text(f"torch_{version}_streams")
    assert old in text
    found = analyse(text.replace(old, new, 1), headers=[(texts.WRAPPERS / "shim.h.txt").read_text()])
    reasons = [call.reason for call in found.unrecognised if "mm_out" in call.text or "relu" in call.text]
    assert reasons
    assert all(given.startswith(reason or "stream ") for given in reasons)


def test_a_guard_that_is_replaced_by_another_one_leaves_the_stream_unknown() -> None:
    """The new one is made first, so the end of the old one leaves the stream that was just entered."""
    text, left = texts.text("torch_2.14.1_streams_two_branches"), "    _aoti_current_stream_guard.reset();\n"
    second = text.index(left, text.index(left) + 1)
    found = analyse(text[:second] + text[second + len(left) :], headers=[(texts.WRAPPERS / "shim.h.txt").read_text()])
    assert [s.stream for s in found.sites if s.callee == "aoti_torch_cuda_mm_out"] == [1]
    assert [call.reason for call in found.unrecognised if "mm_out" in call.text] == [
        "stream _aoti_current_stream_guard"
    ]


@pytest.mark.parametrize(("version", "field"), [("2.14.1", "block_shape"), ("2.15.0", "kernel_shape")])
def test_a_tensor_descriptor_is_no_tensor(version: str, field: str) -> None:
    found = texts.analysis(f"torch_{version}_tensor_descriptors")
    (launch,) = [s for s in found.sites if s.kind is Kind.TRITON]
    assert [(a.form, a.role) for a in launch.args[:2]] == [(Form.OPAQUE, Role.NONE)] * 2
    assert found.kernels[0].params[1].name.endswith(f"_desc.{field}[0]")


def test_launches_in_regions_have_variables_of_their_own() -> None:
    """Regions that torch 2.15 writes into blocks of the function: one graph, called twice."""
    found = texts.analysis("torch_2.15.0_regions")
    assert found.unrecognised == ()
    launches = [s for s in found.sites if s.kind is not Kind.CLONE]
    assert [s.subgraph for s in launches] == [*["repeated_subgraph0"] * 2, "", *["repeated_subgraph1"] * 2, ""]
    first, second = launches[0], launches[3]
    assert first.op == second.op == "aten.mm.out"
    assert [a.name for a in second.args] == [f"repeated_subgraph1_{x}" for x in ("buf0", "arg0_1", "arg1_1")]
    assert [a.base for a in first.args] == ["repeated_subgraph0_buf0", "arg0_1", "arg1_1"]
    assert [a.base for a in second.args] == ["repeated_subgraph1_buf0", "buf2", "arg1_1"]
    assert launches[1].kernel == launches[4].kernel


@pytest.mark.parametrize("version", ["2.14.1", "2.15.0"])
def test_after_a_first_run_the_tensor_behind_a_descriptor_is_passed_as_well(version: str) -> None:
    found = texts.analysis(f"torch_{version}_first_run_descriptors")
    (launch,) = [s for s in found.sites if s.kind is Kind.TRITON]
    passed = [(a.form, a.role, a.name) for a in launch.args if a.form is not Form.SCALAR]
    assert passed == [
        (Form.OPAQUE, Role.NONE, "x_desc"),
        (Form.OPAQUE, Role.NONE, "o_desc"),
        (Form.TENSOR, Role.UNKNOWN, "arg0_1"),
        (Form.TENSOR, Role.UNKNOWN, "buf0"),
    ]


@pytest.mark.parametrize("version", ["2.14.1", "2.15.0"])
@pytest.mark.parametrize(("sources", "role"), [("", Role.UNKNOWN), ("_with_sources", Role.INOUT)])
def test_kernels_that_a_first_run_compiled(version: str, sources: str, role: Role) -> None:
    """Without its source nothing says what a kernel does with an argument."""
    found = texts.analysis(f"torch_{version}_first_run{sources}")
    assert found.unrecognised == ()
    launches = [s for s in found.sites if s.kind is Kind.TRITON]
    assert [s.kernel for s in launches][2:] == ["triton_poi_fused_relu_2", "add_kernel_0", "tuned_kernel_1"]
    assert [(a.name, a.role) for a in launches[2].args if a.form is Form.TENSOR] == [("buf2", role)]


def test_kernels_that_may_overlap_the_one_before_them() -> None:
    kernels = texts.analysis("torch_2.15.0_overlapping").kernels
    assert [kernel.overlaps for kernel in kernels] == [True, True]
    assert not any(kernel.overlaps for kernel in texts.analysis("torch_2.15.0_operators").kernels)


def test_unrecognised_calls_are_reported() -> None:
    assert [(u.line, u.text.partition("(")[0]) for u in texts.analysis("cpu_forms").unrecognised] == [
        (92, "AOTI_TORCH_ERROR_CODE_CHECK"),  # an argument too few
        (93, "AOTI_TORCH_ERROR_CODE_CHECK"),  # the dispatcher
        (94, "aoti_torch_mps_run_command_block"),
        (95, "op.callBoxed"),
    ]


@pytest.mark.parametrize(
    "callee",
    [
        "aoti_torch_empty_strided",
        "aoti_torch_empty_strided_pinned",
        "aoti_torch__alloc_from_pool",
        "aoti_torch_as_strided",
        "aoti_torch__reinterpret_tensor",
        "aoti_torch_new_tensor_handle",
        "aoti_torch_new_uninitialized_tensor",
        "aoti_torch_assign_tensors_out",
        "aoti_torch_cuda_view_dtype",
        "aoti_torch_get_size",
        "aoti_torch_get_data_ptr",
        "aoti_torch_delete_tensor_object",
        "aoti_torch_get_current_cuda_stream",
        "wrap_with_raii_handle_if_needed",
        "scalar_to_tensor_handle",
    ],
)
def test_tensor_management_is_not_a_launch(callee: str) -> None:
    assert not is_launch_name(callee, {})


def test_outputs_of_generated_kernels() -> None:
    first = site("mutation", "cpp_fused_bernoulli_cos_scatter_unsqueeze_1")
    assert [a.role for a in first.args] == [Role.OUT, Role.OUT]


def test_an_output_that_was_written_before_is_in_out() -> None:
    second = site("mutation", "cpp_fused_gt_index_put_select_sin_where_3")
    assert [(a.name, a.role) for a in second.args if a.role is not Role.IN] == [
        ("buf10", Role.INOUT),
        ("buf12", Role.OUT),
    ]


def test_a_weight_that_is_written_is_in_out() -> None:
    assert arg(site("mutation", "cpp_fused_index_put_0"), "cache").role is Role.INOUT


def test_a_triton_output_that_inductor_calls_mutated_is_in_out() -> None:
    assert arg(site("cuda_forms", "triton_poi_fused_relu_2"), "buf6").role is Role.INOUT


def test_arguments_of_a_user_kernel_have_no_known_role() -> None:
    launch = site("cuda", "add_kernel_0")
    assert {a.role for a in launch.args if a.form is Form.TENSOR} == {Role.UNKNOWN}
    assert [(a.name, a.ctype) for a in launch.args if a.form is Form.SCALAR][:2] == [
        ("n", "int64_t"),
        ("alpha", "float"),
    ]


def test_mutated_arguments_are_taken_from_the_schema() -> None:
    launch = site("custom", "aotidebugtest::accumulate_.default")
    assert [(a.name, a.param, a.role) for a in launch.args] == [
        ("total", "total", Role.INOUT),
        ("buf2", "x", Role.IN),
        ("times", "times", Role.NONE),
    ]


def test_arguments_of_a_custom_shim_without_results_have_unknown_roles() -> None:
    assert site("cpu_forms", "aoti_torch_cpu_accumulate").args[0].role is Role.UNKNOWN
    assert site("shimmed", "aoti_torch_cpu_shimmed").args[0].role is Role.IN


def test_lists_of_a_proxy_call_are_flattened() -> None:
    launch = site("custom", "aotidebugtest::scale_all.default")
    assert [(a.param, a.name, a.role, a.element) for a in launch.args] == [
        ("xs[0]", "buf0", Role.IN, 0),
        ("xs[1]", "arg3_1", Role.IN, 1),
        ("xs[2]", "weight", Role.IN, 2),
        ("ret0[0]", "buf2", Role.OUT, 3),
        ("ret0[1]", "buf3", Role.OUT, 4),
        ("ret0[2]", "buf4", Role.OUT, 5),
    ]


def test_a_proxy_call_without_a_node_is_named_by_the_comments() -> None:
    launch = site("cpu_forms", "mylib::fold.default")
    assert launch.function == "_const_run_impl"
    assert [a.role for a in launch.args] == [Role.UNKNOWN, Role.OUT, Role.NONE]


def test_numbers_behind_addresses() -> None:
    stable = arg(site("mixed", "aoti_torch_cpu_sort_stable"), "stable")
    assert (stable.form, stable.referent, stable.role) == (Form.SCALAR_REF, CType.I32, Role.NONE)
    flash = site("cuda_forms", "aoti_torch_cuda__scaled_dot_product_flash_attention")
    assert [(a.text, a.referent, a.role) for a in flash.args if a.form is Form.SCALAR_REF] == [
        ("nullptr", CType.F64, Role.NONE),
        ("&buf6_2", CType.I64, Role.OUT),
        ("&buf6_3", CType.I64, Role.OUT),
    ]


def test_optional_inputs_and_outputs_are_told_apart() -> None:
    launch = site("mixed", "aoti_torch_cpu_convolution")
    assert (arg(launch, "buf6").form, arg(launch, "buf6").role) == (Form.OPTIONAL, Role.IN)
    assert (arg(launch, "buf7").form, arg(launch, "buf7").role) == (Form.OUTPUT_SLOT, Role.OUT)


def test_expressions_are_counted_with_those_that_are_not_recorded() -> None:
    launch = site("mixed", "aoti_torch_cpu_convolution")
    assert (arg(launch, "padding[1]").value, arg(launch, "padding[1]").element) == (5, 1)
    assert arg(launch, "groups").value == 12


def test_subgraphs_loops_and_branches() -> None:
    launches = [s for s in texts.analysis("control").sites if s.kernel == "aoti_torch_cpu_mm_out"]
    assert [(s.subgraph, s.loops) for s in launches] == [
        ("false_graph_0", 0),
        ("false_graph_0", 0),
        ("while_loop_body_graph_0", 1),
        ("while_loop_body_graph_0", 1),
    ]
    assert arg(launches[0], "false_graph_0_arg0_1").base == "arg2_1"


def test_a_multi_kernel_names_the_kernel_that_it_starts() -> None:
    launch = site("cuda_multi_kernel", "multi_kernel_0")
    assert launch.launches == ("triton_red_fused_addmm_gelu_native_layer_norm_3",)
    assert [a.role for a in launch.args[:2]] == [Role.INOUT, Role.IN]


def test_ids_are_indices_and_names_are_unique() -> None:
    for name in texts.NAMES:
        sites = texts.analysis(name).sites
        assert [s.id for s in sites] == list(range(len(sites)))
        for launch in sites:
            keys = {
                (a.name, a.base, a.text) for a in launch.args if a.form not in (Form.TENSOR, Form.LIST, Form.POINTER)
            }
            assert len(keys) == len({a[0] for a in keys})


def test_profiling_changes_nothing() -> None:
    plain, profiled = texts.analysis("control").sites, texts.analysis("profiled").sites
    assert [(s.kernel, s.args, s.loops, s.subgraph) for s in plain] == [
        (s.kernel, s.args, s.loops, s.subgraph) for s in profiled
    ]


def test_a_text_that_is_no_wrapper_is_refused() -> None:
    with pytest.raises(ArtifactError, match="run_impl"):
        analyse("int main() {}")


@pytest.mark.parametrize(
    ("declared", "roles"),
    [("AtenTensorHandle total, int64_t times", {Role.INOUT}), ("AtenTensorHandle, int64_t", {Role.UNKNOWN})],
)
def test_a_declared_shim_has_the_roles_of_its_schema(declared: str, roles: set[Role]) -> None:
    schema = "mylib::accumulate(Tensor(a!) total, int times) -> ()"
    launch = analyse(
        texts.text("cpu_forms").replace("AtenTensorHandle, int64_t", declared, 1),
        headers=[(texts.WRAPPERS / "shim.h.txt").read_text()],
        operators={**texts.OPERATORS, "aoti_torch_cpu_accumulate": "mylib.accumulate.default"},
        schemas={"mylib.accumulate.default": schema},
    )
    (shim,) = [s for s in launch.sites if s.kind is Kind.CUSTOM_SHIM]
    assert shim.op == "mylib.accumulate.default"
    assert {a.role for a in shim.args if a.form is Form.TENSOR} == roles


def test_operands_of_a_proxy_call_are_recorded() -> None:
    launch = site("custom", "aotidebugtest::scale_all.default")
    assert [(o.name, o.value) for o in launch.operands][1:] == [
        ("factor", '{"as_float": 1.5}'),
        ("mode", '{"as_string": "mul"}'),
    ]
    assert len(launch.results) == 1

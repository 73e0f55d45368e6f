from __future__ import annotations

from aoti_debug.instrument.wrapper import model_variables
from aoti_debug.instrument.wrapper.cpp_syntax.functions import entry_points
from aoti_debug.instrument.wrapper.cpp_syntax.lexer import mask
from aoti_debug.package.manifest import Constant

WRAPPER = """\
AOTInductorModel::AOTInductorModel() : AOTInductorModelBase(2, 2, 1) {
    inputs_info_[0].name = "arg5_1";
    inputs_info_[1].name = "arg6_1";
    constants_info_[0].name = "l_weight";
    constants_info_[0].dtype = cached_torch_dtype_bfloat16;
    constants_info_[0].from_folded = false;
    constants_info_[0].shape = {64, 32};
    constants_info_[0].stride = {32, 1};
    constants_info_[0].original_fqn = "l.weight";
    constants_info_[0].type = static_cast<int32_t>(torch::aot_inductor::ConstantType::Parameter);
    constants_info_[1].name = "_FOLDED_CONST_permute";
    constants_info_[1].dtype = cached_torch_dtype_float32;
    constants_info_[1].from_folded = true;
    constants_info_[1].shape = {};
    constants_info_[1].stride = {};
    outputs_info_[0].name = "output0";
}
void AOTInductorModel::_const_run_impl(std::vector<AtenTensorHandle>& output_handles) {
    output_handles[0] = var_9.release();
}
void AOTInductorModel::run_impl(AtenTensorHandle* input_handles, AtenTensorHandle* output_handles) {
    output_handles[1] = buf9.release();
    output_handles[0] = constants_->at(0);
    aoti_torch_clone(arg5_1, &output_handles[3]);
    output_handles[4] = buf2.release();
    auto buf7 = wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf6, 2, int_array_0, int_array_1, 0L));
    auto var_0 = wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf7, 3, int_array_2, int_array_3, 0L));
    output_handles[5] = var_0.release();
    true_graph_0_buf1 = std::move(inner_buf0);
    buf9 = std::move(true_graph_0_buf1);
    auto buf2 = std::move(buf1);  // reuse
}
"""


def test_inputs_by_position() -> None:
    assert model_variables.inputs(WRAPPER) == ("arg5_1", "arg6_1")


def test_constants_with_their_names_in_the_module() -> None:
    weight = Constant("l_weight", "l.weight", "bfloat16", (64, 32), (32, 1), folded=False, kind="Parameter")
    folded = Constant("_FOLDED_CONST_permute", "", "float32", (), (), folded=True)
    assert model_variables.constants(WRAPPER) == (weight, folded)


def test_outputs_of_the_model_only() -> None:
    (body,) = (b for b in entry_points(mask(WRAPPER)) if b.name == "run_impl")
    assert model_variables.outputs(WRAPPER, body) == ("l_weight", "buf9", "", "", "buf2", "buf6")


def test_variables_that_are_moved_to_an_output_over_several_moves() -> None:
    """A move into a new variable gives a buffer's memory to another one: what was in it goes nowhere."""
    (body,) = (b for b in entry_points(mask(WRAPPER)) if b.name == "run_impl")
    assert model_variables.handed_out(WRAPPER, body) == ("true_graph_0_buf1", "inner_buf0")


def test_a_wrapper_without_any() -> None:
    text = "void AOTInductorModel::run_impl(int x) { }"
    assert (model_variables.inputs(text), model_variables.constants(text)) == ((), ())
    assert model_variables.outputs(text, entry_points(text)[0]) == ()

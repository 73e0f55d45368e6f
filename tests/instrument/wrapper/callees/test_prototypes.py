from __future__ import annotations

import pytest

from aoti_debug.instrument.wrapper.callees.prototypes import (
    Param,
    Prototype,
    form_of,
    is_output,
    number_type,
    parse_externs,
    parse_prototypes,
)
from aoti_debug.package.manifest import CType, Form

HEADER = """
// AOTITorchError aoti_torch_commented(int32_t x);
AOTI_TORCH_EXPORT AOTITorchError aoti_torch_cpu_cat(const AtenTensorHandle* tensors, int64_t tensors_len_,
    int64_t dim, AtenTensorHandle* ret0);
AOTI_TORCH_EXPORT AOTITorchError
aoti_torch_clone(AtenTensorHandle self, AtenTensorHandle* ret /* new reference */);
AOTI_TORCH_EXPORT void aoti_torch_print_tensor_handle(AtenTensorHandle self, const char* msg);
AOTI_TORCH_EXPORT int32_t aoti_torch_dtype_float32();
AOTI_TORCH_EXPORT AOTITorchError aoti_torch_library_impl(const char* name, void (*fn)(uint64_t*, uint64_t));
"""

WRAPPER = """
extern "C"  void  cpp_fused_relu_1(const float* in_ptr0,
                       at::BFloat16* out_ptr0,
                       const int64_t ks0);
extern "C" {
    extern AOTITorchError aoti_torch_cpu_shimmed(AtenTensorHandle, double, AtenTensorHandle*);
}
extern "C" int cuda_fused_mm_0(const float* X, const int M, size_t* workspace_size);
static inline void launchKernel(CUfunction func, uint32_t gridX) { }
AOTIRuntimeError AOTInductorModelDelete(AOTInductorModelHandle model_handle) { }
"""


def test_a_header_is_read() -> None:
    prototypes = parse_prototypes(HEADER)
    assert set(prototypes) == {"aoti_torch_cpu_cat", "aoti_torch_clone", "aoti_torch_print_tensor_handle"}
    assert prototypes["aoti_torch_cpu_cat"].params == (
        Param("const AtenTensorHandle*", "tensors"),
        Param("int64_t", "tensors_len_"),
        Param("int64_t", "dim"),
        Param("AtenTensorHandle*", "ret0"),
    )


def test_only_extern_functions_of_a_wrapper_are_read() -> None:
    prototypes = parse_externs(WRAPPER)
    assert prototypes == {
        "cpp_fused_relu_1": Prototype(
            "cpp_fused_relu_1",
            (Param("const float*", "in_ptr0"), Param("at::BFloat16*", "out_ptr0"), Param("const int64_t", "ks0")),
        ),
        "aoti_torch_cpu_shimmed": Prototype(
            "aoti_torch_cpu_shimmed",
            (Param("AtenTensorHandle", ""), Param("double", ""), Param("AtenTensorHandle*", "")),
        ),
        "cuda_fused_mm_0": Prototype(
            "cuda_fused_mm_0", (Param("const float*", "X"), Param("const int", "M"), Param("size_t*", "workspace_size"))
        ),
    }


@pytest.mark.parametrize(
    ("ctype", "name", "form"),
    [
        ("AtenTensorHandle", "self", Form.TENSOR),
        ("const AtenTensorHandle", "values", Form.TENSOR),
        ("AtenTensorHandle*", "ret0", Form.OUTPUT_SLOT),
        ("AtenTensorHandle*", "ret_new_tensor", Form.OUTPUT_SLOT),
        ("AtenTensorHandle*", "out", Form.OUTPUT_SLOT),
        ("AtenTensorHandle*", "bias", Form.OPTIONAL),
        ("const AtenTensorHandle*", "tensors", Form.LIST),
        ("const AtenTensorHandle**", "indices", Form.OPTIONAL_LIST),
        ("const int64_t*", "stride", Form.INTS),
        ("const int32_t*", "output_mask", Form.OPAQUE),
        ("const int64_t**", "bias_sizes", Form.OPAQUE),
        ("const double**", "scalars", Form.OPAQUE),
        ("const char*", "reduce", Form.STRING),
        ("const char**", "side", Form.OPAQUE),
        ("int32_t", "transposed", Form.SCALAR),
        ("int32_t*", "stable", Form.SCALAR_REF),
        ("int64_t*", "ret4", Form.SCALAR_REF),
        ("AtenGeneratorHandle*", "generator", Form.OPAQUE),
    ],
)
def test_forms(ctype: str, name: str, form: Form) -> None:
    assert form_of(Param(ctype, name)) is form


@pytest.mark.parametrize(
    ("param", "expected"),
    [
        (Param("int64_t*", "ret4"), True),
        (Param("bool*", "ret_value"), True),
        (Param("int32_t*", "stable"), False),
        (Param("const int64_t*", "ret"), False),
        (Param("int64_t", "ret"), False),
    ],
)
def test_outputs_are_recognised_by_their_name(param: Param, expected: bool) -> None:
    assert is_output(param) is expected


def test_number_types() -> None:
    assert [number_type(t) for t in ("const int64_t", "double", "bool", "AtenTensorHandle")] == [
        CType.I64,
        CType.F64,
        CType.BOOL,
        CType.NONE,
    ]

from __future__ import annotations

from aoti_debug.instrument.wrapper.launches.c_functions import parse_prototypes
from aoti_debug.package.manifest import CType, Form, Kind, Role
from aoti_debug.runs.run.interposed_symbols import OTHER_KERNEL, Symbol, SymbolUse, interposed_symbols

SHIMS = parse_prototypes("""
AOTITorchError aoti_torch_cpu_addmm_out(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat1,
    AtenTensorHandle mat2, double beta, double alpha);
AOTITorchError aoti_torch_clone(AtenTensorHandle self, AtenTensorHandle* ret);
AOTITorchError aoti_torch_cpu_cat_out(AtenTensorHandle out, const AtenTensorHandle* tensors, int64_t tensors_len_,
    int64_t dim);
AOTITorchError aoti_torch_get_dim(AtenTensorHandle tensor, int64_t* ret_dim);
AOTITorchError aoti_torch_item_bool(AtenTensorHandle tensor, bool* ret_value);
""")


def symbols_by_name(*called: str, targets: tuple[str, ...] = (), kernels: tuple[str, ...] = ()) -> dict[str, Symbol]:
    symbols = interposed_symbols(called, SHIMS, targets, kernels)
    ids = [site.id for symbol in symbols for site in symbol.sites]
    assert ids == list(range(len(ids)))
    return {symbol.name: symbol for symbol in symbols}


def test_only_functions_that_launch_are_interposed() -> None:
    names = {
        "aoti_torch_cpu_addmm_out",
        "aoti_torch_get_dim",
        "aoti_torch_check",
        "memcpy",
        "cpp_fused_relu_0",
        "cpp_x",
    }
    assert set(symbols_by_name(*names)) == {"aoti_torch_cpu_addmm_out", "cpp_fused_relu_0"}


def test_a_shim_has_its_tensors_and_numbers() -> None:
    symbol = symbols_by_name("aoti_torch_cpu_addmm_out")["aoti_torch_cpu_addmm_out"]
    assert symbol.params == (CType.HANDLE,) * 4 + (CType.F64,) * 2
    (site,) = symbol.sites
    assert site.kind is Kind.SHIM_OUT
    assert [(a.name, a.role, a.value) for a in site.args] == [
        ("out", Role.OUT, 0),
        ("self", Role.IN, 1),
        ("mat1", Role.IN, 2),
        ("mat2", Role.IN, 3),
        ("beta", Role.NONE, 4),
        ("alpha", Role.NONE, 5),
    ]


def test_addresses_are_read_where_the_prototype_says_what_they_point_to() -> None:
    symbols = symbols_by_name("aoti_torch_clone", "aoti_torch_item_bool", "aoti_torch_cpu_cat_out")
    (clone,), (item,), (cat,) = (symbols[f"aoti_torch_{name}"].sites for name in ("clone", "item_bool", "cpu_cat_out"))
    assert [(a.form, a.role) for a in clone.args] == [(Form.TENSOR, Role.IN), (Form.OUTPUT_SLOT, Role.OUT)]
    assert item.kind is Kind.ITEM
    assert (item.args[1].form, item.args[1].referent) == (Form.SCALAR_REF, CType.BOOL)
    assert [a.name for a in cat.args] == ["out", "dim"]  # how long the list is, no prototype says
    assert symbols["aoti_torch_cpu_cat_out"].params == (CType.HANDLE, CType.ADDRESS, CType.I64, CType.I64)


def test_a_function_of_an_unknown_prototype_is_a_launch_without_arguments() -> None:
    symbol = symbols_by_name("aoti_torch_cpu_my_op")["aoti_torch_cpu_my_op"]
    assert (symbol.params, symbol.sites[0].kind, symbol.sites[0].args) == ((), Kind.CUSTOM_SHIM, ())


def test_a_kernel_returns_nothing_that_could_be_a_status() -> None:
    assert not symbols_by_name("cpp_fused_relu_0")["cpp_fused_relu_0"].returns_status
    assert symbols_by_name("cuda_fused_mm_0")["cuda_fused_mm_0"].returns_status


def test_every_operator_of_the_proxy_executor_has_a_site() -> None:
    name = "aoti_torch_proxy_executor_call_function"
    symbol = symbols_by_name(name, targets=("mylib::op", "mylib::two.out"))[name]
    assert symbol.action is SymbolUse.NODE
    assert [site.kernel for site in symbol.sites[:-1]] == ["mylib::op.default", "mylib::two.out"]


def test_every_device_kernel_has_a_site_and_so_have_unknown_ones() -> None:
    symbols = symbols_by_name("cuLaunchKernel", "cuModuleGetFunction", kernels=("triton_a", "triton_b"))
    assert symbols["cuLaunchKernel"].action is SymbolUse.KERNEL
    assert [site.kernel for site in symbols["cuLaunchKernel"].sites] == ["triton_a", "triton_b", OTHER_KERNEL]
    assert symbols["cuModuleGetFunction"].sites == ()

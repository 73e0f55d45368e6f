"""What a repro looks like: golden files, one a kind of launch."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from aoti_debug.package.argument_values import Tensor
from aoti_debug.package.manifest import (
    CType,
    Form,
    Kernel,
    Kind,
    OperatorSchema,
    Parameter,
    Provenance,
    ProxyArgument,
    Role,
)
from aoti_debug.repro.arguments import arguments_of
from aoti_debug.repro.generate_texts import generate
from aoti_debug.repro.recorded_launch import RecordedLaunch, RecordedSlot
from tests.operator_schemas import registered
from tests.paths import GOLDEN
from tests.repro.repro_launches import LaunchBuilder, manifest

TEXTS = GOLDEN / "repro"

KERNEL = Kernel(
    "cpp_fused_add_6",
    "cpp",
    """#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  cpp_fused_add_6(const float* in_ptr0,
                       float* out_ptr0,
                       const int64_t u0)
{
    for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(64L); x0+=static_cast<int64_t>(1L))
    {
        out_ptr0[x0] = in_ptr0[x0] + static_cast<float>(u0);
    }
}
""",
    "",
)


def addmm(launch: LaunchBuilder) -> LaunchBuilder:
    launch.kernel, launch.kind, launch.op = "aoti_torch_cpu_addmm_out", Kind.SHIM_OUT, "aten.addmm.out"
    launch.tensor("buf0", torch.zeros(8, 64), Role.OUT).tensor("l1_bias", torch.zeros(64))
    launch.tensor("arg9_1", torch.zeros(8, 32)).tensor("l1_weight_view", torch.zeros(64, 32).t())
    return launch.number("beta", 1, ctype="double").number("alpha", 1, ctype="double")


def convolution(launch: LaunchBuilder) -> LaunchBuilder:
    launch.kernel, launch.kind = "aoti_torch_cpu_convolution", Kind.SHIM_ALLOC
    launch.op = "aten.convolution.default"
    launch.tensor("buf4", torch.zeros(2, 3, 16, 16)).tensor("buf5", torch.zeros(8, 3, 3, 3))
    launch.tensor("buf6", torch.zeros(8), form=Form.OPTIONAL)
    launch.ints("stride", (1, 1)).ints("padding", (1, 1)).ints("dilation", (1, 1)).number("transposed", 0, CType.I32)
    launch.ints("output_padding", (0, 0)).number("groups", 1)
    return launch.result("buf7", torch.zeros(2, 8, 16, 16))


def embedding_bag(launch: LaunchBuilder) -> LaunchBuilder:
    launch.kernel, launch.kind = "aoti_torch_cpu__embedding_bag", Kind.SHIM_ALLOC
    launch.op = "aten._embedding_bag.default"
    launch.tensor("emb_weight", torch.zeros(50, 16)).tensor("arg11_1", torch.zeros(20, dtype=torch.int64))
    launch.tensor("arg12_1", torch.zeros(4, dtype=torch.int64)).number("scale_grad_by_freq", 0, CType.I32)
    launch.number("mode", 1).number("sparse", 0, CType.I32).absent("per_sample_weights", Form.OPTIONAL)
    launch.number("include_last_offset", 0, CType.I32).number("padding_idx", -1)
    for i in range(4):
        launch.result(f"buf{10 + i}", torch.zeros(4, dtype=torch.int64), f"ret{i}")
    return launch


def scatter(launch: LaunchBuilder) -> LaunchBuilder:
    launch.kernel, launch.kind = "aoti_torch_cpu_scatter_reduce_two_out", Kind.SHIM_INPLACE
    launch.op = "aten.scatter_reduce.two_out"
    table = torch.zeros(16, 8)
    launch.tensor("buf23", table, Role.INOUT).tensor("buf23", table, Role.INOUT).number("dim", 0)
    launch.tensor("buf24", torch.zeros(4, 8, dtype=torch.int64)).tensor("arg14_1", torch.zeros(4, 8))
    return launch.string("reduce", '"mean"').number("include_self", 0, CType.I32)


def index_put(launch: LaunchBuilder) -> LaunchBuilder:
    launch.kernel, launch.kind = "aoti_torch_index_put_out", Kind.SHIM_INPLACE
    launch.op = "aten.index_put.out"
    cache = torch.zeros(4, 8)
    launch.tensor("kv", cache, Role.INOUT).tensor("kv", cache, Role.INOUT)
    launch.absent("indices[0]", Form.LIST, element=0)
    launch.tensor("arg8_1", torch.zeros(2, dtype=torch.int64), form=Form.LIST, element=1, at=2)
    return launch.skip().tensor("arg9_1", torch.zeros(4, 2)).number("accumulate", 1, CType.I32)


def rand(launch: LaunchBuilder) -> LaunchBuilder:
    launch.kernel, launch.kind, launch.op = "aoti_torch_cuda_rand", Kind.SHIM_ALLOC, "aten.rand.default"
    launch.ints("size", (8, 8)).number("dtype", 5, CType.I32, form=Form.SCALAR_REF).absent("layout", Form.SCALAR_REF)
    launch.number("device", 1, CType.I32, form=Form.SCALAR_REF).number("device_index_", 0, CType.I32)
    launch.number("pin_memory", 0, CType.I32, form=Form.SCALAR_REF)
    return launch.result("buf19", torch.zeros(8, 8, dtype=torch.float16))


def clone(launch: LaunchBuilder) -> LaunchBuilder:
    launch.kernel, launch.kind, launch.op = "aoti_torch_clone", Kind.CLONE, "aten.clone.default"
    return launch.tensor("kv", torch.zeros(4, 8)).result("output_handles[2]", torch.zeros(4, 8))


def aligned(launch: LaunchBuilder) -> LaunchBuilder:
    launch.kernel, launch.kind = "aoti_torch_clone_preserve_strides", Kind.CLONE
    launch.op = "aten.clone.default"
    gaps = torch.zeros(4, 10)[:, :8]
    return launch.tensor("arg0_1", gaps).result("arg0_1_aligned", gaps)


def kernel(launch: LaunchBuilder) -> LaunchBuilder:
    launch.kernel, launch.kind = "cpp_fused_add_6", Kind.CPP
    block = torch.zeros(128)
    launch.tensor("arg2_1", block[:64], param="in_ptr0", ctype="const float*", form=Form.POINTER)
    launch.tensor("buf10", block[64:], Role.OUT, param="out_ptr0", ctype="float*", form=Form.POINTER)
    return launch.number("u0", 3, ctype="const int64_t")


def operand(name: str, value: object, keyword: bool = False) -> ProxyArgument:
    return ProxyArgument(name, keyword, json.dumps(value))


def behind_proxy(launch: LaunchBuilder) -> LaunchBuilder:
    launch.kernel = launch.op = "mylib::mix.default"
    launch.kind = Kind.PROXY
    buffers = [{"name": "buf0"}, {"name": "arg3_1"}]
    operands = (
        operand("xs", {"as_tensors": buffers}),
        operand("bias", {"as_none": True}),
        operand("rows", {"as_optional_tensors": [{"as_none": True}, {"as_tensor": {"name": "buf1"}}]}),
        operand("factor", {"as_float": 1.5}),
        operand("mode", {"as_string": 'a "b"'}),
        operand("sizes", {"as_ints": [8, 4]}),
        operand("flags", {"as_bools": [True, False]}),
        operand("dtype", {"as_scalar_type": 7}, keyword=True),
        operand("device", {"as_device": {"type": "cuda", "index": 1}}, keyword=True),
    )
    results = (json.dumps({"as_tensors": [{"name": "buf2"}]}), json.dumps({"as_tensor": {"name": "buf3"}}))
    launch.details = {"operands": operands, "results": results}
    launch.tensor("buf0", torch.zeros(4, 8), param="xs[0]", form=Form.LIST, at=5)
    launch.tensor("arg3_1", torch.zeros(4, 8), Role.INOUT, param="xs[1]", form=Form.LIST, at=5)
    launch.tensor("buf1", torch.zeros(2), param="rows[1]", form=Form.LIST, at=5)
    launch.made("buf2", torch.zeros(4, 8), "ret0[0]").made("buf3", torch.zeros(2), "ret1")
    launch.number("sizes[0]", 8, form=Form.INTS, at=3).number("sizes[1]", 4, form=Form.INTS, at=3)
    return launch


SCALED = OperatorSchema(
    "mylib.scaled.default",
    (Parameter("x", "Tensor"), Parameter("factor", "float"), Parameter("times", "int", optional=True, default=True)),
    returns=1,
)


def own_shim(launch: LaunchBuilder) -> LaunchBuilder:
    launch.kernel, launch.kind, launch.op = "aoti_torch_cpu_scaled", Kind.CUSTOM_SHIM, "mylib.scaled.default"
    launch.tensor("arg0_1", torch.zeros(2)).number("factor", 2.5, CType.F64, ctype="double")
    return launch.absent("times", Form.SCALAR_REF).result("buf0", torch.zeros(2))


CASES: dict[str, Callable[[LaunchBuilder], LaunchBuilder]] = {
    case.__name__: case
    for case in (
        *(addmm, convolution, embedding_bag, scatter, index_put, rand, clone, aligned, kernel),
        *(behind_proxy, own_shim),
    )
}


def settled(launch: RecordedLaunch) -> RecordedLaunch:
    """The launch at addresses that are the same in every run of the tests."""
    addresses: dict[int, int] = {}

    def move(slot: RecordedSlot) -> RecordedSlot:
        if not isinstance(slot.value, Tensor):
            return slot
        base = addresses.setdefault(slot.value.storage_ptr, 0x10000 * (len(addresses) + 1) + 64)
        offset = slot.value.layout.storage_offset * slot.value.layout.item_bytes
        return replace(slot, value=replace(slot.value, data_ptr=base + offset))

    return replace(launch, slots=tuple(move(slot) for slot in launch.slots))


def texts(tmp_path: Path, case: Callable[[LaunchBuilder], LaunchBuilder], fault: str = "") -> dict[str, str]:
    launch = settled(case(LaunchBuilder(tmp_path, "", Kind.CPP)).build(fault))
    known = manifest(KERNEL, operators=(*registered(launch.site.op), SCALED))
    known = replace(known, imports=("mylib",), libraries=("/opt/mylib/libmylib.so",))
    return {name: str(text) for name, text in generate(launch, known, arguments_of(launch)).items()}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, tmp_path: Path, golden: Callable[[Path, str], None]) -> None:
    text = texts(tmp_path, CASES[name], "SIGSEGV" if name == "kernel" else "")["repro.py"]
    golden(TEXTS / f"{name}.py.txt", text)


def test_the_readme_has_the_command_and_the_exit_codes(tmp_path: Path, golden: Callable[[Path, str], None]) -> None:
    golden(TEXTS / "README.txt", texts(tmp_path, addmm)["README"])


SETTINGS = {"float32_matmul_precision": "high", "flush_denormal": True, "x = 1": 1}


@pytest.mark.parametrize(
    ("case", "statements"),
    [
        (addmm, ["torch.set_float32_matmul_precision('high')", "torch.set_flush_denormal(True)"]),
        (behind_proxy, ["torch.set_float32_matmul_precision('high')", "torch.set_flush_denormal(True)"]),
        (kernel, ["torch.set_flush_denormal(True)"]),
    ],
)
def test_settings_of_torch_are_those_of_the_run(
    tmp_path: Path, case: Callable[[LaunchBuilder], LaunchBuilder], statements: list[str]
) -> None:
    launch = settled(case(LaunchBuilder(tmp_path, "", Kind.CPP)).build())
    launch = replace(launch, run=replace(launch.run, torch_settings=SETTINGS))
    known = manifest(KERNEL, operators=(*registered(launch.site.op), SCALED))
    text = str(generate(launch, known, arguments_of(launch))["repro.py"])
    about = "\n# Settings of torch that the process of the run had.\n"
    assert text.partition(about)[2].partition("\n\n")[0].splitlines() == statements


def test_recorded_text_cannot_become_code(tmp_path: Path) -> None:
    launch = settled(addmm(LaunchBuilder(tmp_path, "", Kind.CPP)).build())
    frame = replace(launch.site.provenance.source[0], text='x = 1\nimport os\r"""\\', file="/a\n/b.py")
    evil = replace(launch.site, provenance=Provenance(launch.site.provenance.certainty, source=(frame,)))
    launch = replace(launch, site=evil, fault='"\n\\')
    known = manifest(operators=registered(launch.site.op))
    tree = ast.parse(generate(launch, known, arguments_of(launch))["repro.py"])
    imported = [a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names]
    assert imported == ["sys", "torch"]


def test_kernel_source_survives_whatever_it_holds(tmp_path: Path) -> None:
    for source in ('/* """ */ int x;\n', "int x; // \\", "char c = '\x00';\n", 'auto s = R"(\\n)";\n\t\n', "é\r\n\n"):
        source = f"#include <torch/csrc/inductor/cpp_prefix.h>\n{source}"
        launch = kernel(LaunchBuilder(tmp_path, "", Kind.CPP)).build()
        text = generate(launch, manifest(replace(KERNEL, source=source)), arguments_of(launch))["repro.py"]
        values = {
            node.targets[0].id: ast.literal_eval(node.value)
            for node in ast.parse(text).body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "SOURCE"
        }
        assert values == {"SOURCE": source}

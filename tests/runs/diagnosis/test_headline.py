from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from aoti_debug.base.abi import FaultDomain, Phase
from aoti_debug.package.manifest import Constant, Kernel, Kind, Role
from aoti_debug.runs.diagnosis.diagnose import diagnose
from aoti_debug.runs.diagnosis.verdict import Verdict
from aoti_debug.runs.rundir.run_directory import open_run
from aoti_debug.runs.rundir.run_json import Exit, ExitKind, RunStage
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, tensor
from tests.runs.diagnosis.judged_runs import ABRT, CUDA, PROXY, TRITON, cuda_fault, judge, started
from tests.saved_tensors import save

WRAPPED = """
auto tmp1 = static_cast<int64_t>(100L);
auto tmp2 = c10::convert<int64_t>(tmp1);
auto tmp3 = int64_t(tmp0 + tmp2);
auto tmp4 = tmp0 < 0;
auto tmp5 = tmp4 ? tmp3 : tmp0;
"""
SHIFTED = "auto tmp3 = static_cast<int64_t>(7);\nauto tmp5 = int64_t(tmp0 + tmp3);\n"
IGNORED = """
auto tmp3 = static_cast<int64_t>(-100);
auto tmp4 = tmp0 != tmp3;
auto tmp1 = static_cast<int64_t>(0);
auto tmp5 = tmp4 ? tmp0 : tmp1;
"""
LOAD = "auto tmp8 = in_ptr1[static_cast<int64_t>(x1 + 4L*tmp5)];"


def crashed(base: Path, between: str = WRAPPED, load: str = LOAD, saved: list[int] | None = None) -> Verdict:
    """A launch that checks indices of the input `ids` of two rows and three columns, and fails."""
    text = "index out of bounds: 0 <= tmp7 < 100L"
    source = f"""void cpp_fused_embedding_0(const int64_t* in_ptr0, const float* in_ptr1, float* out_ptr0)
{{
    for(int64_t x0=0L; x0<6L; x0+=1L)
    {{
        auto tmp0 = in_ptr0[static_cast<int64_t>(x0)];
        {between}
        auto tmp6 = tmp5;
        auto tmp7 = c10::convert<int64_t>(tmp6);
        AOTI_TORCH_CHECK((0 <= tmp7) & (tmp7 < 100L), "{text}");
        {load}
        out_ptr0[static_cast<int64_t>(x0)] = tmp8;
    }}
}}
"""
    arguments = (("arg0_1", "in_ptr0"), ("w", "in_ptr1"), ("buf0", "out_ptr0"))
    args = (
        arg(name, Role.OUT if name == "buf0" else Role.IN, param=param, ctype="const float*", base=name)
        for name, param in arguments
    )
    package = make_manifest(
        site("cpp_fused_embedding_0", *args, kind=Kind.CPP),
        kernels=[Kernel("cpp_fused_embedding_0", "cpp", source, "0" * 64)],
    )
    weight = Constant("w", "embed.weight", "float32", (100, 4), (4, 1), folded=False, kind="Parameter")
    package = replace(package, inputs=("arg0_1",), input_names=("ids",), constants=(weight,))
    writer = JournalWriter(level=1)
    writer.call_begin()
    ids = tensor(2, 3, dtype="int64")
    writer.launch_begin(0, 0, ids, tensor(100, 4, data_ptr=0x2000), tensor(2, 3, data_ptr=0x3000))
    if saved is not None:
        writer.tensor_file(0, 0, Phase.BEFORE, "tensors/ids.safetensors")
    writer.launch_end(0, status=-1)
    writer.fault(0, FaultDomain.EXCEPTION, text=text)
    end = Exit(ExitKind.FAULT, f"RuntimeError: {text}", RunStage.CALL, exception="RuntimeError")
    path = run_directory(base, package, writer, exit=end, level=1)
    if saved is not None:
        save(path / "tensors/ids.safetensors", "ids", torch.tensor(saved).reshape(2, 3))
    verdict = diagnose(open_run(path))
    assert verdict is not None
    assert verdict.message == text
    return verdict


def test_an_index_that_was_saved_is_named(tmp_path: Path) -> None:
    assert crashed(tmp_path, saved=[1, 2, -100, 4, 5, 100]).headline == "ids[1, 2] is 100, embed.weight has 100 rows"


def test_an_index_that_was_not_saved_is_described(tmp_path: Path) -> None:
    assert crashed(tmp_path).headline == "an element of ids is out of bounds: embed.weight has 100 rows"


def test_several_bad_indices_are_counted(tmp_path: Path) -> None:
    found = crashed(tmp_path, saved=[1, -101, 3, 4, 200, 6])
    assert found.headline == "ids[0, 1] is -101, embed.weight has 100 rows (2 elements are bad)"


@pytest.mark.parametrize("between", [SHIFTED, IGNORED], ids=["shifted", "ignored"])
def test_a_number_that_is_not_the_index_itself_is_not_named(tmp_path: Path, between: str) -> None:
    found = crashed(tmp_path, between, saved=[1, 2, 3, 4, -200, 99])
    assert found.headline == "an index computed from ids is out of bounds: embed.weight has 100 rows"


def test_a_table_that_is_not_seen_is_not_named(tmp_path: Path) -> None:
    another = 'AOTI_TORCH_CHECK((0 <= tmp5) & (tmp5 < 50L), "index out of bounds: 0 <= tmp5 < 50L");\n'
    found = crashed(tmp_path, load=another + LOAD)
    assert found.headline == "an element of ids is out of bounds: as an index it has to be less than 100"


def test_an_index_of_an_unknown_kernel(tmp_path: Path) -> None:
    writer = started(PROXY, ended=0)
    writer.launch_end(0, status=-1)
    writer.fault(0, FaultDomain.EXCEPTION, text="index out of bounds: 0 <= tmp7 < 100L")
    end = Exit(ExitKind.FAULT, "RuntimeError: it failed", RunStage.CALL, exception="RuntimeError")
    verdict = judge(tmp_path, writer, end)
    assert verdict is not None
    assert verdict.headline == "an index in mylib::op.default is out of bounds: it has to be less than 100"


def test_an_abort_keeps_its_words(tmp_path: Path) -> None:
    path = run_directory(tmp_path, CUDA, started(PROXY, ended=0), exit=ABRT)
    (path / "stderr.log").write_text(
        "terminate called after throwing an instance of 'std::runtime_error'\n  what():  it is over\n"
    )
    verdict = diagnose(open_run(path))
    assert verdict is not None
    words = "uncaught std::runtime_error: it is over"
    assert verdict.headline == f"the process was aborted in mylib::op.default: {words}"
    assert verdict.message == f"SIGABRT (Aborted): {words}"


@pytest.mark.parametrize(
    ("code", "words"), [(700, "invalid memory access on the GPU"), (710, "failed assertion on the GPU")]
)
def test_an_error_of_the_device(tmp_path: Path, code: int, words: str) -> None:
    writer = started(TRITON)
    cuda_fault(writer, 0, code)
    verdict = judge(tmp_path, writer, Exit(ExitKind.FAULT, "RuntimeError: x", exception="RuntimeError"), CUDA)
    assert verdict is not None
    assert verdict.headline == f"{words} in triton_poi_fused_0"
    assert verdict.message.startswith(f"CUDA error {code}: ")


def test_the_words_of_an_operator_are_the_headline(tmp_path: Path) -> None:
    writer = started(PROXY, ended=0)
    writer.launch_end(0, status=-1)
    writer.fault(0, FaultDomain.EXCEPTION, text="ValueError: the answer is not 42")
    end = Exit(ExitKind.FAULT, "ValueError: the answer is not 42", RunStage.CALL, exception="ValueError")
    verdict = judge(tmp_path, writer, end)
    assert verdict is not None
    assert (verdict.headline, verdict.message) == ("ValueError: the answer is not 42", "")

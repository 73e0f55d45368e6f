from __future__ import annotations

import shutil
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.base.errors import InputMismatch, Mismatch
from aoti_debug.package.argument_values import Absent, Number, Tensor
from aoti_debug.package.manifest import (
    Constant,
    CType,
    Form,
    Kernel,
    KernelParam,
    Kind,
    Manifest,
    OperatorSchema,
    Promise,
    Role,
)
from aoti_debug.runs.diagnosis.dataflow import Dataflow
from aoti_debug.runs.diagnosis.findings import Finding, Place
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from aoti_debug.triage.contracts import contracts
from aoti_debug.triage.results.finding_kinds import CONTRACT
from tests import archives
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, tensor
from tests.paths import RECORDED

ASK = site("mylib::ask.default", arg("x"), arg("buf1", Role.OUT, Form.LIST), kind=Kind.PROXY, op="mylib::ask.default")
ADD = site("cpp_fused_add_0", arg("buf1"), arg("buf2", Role.OUT), kind=Kind.CPP, line=13)
PROMISES = (
    Promise("x", "cpu", "float32", ("s77", "8"), ("8", "1")),
    Promise("buf1", "cpu", "float32", ("s77", "8"), ("8", "1")),
    Promise("buf2", "cpu", "float32", ("s77", "8"), ("8", "1")),
)
X = tensor(4, 8, data_ptr=0x1000)
BUF2 = tensor(4, 8, data_ptr=0x3000)


def described(
    *sites: object, promises: Sequence[Promise] = PROMISES, device: str = "cpu", **fields: object
) -> Manifest:
    return replace(make_manifest(*sites, device=device), promises=tuple(promises), inputs=("x",), **fields)  # type: ignore[arg-type]


def run_of(base: Path, manifest: Manifest, journal: JournalWriter) -> RunDir:
    return open_run(run_directory(base, manifest, journal))


def check(run: RunDir) -> tuple[Finding, ...]:
    return contracts.check(Dataflow(run))


def asked(base: Path, made: object, *, again: int = 1, promises: Sequence[Promise] = PROMISES) -> RunDir:
    """A run in which an operator produces buf1, and a kernel reads it."""
    journal = JournalWriter()
    for call in range(again):
        journal.launch_begin(0, 0, X, Absent.UNDEFINED, call=call)
        journal.launch_end(0, {1: made}, call=call)  # type: ignore[dict-item]
        journal.launch(1, 1, made, BUF2, call=call)  # type: ignore[arg-type]
    return run_of(base, described(ASK, ADD, promises=promises, outputs=("buf2",)), journal)


def test_a_tensor_as_promised_is_no_finding(tmp_path: Path) -> None:
    assert check(asked(tmp_path, tensor(4, 8, data_ptr=0x2000))) == ()


@pytest.mark.parametrize(
    ("made", "what", "consequence"),
    [
        (
            tensor(4, 8, dtype="bfloat16", data_ptr=0x2000),
            "returned bfloat16[4, 8] where float32[4, 8] was promised",
            "launch 0.1 cpp_fused_add_0 reads 4 bytes per element of a tensor with 2 bytes per element, "
            "up to 64 bytes past the end of its memory",
        ),
        (
            tensor(4, 8, dtype="float64", data_ptr=0x2000),
            "returned float64[4, 8] where float32[4, 8] was promised",
            "launch 0.1 cpp_fused_add_0 reads 4 bytes per element of a tensor with 8 bytes per element",
        ),
        (
            tensor(4, 8, dtype="int32", data_ptr=0x2000),
            "returned int32[4, 8] where float32[4, 8] was promised",
            "launch 0.1 cpp_fused_add_0 reads its bytes as float32",
        ),
        (
            tensor(3, 8, data_ptr=0x2000),
            "returned float32[3, 8] where float32[4, 8] was promised",
            "launch 0.1 cpp_fused_add_0 accesses it as float32[4, 8], up to 32 bytes past the end of its memory",
        ),
        (
            tensor(32, data_ptr=0x2000),
            "returned float32[32] where float32[4, 8] was promised",
            "launch 0.1 cpp_fused_add_0 accesses it as float32[4, 8]",
        ),
        (
            tensor(4, 8, strides=(1, 4), data_ptr=0x2000),
            "returned float32[4, 8] with strides [1, 4] where float32[4, 8] with strides [8, 1] was promised",
            "launch 0.1 cpp_fused_add_0 reads its elements in the wrong order, with the promised strides",
        ),
        (
            tensor(4, 8, device="cuda:0", data_ptr=0x2000),
            "returned float32[4, 8] on cuda:0 where float32[4, 8] on cpu was promised",
            "launch 0.1 cpp_fused_add_0 uses its address as one of cpu",
        ),
        (
            tensor(0, 8, data_ptr=0),
            "returned float32[0, 8] where float32[4, 8] was promised",
            "",
        ),
    ],
)
def test_an_operator_that_breaks_its_promise(tmp_path: Path, made: object, what: str, consequence: str) -> None:
    (finding,) = check(asked(tmp_path, made))
    assert finding.kind is CONTRACT
    assert finding.what == f"mylib::ask.default {what}"
    assert finding.where is not None
    assert (finding.where.launch, finding.where.operator) == ("0.0", "mylib::ask.default")
    assert finding.where.argument == "buf1"
    assert finding.where.frame is not None
    assert finding.where.frame.line == 12
    assert "mylib::ask.default: its real kernel does not return what its fake kernel describes" in finding.evidence
    assert [line for line in finding.evidence if line.startswith("launch 0.1")] == (
        [consequence] if consequence else []
    )


def test_one_finding_per_cause_however_many_calls(tmp_path: Path) -> None:
    assert len(check(asked(tmp_path, tensor(4, 8, dtype="float16"), again=3))) == 1


@pytest.mark.parametrize(
    "made",
    [
        tensor(1, 8, strides=(3, 1), data_ptr=0x2000),  # the stride of a dimension of size 1
        tensor(0, 8, strides=(1, 4), data_ptr=0),  # of no elements
    ],
)
def test_strides_that_do_not_matter(tmp_path: Path, made: object) -> None:
    rows = str(made.layout.shape[0])  # type: ignore[attr-defined]
    promises = [Promise("buf1", "cpu", "float32", (rows, "8"), ("8", "1"))]
    assert check(asked(tmp_path, made, promises=promises)) == ()


def test_an_unbacked_size_is_bound_at_its_first_tensor(tmp_path: Path) -> None:
    promises = [
        Promise("buf1", "cpu", "float32", ("u0", "8"), ("8", "1")),
        Promise("buf2", "cpu", "float32", ("u0 + 1", "s9", "2*s9"), ("16", "2", "1")),
    ]
    run = asked(tmp_path / "a", tensor(5, 8, data_ptr=0x2000), promises=promises)
    (finding,) = check(run)
    assert finding.what == "cpp_fused_add_0 wrote float32[4, 8] where float32[6, ?, ?] was promised"
    promises[1] = Promise("buf2", "cpu", "float32", ("s9", "u0 + 3"), ("u0 + 3", "1"))
    assert check(asked(tmp_path / "b", tensor(5, 8, data_ptr=0x2000), promises=promises)) == ()


def test_unbacked_sizes_differ_between_iterations(tmp_path: Path) -> None:
    promise = Promise("body_buf1", "cpu", "float32", ("u3",), ("1",))
    body = site("aten", arg("body_buf1", Role.OUT, Form.OUTPUT_SLOT), kind=Kind.SHIM_ALLOC, subgraph="body", loops=1)
    journal = JournalWriter()
    for iteration in range(3):
        journal.launch_begin(iteration, 0, Absent.UNSET, loops=(iteration,))
        journal.launch_end(iteration, {0: tensor(iteration + 2)})
    assert check(run_of(tmp_path, described(body, promises=[promise]), journal)) == ()


@pytest.mark.parametrize(
    ("second", "problem"),
    [
        (tensor(4, 8, data_ptr=0x9000), ""),
        (tensor(4, 8, dtype="float64", data_ptr=0x2000), "wrote float64[4, 8] where float32[4, 8] was promised"),
        (tensor(4, 8, data_ptr=0), "float32[4, 8] without memory: its address is 0"),
    ],
)
def test_a_later_iteration_is_looked_at_again(tmp_path: Path, second: Tensor, problem: str) -> None:
    body = site("cpp_fused_0", arg("buf1", Role.OUT), kind=Kind.CPP, subgraph="body", loops=1)
    promise = Promise("buf1", "cpu", "float32", ("4", "8"), ("8", "1"))
    journal = JournalWriter()
    for iteration, made in enumerate((tensor(4, 8, data_ptr=0x2000), second)):
        journal.launch(iteration, 0, made, loops=(iteration,))
    findings = check(run_of(tmp_path, described(body, promises=[promise]), journal))
    assert [problem in finding.what for finding in findings] == ([True] if problem else [])


def test_memory_that_was_broken_in_between_is_sound_again(tmp_path: Path) -> None:
    names = ("buf1", "buf2", "buf3")
    promises = [Promise(name, "cpu", "float32", ("4", "8"), ("8", "1")) for name in names]
    first = site("cpp_first", arg("buf1", Role.OUT), kind=Kind.CPP)
    breaks = site("cpp_breaks", arg("buf2", Role.OUT), kind=Kind.CPP)
    reads = site("cpp_reads", arg("buf1"), arg("buf3", Role.OUT), kind=Kind.CPP)
    sound, wrong = tensor(4, 8, data_ptr=0x2000), tensor(4, 8, dtype="float16", data_ptr=0x2000)
    journal = JournalWriter()
    journal.launch(0, 0, sound)
    journal.launch(1, 1, wrong)
    journal.launch(2, 0, sound)
    journal.launch(3, 2, sound, tensor(4, 9, data_ptr=0x5000))
    findings = check(run_of(tmp_path, described(first, breaks, reads, promises=promises), journal))
    assert [finding.what.split()[0] for finding in findings] == ["cpp_breaks", "cpp_reads"]


def test_unbacked_sizes_differ_between_branches(tmp_path: Path) -> None:
    branches = [
        site("aten", arg("buf1", Role.OUT, Form.OUTPUT_SLOT), kind=Kind.SHIM_ALLOC, subgraph=f"true_graph_{number}")
        for number in range(2)
    ]
    promise = Promise("buf1", "cpu", "float32", ("u3",), ("1",))
    journal = JournalWriter()
    for number in range(2):
        journal.launch_begin(number, number, Absent.UNSET)
        journal.launch_end(number, {0: tensor(number + 2)})
    assert check(run_of(tmp_path, described(*branches, promises=[promise]), journal)) == ()


def test_a_scalar_argument_binds_a_size(tmp_path: Path) -> None:
    number = arg("ks0", Role.NONE, Form.SCALAR, text="s5", ctype="int64_t")
    kernel = site("cpp_fused_0", arg("buf2", Role.OUT), number, kind=Kind.CPP)
    promise = Promise("buf2", "cpu", "float32", ("s5", "8"), ("8", "1"))
    journal = JournalWriter()
    journal.launch(0, 0, BUF2, Number(5, CType.I64))
    (finding,) = check(run_of(tmp_path, described(kernel, promises=[promise]), journal))
    assert finding.what == "cpp_fused_0 wrote float32[4, 8] where float32[5, 8] was promised"


def test_a_tensor_computed_from_a_broken_one_is_no_cause(tmp_path: Path) -> None:
    again = site("mylib::ask.default", arg("buf1"), arg("buf2", Role.OUT, Form.LIST), kind=Kind.PROXY, line=14)
    reuse = site("cpp_fused_1", arg("buf3", Role.INOUT), kind=Kind.CPP, line=15)
    third = Promise("buf3", "cpu", "float32", ("s77", "8"), ("8", "1"))
    broken = tensor(4, 8, dtype="bfloat16", data_ptr=0x2000)
    journal = JournalWriter()
    journal.launch_begin(0, 0, X, Absent.UNDEFINED)
    journal.launch_end(0, {1: broken})
    journal.launch_begin(1, 1, broken, Absent.UNDEFINED)
    journal.launch_end(1, {1: tensor(4, 8, dtype="bfloat16", data_ptr=0x4000)})
    journal.launch(2, 2, broken)
    findings = check(run_of(tmp_path, described(ASK, again, reuse, promises=(*PROMISES, third)), journal))
    assert [finding.where.launch for finding in findings if finding.where] == ["0.0"]


def test_memory_of_a_broken_tensor_may_belong_to_another_one_later(tmp_path: Path) -> None:
    broken, good = tensor(4, 8, dtype="float64", data_ptr=0x2000), tensor(4, 8, data_ptr=0x2000)
    fill = site("cpp_fused_1", arg("buf2", Role.OUT), kind=Kind.CPP)
    other = site("mylib::other.default", arg("buf2"), arg("buf3", Role.OUT, Form.LIST), kind=Kind.PROXY, op="mylib::o")
    third = Promise("buf3", "cpu", "float32", ("s77", "8"), ("8", "1"))
    journal = JournalWriter()
    journal.launch_begin(0, 0, X, Absent.UNDEFINED)
    journal.launch_end(0, {1: broken})
    journal.launch(1, 1, good)
    journal.launch_begin(2, 2, good, Absent.UNDEFINED)
    journal.launch_end(2, {1: tensor(2, 8, data_ptr=0x5000)})
    findings = check(run_of(tmp_path, described(ASK, fill, other, promises=(*PROMISES, third)), journal))
    assert [finding.where.launch for finding in findings if finding.where] == ["0.0", "0.2"]


def test_an_input_that_is_not_as_exported(tmp_path: Path) -> None:
    journal = JournalWriter()
    journal.launch_begin(0, 0, tensor(4, 8, strides=(1, 4)), Absent.UNDEFINED)
    journal.launch_end(0, {1: tensor(4, 8, data_ptr=0x2000)})
    manifest = described(ASK, ADD, input_names=("image",))
    (finding,) = check(run_of(tmp_path, manifest, journal))
    assert finding.what == (
        "image is float32[4, 8] with strides [1, 4] where float32[4, 8] with strides [8, 1] was promised"
    )
    assert finding.where == Place(input="image", argument="x")
    assert "launch 0.0 mylib::ask.default reads it next" in finding.evidence


def test_a_weight_that_is_not_what_the_package_says(tmp_path: Path) -> None:
    weight = Constant("l_weight", "l.weight", "float32", (4,), (1,), folded=False)
    kernel = site("cpp_fused_0", arg("l_weight"), arg("buf2", Role.OUT), kind=Kind.CPP)
    journal = JournalWriter()
    journal.launch(0, 0, tensor(4, dtype="float16"), BUF2)
    (finding,) = check(run_of(tmp_path, described(kernel, constants=(weight,)), journal))
    assert finding.what == "l.weight is float16[4] where float32[4] was promised"


def test_a_package_that_promises_nothing(tmp_path: Path) -> None:
    assert check(asked(tmp_path, tensor(3, dtype="float64"), promises=())) == ()


def test_a_run_without_launches(tmp_path: Path) -> None:
    assert check(open_run(run_directory(tmp_path, described(ASK)))) == ()


@pytest.mark.parametrize(
    ("view", "problem"),
    [
        (
            tensor(4, 8, data_ptr=0x2040, storage_offset=16, storage_bytes=128),
            "float32[4, 8] from byte 64 to byte 192 of a storage of 128 bytes",
        ),
        (tensor(4, 8, data_ptr=0), "float32[4, 8] without memory: its address is 0"),
        (tensor(4, 8, device="cuda:0"), "float32[4, 8] on cuda:0, but the kernel runs on cpu"),
    ],
)
def test_a_view_whose_elements_lie_outside(tmp_path: Path, view: object, problem: str) -> None:
    make = site("cpp_fused_1", arg("buf1", Role.OUT), kind=Kind.CPP)
    read = site("cpp_fused_add_0", arg("buf1_view", base="buf1"), arg("buf2", Role.OUT), kind=Kind.CPP, line=13)
    journal = JournalWriter()
    for call in range(2):
        journal.launch(0, 0, tensor(4, 8, data_ptr=0x2000), call=call)
        journal.launch(1, 1, view, BUF2, call=call)  # type: ignore[arg-type]
    (finding,) = check(run_of(tmp_path, described(make, read), journal))
    assert finding.what == f"cpp_fused_add_0 was passed buf1_view: {problem}"
    assert finding.where is not None
    assert (finding.where.launch, finding.where.argument) == ("0.1", "buf1_view")
    if "to byte" in problem:
        assert finding.origin is not None
        assert finding.origin.launch == "0.0"


def test_empty_views_lie_anywhere(tmp_path: Path) -> None:
    read = site("cpp_fused_add_0", arg("buf1_view"), arg("buf2", Role.OUT), kind=Kind.CPP)
    journal = JournalWriter()
    journal.launch(0, 0, tensor(0, 8, data_ptr=0, storage_offset=64, storage_bytes=0), BUF2)
    run = run_of(tmp_path, described(read), journal)
    assert check(run) == ()
    assert [argument.name for argument in contracts.zero_sized(run.launches[0])] == ["buf1_view"]


SOURCE = """@triton_heuristics.pointwise(
    triton_meta={'signature': {'in_ptr0': '*fp32', 'out_ptr0': '*fp32', 'xnumel': 'i32', 'ynumel': 'constexpr',
    'XBLOCK': 'constexpr'}, 'constants': {'ynumel': 1},
    'configs': [{(0,): [['tt.divisibility', 16]], (1,): [['tt.divisibility', 16]], (2,): [['tt.divisibility', 16]]}]},
    inductor_meta={},
)
@triton.jit
def triton_poi_fused_0(in_ptr0, out_ptr0, xnumel, ynumel, XBLOCK: tl.constexpr):
    pass
"""
KERNEL = Kernel(
    "triton_poi_fused_0",
    "triton",
    SOURCE,
    "0" * 64,
    id=0,
    params=(
        KernelParam("in_ptr0", "CUdeviceptr", CType.ADDRESS),
        KernelParam("out_ptr0", "CUdeviceptr", CType.ADDRESS),
        KernelParam("xnumel", "int32_t", CType.I32),
    ),
)
TRITON = site(
    "triton_poi_fused_0",
    arg("x", param="in_ptr0"),
    arg("buf0", Role.OUT, param="out_ptr0"),
    arg("n", Role.NONE, Form.SCALAR, param="xnumel", ctype="int64_t", text="32L"),
    arg("m", Role.NONE, Form.SCALAR, param="ynumel", ctype="int64_t", text="1L"),
    kind=Kind.TRITON,
)


def triton_run(
    base: Path, x: int = 0x1000, n: int = 32, passed: int | None = None, m: int = 1, device: str = "cuda:0"
) -> RunDir:
    journal = JournalWriter()
    given = tensor(32, device=device, data_ptr=x)
    out = tensor(32, device="cuda:0", data_ptr=0x2000)
    journal.launch_begin(0, 0, given, out, Number(n, CType.I64), Number(m, CType.I64))
    journal.grid(0, 0, (1, 1, 1), x, 0x2000, n if passed is None else passed)
    journal.launch_end(0)
    manifest = described(TRITON, promises=(), device="cuda")
    return run_of(base, replace(manifest, kernels=(KERNEL,)), journal)


def test_arguments_that_a_kernel_was_compiled_for(tmp_path: Path) -> None:
    assert check(triton_run(tmp_path)) == ()


@pytest.mark.parametrize(
    ("given", "what", "argument"),
    [
        ({"x": 0x1004}, "was compiled for an address in_ptr0 divisible by 16, but x is at 0x1004", "x"),
        ({"n": 30}, "was compiled for xnumel divisible by 16, but it is 30", "n"),
        ({"m": 2}, "was compiled for ynumel = 1, but it is 2", "m"),
        ({"n": 1 << 32, "passed": 0}, "takes xnumel as int32_t: 4294967296 becomes 0", "n"),
        ({"device": "cpu"}, "was passed x: float32[32] on cpu, but the kernel runs on cuda:0", "x"),
        ({"device": "cpu", "n": 30}, "was passed x: float32[32] on cpu, but the kernel runs on cuda:0", "x"),
        ({"device": "cuda:1"}, "was passed x: float32[32] on cuda:1, but the kernel runs on cuda:0", "x"),
    ],
)
def test_arguments_that_a_kernel_was_not_compiled_for(
    tmp_path: Path, given: dict[str, object], what: str, argument: str
) -> None:
    (finding,) = check(triton_run(tmp_path, **given))  # type: ignore[arg-type]
    assert finding.what == f"triton_poi_fused_0 {what}"
    assert finding.where is not None
    assert finding.where.argument == argument
    assert finding.origin == (Place(input="x") if argument == "x" else None)


def test_a_package_may_run_on_another_device_than_it_was_compiled_for(tmp_path: Path) -> None:
    promises = (
        Promise("x", "cuda:0", "float32", ("32",), ("1",)),
        Promise("buf0", "cuda:0", "float32", ("32",), ("1",)),
    )
    for index, name in ((1, "all"), (0, "fed from cuda:0")):
        journal = JournalWriter()
        given, out = (tensor(32, device=f"cuda:{i}", data_ptr=0x1000 * (i + 1)) for i in (index, 1))
        journal.launch(0, 0, given, out, Number(32, CType.I64), Number(1, CType.I64))
        findings = check(run_of(tmp_path / name, described(TRITON, promises=promises, device="cuda"), journal))
        expected = [] if index else ["x is float32[32] on cuda:0 where float32[32] on cuda:1 was promised"]
        assert [finding.what for finding in findings] == expected


@pytest.mark.parametrize("name", ["mixed", "reductions", "two_specialisations"])
def test_recorded_runs_break_nothing(tmp_path: Path, name: str) -> None:
    with tarfile.open(RECORDED / f"{name}.tar.xz") as archive:
        archives.extract(archive, tmp_path / name)
    assert check(open_run(tmp_path / name)) == ()
    shutil.rmtree(tmp_path / name)


def test_a_finding_of_inputs() -> None:
    x = Mismatch("x", 0, "dtype", "float32[2] on cpu", "float64[2] on cpu", "input 0 (x) is wrong", "convert it")
    y = Mismatch("y", 1, "strides", "[2, 1]", "[1, 2]", "input 1 (y) is wrong, too", "y.contiguous()")
    finding = contracts.input_finding(InputMismatch((x, y)))
    assert (finding.kind, finding.what, finding.where) == (
        CONTRACT,
        "input 0 (x) is wrong",
        Place(input="x", input_kind="input"),
    )
    unnamed = contracts.input_finding(InputMismatch((replace(y, name=""),)))
    count = contracts.input_finding(InputMismatch((replace(y, name="", position=-1),)))
    assert (unnamed.where, count.where) == (Place(input="1", input_kind="input"), Place())
    weight = contracts.input_finding(InputMismatch((replace(y, name="l.weight", position=-1),)))
    assert weight.where == Place(input="l.weight", input_kind="weight")
    takes = replace(y, name="", position=-1, advice="the model takes:\n  x float32[8] on cpu\n  y float32[8] on cpu")
    assert contracts.input_finding(InputMismatch((takes,))).next == (
        "the model takes: x float32[8] on cpu, y float32[8] on cpu",
    )
    assert (finding.evidence, finding.next) == (("input 1 (y) is wrong, too",), ("convert it", "y.contiguous()"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *("mixed", "control", "fold", "custom", "mutation", "attention", "views", "sizes", "half", "gemm", "blocks"),
        *("planned", "profiled"),
    ],
)
def test_ordinary_models_break_nothing(saved: Callable[[str], RunDir], name: str) -> None:
    run = saved(name)
    assert run.manifest.without_promises == ""
    assert run.manifest.promises != ()
    assert check(run) == ()


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 1),
        ("mylib::ask(Tensor x) -> Tensor", 1),
        ("mylib::ask(Tensor(a!) x) -> Tensor", 1),
        ("mylib::ask(Tensor(b) x) -> Tensor(b)", 0),
    ],
)
def test_a_result_that_shares_memory_with_an_argument(tmp_path: Path, text: str, count: int) -> None:
    write = site("cpp_fused_add_0", arg("buf1", Role.INOUT), kind=Kind.CPP, line=13)
    journal = JournalWriter()
    journal.launch_begin(0, 0, X, Absent.UNDEFINED)
    journal.launch_end(0, {1: X})
    journal.launch(1, 1, X)
    operators = (OperatorSchema("mylib.ask.default", (), returns=1, text=text),) if text else ()
    found = check(run_of(tmp_path, described(ASK, write, operators=operators), journal))
    assert len([f for f in found if "returned a view of its argument x" in f.what]) == count

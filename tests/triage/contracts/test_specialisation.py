from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.package.argument_values import Number
from aoti_debug.package.manifest import CType, Form, Kernel, KernelParam, Kind, Role
from aoti_debug.runs.rundir.run_directory import open_run
from aoti_debug.triage.contracts.specialisation import BrokenAssumption, Specialisations
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, tensor

SOURCE = """@triton_heuristics.pointwise(
    triton_meta={'signature': {'in_ptr0': '*fp32', 'ks0': 'constexpr', 'ks1': 'constexpr', 'xnumel': 'i32', 'n': 'i32',
    'scale': 'fp32', 'flag': 'constexpr', 'kind': 'constexpr'},
    'constants': {'ks0': 3, 'ks1': 0.5, 'flag': True, 'kind': 'float'},
    'configs': [{(0,): [['tt.divisibility', 16]], (3,): [['tt.divisibility', 16]]}]},
    inductor_meta={},
)
@triton.jit
def poi(in_ptr0, ks0, ks1, xnumel, n, scale, flag, kind):
    pass
"""
KERNEL = Kernel(
    "poi",
    "triton",
    SOURCE,
    "0" * 64,
    id=0,
    params=(
        KernelParam("in_ptr0", "CUdeviceptr", CType.ADDRESS),
        KernelParam("xnumel", "int32_t", CType.I32),
        KernelParam("n", "int32_t", CType.I32),
        KernelParam("scale", "float", CType.F32),
    ),
)
NAMES = ("ks0", "ks1", "flag", "kind", "xnumel", "n", "scale")  # of the parameters; a launch calls n "n_0", and so on
FITTING = {"ks0": 3, "ks1": 0.5, "flag": 1, "kind": 7, "xnumel": 32, "n": 30, "scale": 0.5}


def broken(
    base: Path,
    given: dict[str, int | float],
    *,
    address: int = 0x1000,
    received: dict[str, int] | None = None,
    kernel: Kernel = KERNEL,
) -> list[BrokenAssumption]:
    """The assumptions that a launch breaks.

    Args:
        given: numbers of the launch other than those that fit.
        received: numbers that the device got instead.
    """
    values: dict[str, int | float] = {**FITTING, **given}
    numbers = [Number(v, CType.F64 if isinstance(v, float) else CType.I64) for v in (values[name] for name in NAMES)]
    scalars = (arg(f"{name}_0", Role.NONE, Form.SCALAR, param=name) for name in NAMES)
    journal = JournalWriter()
    journal.launch_begin(0, 0, tensor(4, data_ptr=address), *numbers)
    passed = {"xnumel": int(values["xnumel"]), "n": int(values["n"])} | (received or {})
    journal.grid(0, 0, (1, 1, 1), address, passed["xnumel"], passed["n"], 0, 0x7008)  # the last one: scratch memory
    journal.launch_end(0)
    launched = site("poi", arg("x", param="in_ptr0"), *scalars, kind=Kind.TRITON)
    manifest = replace(make_manifest(launched), kernels=(kernel,))
    run = open_run(run_directory(base, manifest, journal))
    return list(Specialisations(manifest).broken_assumptions(run.launches[0]))


ALIGNED = "its vectorized loads and stores may fail with a misaligned address"
BOUNDS = "it may omit the bounds check of the last elements"
FITS = "the number does not fit the kernel's parameter"


@pytest.mark.parametrize(
    ("given", "address", "received", "expected"),
    [
        ({}, 0x1000, {}, []),
        ({}, 0x1010, {}, []),
        (
            {},
            0x1011,
            {},
            [("in_ptr0", "x", "was compiled for an address in_ptr0 divisible by 16, but x is at 0x1011", ALIGNED)],
        ),
        ({"xnumel": 0}, 0x1000, {}, []),
        ({"n": 17}, 0x1000, {}, []),
        (
            {"xnumel": 17},
            0x1000,
            {},
            [("xnumel", "xnumel_0", "was compiled for xnumel divisible by 16, but it is 17", BOUNDS)],
        ),
        (
            {"ks0": 4},
            0x1000,
            {},
            [("ks0", "ks0_0", "was compiled for ks0 = 3, but it is 4", "it computes as if it were 3")],
        ),
        (
            {"ks1": 0.25},
            0x1000,
            {},
            [("ks1", "ks1_0", "was compiled for ks1 = 0.5, but it is 0.25", "it computes as if it were 0.5")],
        ),
        ({"flag": 0, "kind": 8}, 0x1000, {}, []),  # constants that are no numbers
        (
            {"n": 1 << 32},
            0x1000,
            {"n": 0},
            [("n", "n_0", "takes n as int32_t: 4294967296 becomes 0", FITS)],
        ),
        ({"n": 0.5, "scale": 3}, 0x1000, {"n": 0}, []),  # not from integer to integer
    ],
)
def test_assumptions_that_a_launch_breaks(
    tmp_path: Path,
    given: dict[str, int | float],
    address: int,
    received: dict[str, int],
    expected: list[tuple[str, str, str, str]],
) -> None:
    found = broken(tmp_path, given, address=address, received=received)
    assert found == [BrokenAssumption(*each) for each in expected]


def test_all_broken_assumptions_of_a_launch(tmp_path: Path) -> None:
    found = broken(tmp_path, {"ks0": 4, "ks1": 0.25, "xnumel": 17, "n": 1 << 32}, address=0x1001, received={"n": 0})
    assert [each.parameter for each in found] == ["in_ptr0", "xnumel", "ks0", "ks1", "n"]


@pytest.mark.parametrize(
    "kernel",
    [replace(KERNEL, source=""), replace(KERNEL, source="def poi():\n    pass\n"), replace(KERNEL, language="cutlass")],
)
def test_a_kernel_whose_source_does_not_say_what_it_was_compiled_for(tmp_path: Path, kernel: Kernel) -> None:
    (found,) = broken(tmp_path, {"ks0": 4, "n": 1 << 32}, address=0x1001, received={"n": 0}, kernel=kernel)
    assert found.parameter == "n"


def test_a_kernel_that_is_not_in_the_manifest(tmp_path: Path) -> None:
    assert broken(tmp_path, {"ks0": 4}, address=0x1001, kernel=replace(KERNEL, id=5)) == []

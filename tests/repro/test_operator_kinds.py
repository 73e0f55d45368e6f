"""Operators behind the proxy executor and custom operators with a C shim of their own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from aoti_debug.base.errors import RunDirError, UsageError
from aoti_debug.package.manifest import CType, Form, Kind, OperatorSchema, Parameter, ProxyArgument, Role
from aoti_debug.repro import proxy
from aoti_debug.repro.arguments import arguments_of
from aoti_debug.repro.generate_texts import generate, kind_of
from aoti_debug.repro.recorded_launch import RecordedLaunch
from aoti_debug.repro.repro_files import write_folder
from tests.operator_schemas import registered
from tests.repro.repro_launches import LaunchBuilder, manifest, replay

MODULE = """
import torch

@torch.library.custom_op("repro_test::add_scaled", mutates_args={"total"})
def add_scaled(total: torch.Tensor, x: torch.Tensor, factor: float, times: int) -> torch.Tensor:
    total.add_(x * factor, alpha=times)
    return x - 1
"""


def operand(name: str, **value: object) -> ProxyArgument:
    return ProxyArgument(name, False, json.dumps(value))


def add_scaled(saved: Path) -> LaunchBuilder:
    saved.mkdir(exist_ok=True)
    launch = LaunchBuilder(saved, "repro_test::add_scaled.default", Kind.PROXY, "repro_test::add_scaled.default")
    tensor = {"name": "any"}
    launch.details = {
        "operands": (
            operand("total", as_tensor=tensor),
            operand("x", as_tensor=tensor),
            operand("factor", as_float=0.5),
            operand("times", as_int=3),
        ),
        "results": (json.dumps({"as_tensor": tensor}),),
    }
    total, x = torch.ones(4), torch.arange(4.0)
    launch.tensor("buf0", total, Role.INOUT, after=total + 1.5 * x, param="total", form=Form.LIST, element=0, at=5)
    launch.tensor("arg0_1", x, param="x", form=Form.LIST, element=1, at=5)
    return launch.made("buf1", x - 1, "ret0").number("times", 3, form=Form.INTS, element=0, at=3)


def write(
    launch: LaunchBuilder,
    folder: Path,
    *imports: str,
    libraries: tuple[str, ...] = (),
    operators: tuple[OperatorSchema, ...] = (),
) -> Path:
    built = launch.build()
    arguments = arguments_of(built)
    known = replace(manifest(operators=operators), imports=imports, libraries=libraries)
    write_folder(folder, generate(built, known, arguments), arguments)
    return folder


@pytest.mark.parametrize("text", ["", "{}", "[]", "{", "[" * 200_000])
def test_an_argument_that_is_damaged(tmp_path: Path, text: str) -> None:
    launch = add_scaled(tmp_path / "run")
    launch.details["operands"] = (*launch.details["operands"][:3], ProxyArgument("times", False, text))
    with pytest.raises(RunDirError, match="the manifest is damaged"):
        write(launch, tmp_path / "repro")


def test_an_operator_with_its_module(tmp_path: Path) -> None:
    (tmp_path / "mylib.py").write_text(MODULE)
    folder = write(add_scaled(tmp_path / "run"), tmp_path / "repro", "mylib")
    assert "what defines torch.ops.repro_test.add_scaled.default: the module mylib" in (folder / "README").read_text()
    done = replay(folder, "--import", str(tmp_path / "mylib.py"))
    assert done.stdout == (
        "0.3 repro_test::add_scaled.default: as recorded\n"
        "  buf0  float32 (4,)  equal bit for bit\n"
        "  buf1  float32 (4,)  equal bit for bit\n"
    ), done
    (tmp_path / "mylib.py").rename(folder / "mylib.py")  # beside repro.py it is found by its name
    assert replay(folder, "--poison").returncode == 0


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    folder = write(add_scaled(tmp_path / "run"), tmp_path / "repro", "mylib", libraries=("/no/libmylib.so",))
    assert replay(folder).stderr == (
        "the operator comes from /no/libmylib.so, which does not exist; name another one: --load-library PATH\n"
    )
    folder = write(add_scaled(tmp_path / "run"), tmp_path / "second", "mylib")
    assert replay(folder).stderr == (
        "the operator comes from module mylib: No module named 'mylib'; put it next to repro.py or on PYTHONPATH, "
        "or name its file: --import FILE.py\n"
    )
    library = tmp_path / "lib.so"
    library.write_text("no library")
    done = replay(folder, "--load-library", str(library))
    assert f"{library} cannot be loaded: " in done.stderr
    assert done.returncode == 1


def in_constants(launch: RecordedLaunch) -> RecordedLaunch:
    return replace(launch, site=replace(launch.site, function="_const_run_impl", operands=()))


@pytest.mark.parametrize(
    ("details", "why"),
    [
        ({"operands": ()}, "does not hold the operator's arguments"),
        (
            {"operands": (operand("o", as_custom_obj={"name": "x"}),)},
            "its argument o is an object that only the package",
        ),
    ],
)
def test_refusals(tmp_path: Path, details: dict[str, object], why: str) -> None:
    launch = add_scaled(tmp_path / "run")
    launch.details |= details
    with pytest.raises(UsageError, match=why):
        kind_of(launch.build(), manifest())
    with pytest.raises(UsageError, match="does not hold the operator's arguments of calls in constant folding"):
        kind_of(in_constants(add_scaled(tmp_path / "run").build()), manifest())
    launch.op = "operator_3"
    with pytest.raises(UsageError, match="does not say which operator it is"):
        kind_of(launch.build(), manifest())
    shim = LaunchBuilder(tmp_path, "aoti_torch_cpu_scaled", Kind.CUSTOM_SHIM)
    with pytest.raises(UsageError, match="does not say which operator it is; build it again"):
        kind_of(shim.build(), manifest())


@pytest.mark.parametrize(
    ("missing", "said"), [("x", "its argument x was not recorded"), ("times", "its argument times was not recorded")]
)
def test_an_argument_that_was_not_recorded(tmp_path: Path, missing: str, said: str) -> None:
    launch = add_scaled(tmp_path / "run")
    launch.slots = [slot for slot in launch.slots if slot.arg.param != missing]
    built = launch.build()
    with pytest.raises(UsageError, match=said):
        generate(built, manifest(), arguments_of(built))


def test_an_operator_of_torch_needs_nothing(tmp_path: Path) -> None:
    launch = LaunchBuilder(tmp_path, "aten::complex.default", Kind.PROXY, "aten::complex.default")
    tensor = {"name": "any"}
    launch.details = {
        "operands": (operand("real", as_tensor=tensor), operand("imag", as_tensor=tensor)),
        "results": (json.dumps({"as_tensor": tensor}),),
    }
    real, imag = torch.ones(3), torch.arange(3.0)
    launch.tensor("a", real, param="real", form=Form.LIST, element=0, at=5)
    launch.tensor("b", imag, param="imag", form=Form.LIST, element=1, at=5).made("c", torch.complex(real, imag), "ret0")
    with pytest.raises(UsageError, match=r"does not hold the schema of aten::complex\.default; build it again"):
        kind_of(launch.build(), manifest())
    folder = write(launch, tmp_path / "repro", "mylib", operators=registered("aten::complex.default"))
    assert "imports=" not in (folder / "repro.py").read_text()
    assert "c  complex64 (3,)  equal bit for bit" in replay(folder).stdout


def test_the_values_of_a_random_operator_cannot_be_compared(tmp_path: Path) -> None:
    launch = LaunchBuilder(tmp_path, "aten::poisson.default", Kind.PROXY, "aten::poisson.default")
    tensor = {"name": "any"}
    launch.details = {"operands": (operand("self", as_tensor=tensor),), "results": (json.dumps({"as_tensor": tensor}),)}
    launch.tensor("a", torch.ones(3), param="self", form=Form.LIST, element=0, at=5).made("b", torch.ones(3), "ret0")
    built = launch.build()
    written = proxy.script(built, manifest(operators=registered(built.site.op)), arguments_of(built))
    assert written.random == "aten.poisson.default draws random numbers"


@pytest.mark.parametrize("value", [99, "7"])
def test_a_dtype_that_nobody_knows(tmp_path: Path, value: object) -> None:
    launch = add_scaled(tmp_path / "run")
    launch.details["operands"] = (*launch.details["operands"][:3], operand("times", as_scalar_type=value))
    with pytest.raises(UsageError, match="its argument times"):
        write(launch, tmp_path / "repro")


def test_an_operator_with_its_own_shim(tmp_path: Path) -> None:
    source = MODULE + "\n@torch.library.custom_op('repro_test::scaled', mutates_args=())\n"
    source += "def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:\n    return x * factor\n"
    (tmp_path / "mylib.py").write_text(source)
    launch = LaunchBuilder(tmp_path, "aoti_torch_cpu_scaled", Kind.CUSTOM_SHIM, "repro_test.scaled.default")
    x = torch.arange(5.0)
    launch.tensor("arg0_1", x).number("factor", 2.5, CType.F64, ctype="double").result("buf0", x * 2.5)
    parameters = (Parameter("x", "Tensor"), Parameter("factor", "float"))
    scaled = OperatorSchema("repro_test.scaled.default", parameters, returns=1)
    folder = write(launch, tmp_path / "repro", "mylib", operators=(scaled,))
    done = replay(folder, "--import", str(tmp_path / "mylib.py"))
    assert done.stdout.endswith("buf0  float32 (5,)  equal bit for bit\n"), done

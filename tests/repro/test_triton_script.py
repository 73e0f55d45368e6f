"""What the repro of a Triton launch says, and which launches have none."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aoti_debug.base.errors import UsageError
from aoti_debug.package.argument_values import Absent, Number
from aoti_debug.package.manifest import ConfigOrigin, CType, Inferred, Kernel
from aoti_debug.repro.arguments import arguments_of
from aoti_debug.repro.generate_texts import generate
from aoti_debug.repro.recorded_launch import RecordedLaunch
from tests.repro.repro_launches import manifest
from tests.repro.test_generate_texts import TEXTS, settled
from tests.repro.triton_launches import GRID, HELPERS, KERNEL, NAME, row_maxima, with_kernel


def contents(launch: RecordedLaunch, kernel: Kernel = KERNEL, helpers: str = HELPERS) -> dict[str, str | bytes]:
    launch = settled(launch)
    return generate(launch, with_kernel(manifest(), kernel, helpers), arguments_of(launch))


def script(launch: RecordedLaunch, kernel: Kernel = KERNEL) -> str:
    return str(contents(launch, kernel)["repro.py"])


def keywords(text: str, function: str) -> dict[str, Any]:
    """The keyword arguments of a call in a script, as source."""
    calls = (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call) and ast.unparse(n.func) == function)
    return {str(k.arg): ast.unparse(k.value) for k in next(calls).keywords}


def test_golden(tmp_path: Path, golden: Callable[[Path, str], None]) -> None:
    golden(TEXTS / "triton.py.txt", script(row_maxima(tmp_path)))


def test_the_machine_code_lies_beside_it(tmp_path: Path) -> None:
    assert contents(row_maxima(tmp_path))["kernel.cubin"] == b"\x7fELF machine code"


def test_no_private_module_of_torch_is_imported(tmp_path: Path) -> None:
    tree = ast.parse(script(row_maxima(tmp_path)))
    modules = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    modules |= {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    assert modules == {"ctypes", "pathlib", "sys", "torch", "triton", "triton.language", "replay"} | {
        "replay.triton_kernel"
    }
    assert "_inductor" not in script(row_maxima(tmp_path))


def test_numbers_are_those_that_the_device_was_handed(tmp_path: Path) -> None:
    passed = keywords(script(row_maxima(tmp_path)), "KERNEL")
    assert passed == {
        "in_ptr0": "arg0_1",
        "out_ptr0": "buf0",
        "alpha": "ctypes.c_double(0.1)",
        "xnumel": "ctypes.c_int32(3)",
    }


def test_an_argument_without_a_tensor_is_none(tmp_path: Path) -> None:
    launch = row_maxima(tmp_path)
    absent = replace(launch.slots[0], value=Absent.NULL)
    text = script(replace(launch, slots=(absent, *launch.slots[1:])))
    assert keywords(text, "KERNEL")["in_ptr0"] == "None"


def test_a_number_that_lies_in_a_tensor_is_passed_as_the_device_saw_it(tmp_path: Path) -> None:
    launch = row_maxima(tmp_path)
    source = KERNEL.source.replace("'in_ptr0': '*fp32'", "'in_ptr0': 'fp32'")
    number = replace(GRID.arguments[0], ctype="float", value=Number(2.5, CType.F32))
    text = script(
        replace(launch, grid=replace(GRID, arguments=(number, *GRID.arguments[1:]))), replace(KERNEL, source=source)
    )
    assert keywords(text, "KERNEL")["in_ptr0"] == "ctypes.c_float(2.5)"


def test_an_empty_grid_is_said_not_to_launch(tmp_path: Path) -> None:
    text = script(replace(row_maxima(tmp_path), grid=None, started=False))
    assert "# grid        empty: the model did not launch it" in text
    made = keywords(text, "TritonKernel")
    assert made["grid"] == "(0, 0, 0)"
    assert keywords(text, "KERNEL")["xnumel"] == "ctypes.c_int32(3)"


def test_the_variant_that_ran_is_the_one_that_is_written(tmp_path: Path) -> None:
    launch = row_maxima(tmp_path)
    text = script(replace(launch, site=replace(launch.site, kernel="multi_kernel_0")))
    assert f"# kernel      {NAME}, the variant that ran" in text


def test_a_kernel_that_overlaps_the_one_before_it_is_launched_as_such(tmp_path: Path) -> None:
    text = script(row_maxima(tmp_path), replace(KERNEL, overlaps=True))
    assert keywords(text, "TritonKernel")["overlaps"] == "True"
    assert "may begin before the kernel before it has ended; a race between the two does not show here" in text
    assert "overlaps" not in script(row_maxima(tmp_path))


def test_scratch_memory_has_its_size(tmp_path: Path) -> None:
    text = script(row_maxima(tmp_path), replace(KERNEL, global_scratch=512, shared_bytes=65536))
    assert f'binary=Binary("kernel.cubin", "{NAME}", shared_bytes=65536, global_scratch=512)' in text


def test_the_readme_has_the_back_ends_that_there_are(tmp_path: Path) -> None:
    launch = row_maxima(tmp_path)
    texts = [str(contents(found)["README"]) for found in (launch, replace(launch, binary=None, no_binary="it is gone"))]
    assert [[b for b in ("jit", "cubin", "interpret") if f"--backend {b:10}  " in text] for text in texts] == [
        ["jit", "cubin", "interpret"],
        ["jit", "interpret"],
    ]


def test_programs_that_wait_for_each_other_are_not_interpreted(tmp_path: Path) -> None:
    source = KERNEL.source.replace(
        "    r0_numel = 16\n", "    triton_helpers.x_grid_barrier(in_ptr0)\n    r0_numel = 16\n"
    )
    helpers = HELPERS + "\n\n@triton.jit\ndef x_grid_barrier(sem):\n    tl.debug_barrier()\n"
    text = str(contents(row_maxima(tmp_path), replace(KERNEL, source=source), helpers)["repro.py"])
    assert set(ast.literal_eval(keywords(text, "TritonKernel")["without"])) == {"interpret"}


def test_without_machine_code_the_back_end_is_left_out(tmp_path: Path) -> None:
    launch = replace(row_maxima(tmp_path), binary=None, no_binary="the package that was run is gone")
    text = script(launch)
    assert "# cubin       not available: the package that was run is gone" in text
    made = keywords(text, "TritonKernel")
    assert "binary" not in made
    assert ast.literal_eval(made["without"]) == {"cubin": "the package that was run is gone"}
    assert "kernel.cubin" not in contents(launch)


INFERRED = replace(
    KERNEL,
    source=KERNEL.source.replace("XBLOCK : tl", "R0_BLOCK : tl.constexpr, XBLOCK : tl").replace(
        "    R0_BLOCK: tl.constexpr = 16\n", ""
    ),
    config=(("XBLOCK", "2"), ("R0_BLOCK", "16"), ("num_stages", "1"), ("num_warps", "2")),
    inferred=(Inferred("XBLOCK", ConfigOrigin.DERIVED), Inferred("R0_BLOCK", ConfigOrigin.CHOSEN)),
    other_configs=tuple(
        (("XBLOCK", "2"), ("R0_BLOCK", block), ("num_stages", stages), ("num_warps", "2"))
        for block, stages in (("32", "1"), ("32", "2"))
    ),
)


def test_a_configuration_that_is_not_recorded_says_where_it_comes_from(tmp_path: Path) -> None:
    text = script(row_maxima(tmp_path), INFERRED)
    said = text.partition("# compiled    ")[2].splitlines()
    assert said[:4] == [
        "XBLOCK=2, R0_BLOCK=16, num_stages=1",
        "#             num_stages: recorded",
        "#             XBLOCK: derived from the launch's grid and warps",
        "#             R0_BLOCK: chosen, not recorded in the package; --backend cubin runs the original",
    ]
    made = keywords(text, "TritonKernel")
    assert ast.literal_eval(made["constants"]) == {"XBLOCK": 2, "R0_BLOCK": 16}
    assert ast.literal_eval(made["others"]) == ({"R0_BLOCK": 32}, {"R0_BLOCK": 32, "num_stages": 2})
    assert "without" not in made


def test_without_machine_code_the_original_is_not_offered(tmp_path: Path) -> None:
    text = script(replace(row_maxima(tmp_path), binary=None, no_binary="it is gone"), INFERRED)
    assert "#             R0_BLOCK: chosen, not recorded in the package\n" in text


USERS = replace(
    INFERRED,
    source=re.sub(
        r"@triton_heuristics\.\w+\(",
        "@triton_heuristics.user_autotune(configs=[{'R0_BLOCK': 16}, {'R0_BLOCK': 32}],",
        INFERRED.source,
    ),
)


def test_a_users_kernel_that_may_compute_something_else_is_not_interpreted(tmp_path: Path) -> None:
    files = contents(row_maxima(tmp_path), USERS)
    text, readme = str(files["repro.py"]), str(files["README"])
    made = keywords(text, "TritonKernel")
    assert ast.literal_eval(made["decisive"]) == ("R0_BLOCK",)
    assert ast.literal_eval(made["without"]) == {
        "interpret": "the package does not record R0_BLOCK; with another value that fits, the kernel may compute "
        "different results"
    }
    assert "#             R0_BLOCK: the kernel may compute different results with another value that fits\n" in text
    assert "--backend interpret" not in readme
    assert "launched only if the instructions are the package's own" in readme


def test_a_choice_that_decides_nothing_is_interpreted(tmp_path: Path) -> None:
    known = replace(USERS, inferred=(Inferred("num_stages", ConfigOrigin.CHOSEN),))
    for kernel in (INFERRED, known):
        made = keywords(script(row_maxima(tmp_path), kernel), "TritonKernel")
        assert made.keys().isdisjoint({"decisive", "without"})


def test_without_a_configuration_only_the_machine_code_can_be_launched(tmp_path: Path) -> None:
    made = keywords(script(row_maxima(tmp_path), replace(KERNEL, config=())), "TritonKernel")
    assert set(ast.literal_eval(made["without"])) == {"jit", "interpret"}
    assert "num_stages" not in made


@pytest.mark.parametrize(
    ("changes", "kernel", "why"),
    [
        ({}, replace(KERNEL, source=""), f"the package does not hold the source of {NAME}"),
        ({"grid": None}, KERNEL, "no record of its grid"),
        (
            {"binary": None, "no_binary": "it is gone"},
            replace(KERNEL, config=()),
            "machine code is not available: it is gone",
        ),
        ({}, replace(KERNEL, name="other"), "starts no kernel on a GPU"),
        (
            {"binary": None, "no_binary": "it is gone"},
            USERS,
            f"does not record with which R0_BLOCK {NAME} was compiled, .* may compute different .*: it is gone",
        ),
        (
            {},
            replace(KERNEL, source=KERNEL.source.replace("'constants': {}", "'constants': dict()")),
            r"does not list what it was compiled for: dict\(\)",
        ),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, changes: dict[str, Any], kernel: Kernel, why: str) -> None:
    launch = replace(row_maxima(tmp_path), **changes)
    with pytest.raises(UsageError, match=why):
        contents(launch, kernel)


def test_a_tma_descriptor_is_refused_by_name(tmp_path: Path) -> None:
    source = KERNEL.source.replace("'in_ptr0': '*fp32'", "'in_ptr0': 'tensordesc<fp32[16, 16]>'")
    launch = row_maxima(tmp_path)
    launch = replace(launch, grid=replace(GRID, arguments=GRID.arguments[1:]))
    with pytest.raises(UsageError, match="its argument in_ptr0 is a TMA descriptor"):
        contents(launch, replace(KERNEL, source=source))


def test_a_helper_that_the_package_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"triton_helpers\.max2"):
        contents(row_maxima(tmp_path), helpers="")

"""What a kernel was compiled for, read from its source and configuration."""

from __future__ import annotations

import ast
import builtins
from dataclasses import replace

import pytest

from aoti_debug.base.errors import UsageError
from aoti_debug.base.machine.compiler import find_torch
from aoti_debug.instrument.builder import compare_kernels
from aoti_debug.instrument.wrapper.launches.kernels import Definition, free_names, helper_definitions
from aoti_debug.package.manifest import Kernel
from aoti_debug.repro.triton_source import specialisation, standalone_source, top_level_names
from tests.repro.inductor_sources import IMPORTS, helpers

SOURCE = """@triton_heuristics.pointwise(
    triton_meta={
        'signature': {'x': '*fp32', 'n': 'i32', 'none': 'constexpr', 'KIND': 'constexpr', 'BLOCK': 'constexpr'},
        'device': DeviceProperties(type='cuda', index=0), 'constants': {'none': None, 'KIND': triton.language.float32},
        'enable_fp_fusion': False, 'launch_pdl': False, 'disable_ftz': True,
        'configs': [{(0,): [['tt.divisibility', 16]], (1,): []}]},
    inductor_meta={'assert_indirect_indexing': False, 'autotune_hints': set()},
)
@triton.jit
def k(x, n, none, KIND: tl.constexpr, BLOCK: tl.constexpr):
    pass
"""
KERNEL = Kernel(
    "k", "triton", SOURCE, "", config=(("BLOCK", "64"), ("waves_per_eu", "0"), ("num_warps", "4"), ("num_stages", "3"))
)


def test_all_of_it() -> None:
    found = specialisation(KERNEL)
    assert list(found.signature.items()) == [
        ("x", "*fp32"),
        ("n", "i32"),
        ("none", "constexpr"),
        ("KIND", "constexpr"),
        ("BLOCK", "constexpr"),
    ]
    assert found.constants == {"none": "None", "KIND": "triton.language.float32", "BLOCK": "64"}
    assert found.divisible == ("x",)
    assert found.num_stages == 3
    assert found.options == {
        "debug": "False",
        "sanitize_overflow": "False",
        "enable_fp_fusion": "False",
        "launch_pdl": "False",
        "enable_reflect_ftz": "False",
    }


def test_defaults_are_written_down() -> None:
    source = SOURCE.replace("'enable_fp_fusion': False, 'launch_pdl': False, 'disable_ftz': True,", "")
    source = source.replace("'assert_indirect_indexing': False, ", "")
    options = specialisation(replace(KERNEL, source=source)).options
    assert options == {"debug": "True", "sanitize_overflow": "False", "enable_fp_fusion": "True"}


def test_the_options_of_a_users_launch() -> None:
    source = SOURCE.replace("'launch_pdl': False,", "'launch_pdl': False, 'backend_options': {'launch_pdl': True},")
    options = specialisation(replace(KERNEL, source=source)).options
    assert options["launch_pdl"] == "True"


def test_without_a_configuration() -> None:
    found = specialisation(replace(KERNEL, config=()))
    assert found.num_stages is None
    assert "BLOCK" not in found.constants


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(UsageError, match=r"assumptions that are not known: .*pointer_range"):
        specialisation(replace(KERNEL, source=SOURCE.replace("tt.divisibility", "tt.pointer_range")))
    with pytest.raises(UsageError, match="does not say for which types"):
        specialisation(replace(KERNEL, source="@triton.jit\ndef k(x):\n    pass\n"))


HEAD = (
    IMPORTS
    + """@triton_heuristics.pointwise(
    size_hints={'x': 256},
    filename=__file__,
    triton_meta={'signature': {}},
)
"""
)
HELPERS = (
    helpers("promote_to_tensor", "is_floating", "maximum")
    + """
@triton.jit
def exp(x, use_fast_math: tl.constexpr):
    return math.exp(x) if use_fast_math else libdevice.exp(x)

@triton_builtin
def if_mask(mask, val):
    return val
"""
)


def kernel(body: str, head: str = HEAD) -> str:
    return f"{head}@triton.jit\ndef k(x, XBLOCK : tl.constexpr):\n{body}"


def test_decorators_and_torch_are_gone_and_the_body_is_as_it_was() -> None:
    source = standalone_source(kernel("    # kept\n    tl.store(x,   1)  # as it is\n"), "")
    assert (
        source.text == "@triton.jit\ndef k(x, XBLOCK : tl.constexpr):\n    # kept\n    tl.store(x,   1)  # as it is\n"
    )
    assert source.function == "k"
    assert source.imports == ("import triton", "import triton.language as tl")
    assert source.helpers == ()


def test_helpers_are_inlined_with_all_that_they_call() -> None:
    source = standalone_source(kernel("    tl.store(x, triton_helpers.maximum(1, 2))\n"), HELPERS)
    assert source.helpers == ("promote_to_tensor", "is_floating", "maximum")
    assert "tl.store(x, maximum(1, 2))" in source.text
    assert "triton_helpers" not in source.text
    assert [n.name for n in ast.parse(source.text).body if isinstance(n, ast.FunctionDef)] == [*source.helpers, "k"]


def test_a_function_that_is_passed_is_inlined_too() -> None:
    source = standalone_source(kernel("    tl.store(x, tl.reduce(x, 0, triton_helpers.maximum))\n"), HELPERS)
    assert "tl.reduce(x, 0, maximum)" in source.text


def test_libdevice_and_math_come_from_triton() -> None:
    source = standalone_source(kernel("    triton_helpers.exp(x, True)\n"), HELPERS)
    assert "from triton.language.extra import libdevice" in source.imports
    assert "from triton.language import math as tl_math" in source.imports
    assert "return tl_math.exp(x) if use_fast_math else libdevice.exp(x)" in source.text


def test_a_helper_of_a_taken_name_gets_another() -> None:
    source = standalone_source(kernel("    maximum = 1\n    é = triton_helpers.maximum(maximum, 2)\n"), HELPERS)
    assert "é = helper_maximum(maximum, 2)" in source.text
    assert "def helper_maximum(a, b):" in source.text


def test_functions_of_compile_time_are_not_inlined() -> None:
    source = standalone_source(kernel("    triton_helpers.if_mask(None, 1)\n"), HELPERS)
    assert source.compile_time == ("if_mask",)
    assert "def if_mask" not in source.text
    assert "    if_mask(None, 1)\n" in source.text


def test_what_a_users_kernel_needs_stays() -> None:
    head = HEAD.replace(
        "@triton_heuristics.pointwise(",
        "@triton.jit\ndef helper(x):\n    return x * FACTOR\nFACTOR = tl.constexpr(3)\nOFFSET: int = 2\n"
        "from triton.language.core import dtype as dtype\n\n@triton_heuristics.user_autotune(",
    )
    source = standalone_source(kernel("    tl.store(x, helper(x) + OFFSET)\n", head), "")
    assert source.function == "k"
    assert "@triton.jit\ndef helper(x):\n    return x * FACTOR\n" in source.text
    assert "FACTOR = tl.constexpr(3)\n" in source.text
    assert "OFFSET: int = 2\n" in source.text
    assert "from triton.language.core import dtype as dtype" in source.imports


def test_a_kernel_named_as_something_of_the_script_is_renamed() -> None:
    source = standalone_source(kernel("    pass\n").replace("def k(", "def launch("), "")
    assert source.function == "launch_kernel"
    assert "def launch_kernel(x, XBLOCK" in source.text


def test_what_is_missing_is_named() -> None:
    with pytest.raises(UsageError, match=r"triton_helpers\.minimum, whose source is not in the package"):
        standalone_source(kernel("    triton_helpers.minimum(1, 2)\n"), HELPERS)
    with pytest.raises(UsageError, match="not valid Python"):
        standalone_source("def", "")
    with pytest.raises(UsageError, match="no function"):
        standalone_source("x = 1\n", "")


def may_be_called(found: Definition) -> bool:
    """True for what Triton lets a kernel use: functions with a decorator of it or of Inductor, and constexprs."""
    match ast.parse(found.text).body[0]:
        case ast.FunctionDef(decorator_list=decorators):
            return any(ast.unparse(decorator).startswith("triton") for decorator in decorators)
        case ast.AnnAssign(annotation=annotation):
            return ast.unparse(annotation) == "tl.constexpr"
    return False


def test_every_function_of_the_installed_torch_can_be_inlined() -> None:
    """Whatever a kernel may call is defined, imported or built in."""
    text = (find_torch().directory / compare_kernels.HELPERS).read_text()
    names = [name for name, found in helper_definitions(text).items() if may_be_called(found)]
    assert len(names) > 30
    unresolved = {}
    for name in names:
        source = standalone_source(kernel(f"    triton_helpers.{name}(x)\n"), text)
        tree = ast.parse("\n".join([*source.imports, source.text]))
        known = {*dir(builtins), *source.compile_time}
        for node in tree.body:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                known |= {alias.asname or alias.name for alias in node.names}
        known |= {n for node in tree.body for n in top_level_names(node)}
        missing = {n for node in tree.body for n in free_names(node)} - known
        if missing:
            unresolved[name] = missing
    assert unresolved == {}

"""What a kernel was compiled for, read from its source and configuration."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aoti_debug.base.errors import UsageError
from aoti_debug.package.manifest import Kernel
from aoti_debug.repro.triton_meta import specialisation

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

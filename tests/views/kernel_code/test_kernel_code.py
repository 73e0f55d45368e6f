from __future__ import annotations

from aoti_debug.views.kernel_code.kernel_code import KernelCode, document, listing
from aoti_debug.views.kernel_code.line_origins import line_origins
from tests.views.kernel_code import layer_norm_kernel as triton

CODE = KernelCode(triton.KERNEL, line_origins(triton.KERNEL, triton.SITE, triton.MANIFEST, triton.REFERENCE))


def test_model_lines_beside_the_source() -> None:
    lines = listing(CODE, triton.PROVENANCE, 100)
    assert lines[:4] == [
        f"{triton.NAME} (triton, sha256 abababababab)",
        "  model.py:12  add",
        "  model.py:13  norm  mean, sub, add_1, rsqrt, mul",
        "  beside a line: the operator that it computes or a part of, < what it reads, > what it writes",
    ]
    assert lines[4:] == [
        " 1                          │ @triton.jit",
        f" 2                          │ def {triton.NAME}(in_ptr0, in_ptr1, out_ptr2, xnumel, r0_numel, "
        "XBLOCK : tl.constexpr):",
        " 3                          │     xoffset = tl.program_id(0) * XBLOCK",
        " 4               < arg0_1   │     tmp0 = tl.load(in_ptr0 + (r0_1 + 64*x0), None)",
        " 5               < arg1_1   │     tmp1 = tl.load(in_ptr1 + (r0_1 + 64*x0), None).to(tl.float32)",
        " 6  model.py:12  add        │     tmp2 = tmp0 + tmp1",
        " 7  model.py:12  add        │     tmp3 = tl.broadcast_to(tmp2, [XBLOCK, R0_BLOCK])",
        " 8  model.py:12  add        │     tmp5 = tl.where(xmask, tmp3, 0)",
        " 9  model.py:13  mean       │     tmp6 = tl.sum(tmp5, 1)[:, None].to(tl.float32)",
        "10                          │     tmp7 = tl.full([XBLOCK, 1], 64, tl.int32)",
        "11  model.py:13  mean       │     tmp9 = (tmp6 / tmp7)",
        "12  model.py:13  sub        │     tmp10 = tmp2 - tmp9",
        "13                          │     tmp11 = 1e-05",
        "14  model.py:13  add_1      │     tmp12 = tmp9 + tmp11",
        "15  model.py:13  rsqrt      │     tmp13 = libdevice.rsqrt(tmp12)",
        "16  model.py:13  mul        │     tmp14 = tmp10 * tmp13",
        "17  model.py:13  mul > buf0 │     tl.store(out_ptr2 + (r0_1 + 64*x0), tmp14, None)",
    ]


def test_what_is_known_where_no_line_is() -> None:
    lines = listing(KernelCode(triton.KERNEL, {}, "the package is gone"), triton.PROVENANCE, 200)
    assert lines[1:3] == [
        "  which line comes from which model line is not known: the package is gone; all of it comes from model.py:13, "
        "model.py:12",
        " 1     │ @triton.jit",
    ]


def test_the_same_for_programs() -> None:
    described = document(CODE)
    assert described["source"] == triton.SOURCE
    assert described["unknown"] is None
    assert described["lines"][-1] == {
        "line": 17,
        "node": "mul",
        "module": "norm",
        "model_line": {"file": triton.PLACE, "line": 13, "function": "forward", "text": "return self.norm(h)"},
        "reads": [],
        "writes": "buf0",
    }

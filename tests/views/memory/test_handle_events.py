from __future__ import annotations

import pytest

from aoti_debug.base.errors import ArtifactError
from aoti_debug.package.manifest import Allocation
from aoti_debug.views.memory.lifetimes import HandleEvent, HandleUse, handle_events

WRAPPER = """\
void AOTInductorModel::run_impl(
    AtenTensorHandle* input_handles
) {
    auto arg0_1 = std::move(inputs[0]);
    // auto not = std::move(code);
    auto buf2 = wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf0, 4, a, b, 0L)); buf0.reset();  // reuse
    auto buf4 = std::move(buf2);  // reuse
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch__alloc_from_pool(pool0, 64L, f, 2, a, b, &tmp_tensor_handle_2));
    while (1) {
        AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_assign_tensors_out(buf7, &body_arg0_1_handle));
        buf7.reset();
        buf7 = std::move(body_buf3);
    }
}
"""


def event(line: int, action: HandleUse, name: str, source: str = "") -> HandleEvent:
    return HandleEvent("run_impl", line, action, name, source)


def test_statements_that_make_rename_and_drop_handles() -> None:
    assert handle_events(WRAPPER, [Allocation("buf3", 8, False)]) == (
        event(6, HandleUse.VIEW, "buf2", "buf0"),
        event(6, HandleUse.DROP, "buf0"),
        event(7, HandleUse.MOVE, "buf4", "buf2"),
        event(8, HandleUse.VIEW, "buf3", "pool0"),
        event(9, HandleUse.LOOP, ""),
        event(10, HandleUse.VIEW, "body_arg0_1", "buf7"),
        event(11, HandleUse.DROP, "buf7"),
        event(12, HandleUse.MOVE, "buf7", "body_buf3"),
    )


def test_a_text_that_is_no_wrapper() -> None:
    with pytest.raises(ArtifactError, match="no AOTInductorModel::run_impl"):
        handle_events("int main() {}", [])

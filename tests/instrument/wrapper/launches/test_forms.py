from __future__ import annotations

import re
from pathlib import Path

import pytest

from aoti_debug.instrument.builder.instrument import instrument
from aoti_debug.instrument.wrapper import launches
from aoti_debug.instrument.wrapper.analysis import analyse
from aoti_debug.instrument.wrapper.cpp_syntax.calls import CallExpression
from aoti_debug.instrument.wrapper.launches import sites, slots
from aoti_debug.instrument.wrapper.launches.slots import FunctionContext, LaunchForm, ParsedLaunch
from aoti_debug.package.manifest import Form, Kind, Role
from tests import schema
from tests.instrument.wrapper.listing import listing

MODULE = """
import re
from aoti_debug.instrument.wrapper.launches.slots import LaunchForm

FORMS = (LaunchForm(re.compile("enqueue_made_up"), lambda call, context: None),)
"""
WRAPPER = """
namespace torch::aot_inductor {
void AOTInductorModel::run_impl(AtenTensorHandle* input_handles, AtenTensorHandle* output_handles) {
    auto inputs = steal_from_raw_handles_to_raii_handles(input_handles, 1);
    auto arg0_1 = std::move(inputs[0]);
    enqueue_made_up("scale", arg0_1, buf0, 3L);
}
} // namespace torch::aot_inductor
"""


def read(call: CallExpression, context: FunctionContext) -> ParsedLaunch | None:
    """`enqueue_made_up("scale", arg0_1, buf0, 3L);`"""
    if call.callee != "enqueue_made_up":
        return None
    name, source, result, factor = (argument.text for argument in call.arguments)
    found = (
        slots.tensor(source, value=1, form=Form.TENSOR, role=Role.IN, param="source"),
        slots.tensor(result, value=2, form=Form.TENSOR, role=Role.OUT, param="result"),
        slots.number(factor, value=3, form=Form.SCALAR, ctype="int64_t", param="factor"),
    )
    return ParsedLaunch(Kind.CPP, name.strip('"'), found)


MADE_UP = LaunchForm(re.compile("enqueue_made_up"), read)


def test_a_new_form_is_read_listed_and_instrumented(monkeypatch: pytest.MonkeyPatch) -> None:
    assert analyse(WRAPPER).sites == ()
    monkeypatch.setattr(sites, "FORMS", (*sites.FORMS, MADE_UP))
    found = analyse(WRAPPER)
    assert listing(found.sites).splitlines() == [
        "0 scale [cpp]",
        "  run_impl:6",
        "  1 arg0_1 tensor in (AtenTensorHandle source) = arg0_1",
        "  2 buf0 tensor out (AtenTensorHandle result) = buf0",
        "  3 factor scalar (int64_t factor) = 3L",
        "  none",
    ]
    text = instrument(WRAPPER, found)
    assert 'AOTI_DEBUG_LAUNCH(0, enqueue_made_up, "scale", arg0_1, buf0, 3L);' in text


def test_a_call_that_no_form_can_read_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    unread = LaunchForm(MADE_UP.callees, lambda call, context: None)
    monkeypatch.setattr(sites, "FORMS", (*sites.FORMS, unread))
    (call,) = analyse(WRAPPER).unrecognised
    assert (call.line, call.text) == (6, 'enqueue_made_up("scale", arg0_1, buf0, 3L);')


def test_a_module_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "forms_made_up.py").write_text(MODULE)
    monkeypatch.setattr(launches, "__path__", [*launches.__path__, str(tmp_path)])
    callees = [form.callees.pattern for form in sites.discovered()]
    assert "enqueue_made_up" in callees
    assert len(callees) == len(sites.FORMS) + 1


def test_the_schema_lists_every_kind_of_launch() -> None:
    assert set(schema.SCHEMA["$defs"]["launch"]["properties"]["kind"]["enum"]) == set(Kind)

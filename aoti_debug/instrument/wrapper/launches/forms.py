"""The launch forms of all modules `forms_*` beside this one: each lists its own as `FORMS`."""

from __future__ import annotations

import pkgutil
import sys
from importlib import import_module

from aoti_debug.instrument.wrapper.cpp_syntax.calls import CallExpression
from aoti_debug.instrument.wrapper.launches.launch_form import FunctionContext, LaunchForm, Reading

_PREFIX = "forms_"


def discovered() -> tuple[LaunchForm, ...]:
    """The forms of all modules, in the order of the modules' names."""
    names = sorted(
        module.name
        for module in pkgutil.iter_modules(sys.modules[str(__package__)].__path__)
        if module.name.startswith(_PREFIX)
    )
    return tuple(form for name in names for form in import_module(f"{__package__}.{name}").FORMS)


FORMS = discovered()


def is_callee(name: str) -> bool:
    """True if a function of this name launches something."""
    return any(form.callees.fullmatch(name) for form in FORMS)


def read(call: CallExpression, context: FunctionContext) -> Reading | None:
    """Reads a call as the first form that matches it; None if no form does."""
    return next((reading for form in FORMS if (reading := form.read(call, context)) is not None), None)

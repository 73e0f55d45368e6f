"""Every launch form that there is: those that the modules `forms_*` beside this one list as `FORMS`."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from aoti_debug import wrapper
from aoti_debug.manifest import Kind
from aoti_debug.wrapper.calls import CallExpression
from aoti_debug.wrapper.context import FunctionContext, Reading
from aoti_debug.wrapper.launch_form import LaunchForm, LaunchTraits

_PREFIX = "forms_"


def discovered() -> tuple[LaunchForm, ...]:
    """The forms of all modules, in the order of the modules' names."""
    names = sorted(module.name for module in pkgutil.iter_modules(wrapper.__path__) if module.name.startswith(_PREFIX))
    return tuple(form for name in names for form in import_module(f"{wrapper.__name__}.{name}").FORMS)


FORMS = discovered()


def is_callee(name: str) -> bool:
    """Whether a function of this name launches something."""
    return any(form.callees.fullmatch(name) for form in FORMS)


def read(call: CallExpression, context: FunctionContext) -> Reading | None:
    """What a call launches, as the first form reads it that can; None where none does."""
    return next((reading for form in FORMS if (reading := form.read(call, context)) is not None), None)


@cache
def traits_of(kind: Kind) -> LaunchTraits:
    return next(form.kinds[kind] for form in FORMS if kind in form.kinds)

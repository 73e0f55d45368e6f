"""Finds every launch of a generated wrapper and flattens its arguments."""

from __future__ import annotations

import pkgutil
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module

from aoti_debug.base.frozen import dataclass
from aoti_debug.instrument.wrapper.cpp_syntax import calls
from aoti_debug.instrument.wrapper.cpp_syntax.calls import CallExpression
from aoti_debug.instrument.wrapper.cpp_syntax.expressions import UnreadError
from aoti_debug.instrument.wrapper.cpp_syntax.functions import (
    STREAM,
    Body,
    OtherStream,
    Variables,
    entry_points,
    number_of,
    other_streams,
    variables,
)
from aoti_debug.instrument.wrapper.launches import slots
from aoti_debug.instrument.wrapper.launches.c_functions import Prototype
from aoti_debug.instrument.wrapper.launches.slots import FunctionContext, LaunchForm, ParsedLaunch
from aoti_debug.package.launch_traits import traits_of
from aoti_debug.package.manifest import Arg, Certainty, Form, Kind, Provenance, Role, Site, Unrecognised

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


def read(call: CallExpression, context: FunctionContext) -> ParsedLaunch | None:
    """Reads a call as the first form that matches it; None if no form does.

    Raises:
        UnreadError: it has a form, and something of it is not read.
    """
    if call.within:
        raise UnreadError(f"a launch within {call.within}")
    return next((parsed for form in FORMS if (parsed := form.read(call, context)) is not None), None)


_DEVICE_WORK = re.compile(r"\b(?:stream\d*|kernels)\b|\bdata_ptr\(\)|&\w+_handle\b")
_UNREAD = re.compile(r"op\.callBoxed|runTritonKernel\w*|launchKernel")  # launches that no form reads


@dataclass(frozen=True)
class SiteCall:
    """A site with the call that it was read from."""

    site: Site
    call: CallExpression


@dataclass(frozen=True)
class Sites:
    """The launches of a wrapper, and calls that look like launches but match no form.

    Attributes:
        scans: what they were read from, by function.
    """

    recognised: tuple[SiteCall, ...]
    unrecognised: tuple[Unrecognised, ...]
    scans: Mapping[str, calls.Scan]


def is_launch_name(callee: str, externs: Mapping[str, Prototype]) -> bool:
    """True if a call of this name in a function of the model looks like a launch."""
    return callee in externs or any(form.callees.fullmatch(callee) for form in FORMS) or bool(_UNREAD.fullmatch(callee))


def find_sites(text: str, masked: str, context: FunctionContext) -> Sites:
    """Reads every launch of the wrapper; the sites have no provenance yet.

    Args:
        masked: lexer.mask(text).
        context: its `variables` are replaced for each function.

    Raises:
        ArtifactError: the wrapper has a form that cannot be instrumented.
    """
    recognised: list[SiteCall] = []
    unrecognised: list[Unrecognised] = []
    scans: dict[str, calls.Scan] = {}
    lines = calls.Lines(text)
    for body in entry_points(masked):
        scan = calls.scan(text, body, lines, lambda callee: is_launch_name(callee, context.externs))
        scans[body.name] = scan
        local = replace(context, variables=variables(masked, body))
        bases = local.variables.bases
        written = set(local.variables.initialised)
        streams = other_streams(masked, body)
        others = {call for call in scan.others if any(_is_device_work(a.text, local) for a in call.arguments)}
        for call in sorted({*scan.calls, *others}, key=lambda call: call.head.start):
            try:
                if call in others:
                    raise UnreadError(f"function {call.callee}")
                parsed, reason = read(call, local), ""
                stream = 0 if parsed is None else _stream(call, parsed.kind, streams, masked, body)
            except UnreadError as error:
                parsed, reason = None, str(error)
            if parsed is None:
                unrecognised.append(Unrecognised(body.name, call.line, _line_of(text, call), reason))
                mentioned = {name for a in call.arguments for name in re.findall(r"[A-Za-z_]\w*", a.text)}
                written |= {slots.resolve_alias(name, bases) for name in mentioned}
                continue
            args = _partial_outputs(slots.to_arguments(parsed.slots, bases), parsed.kind, written)
            args = _unread(_fresh(args, call, local.variables.first_uses), call, local.variables)
            recognised.append(SiteCall(_site(len(recognised), call, parsed, args, stream), call))
            written |= {arg.base for arg in args if arg.base and arg.role in (Role.OUT, Role.INOUT, Role.UNKNOWN)}
    return Sites(tuple(recognised), tuple(unrecognised), scans)


def _stream(call: CallExpression, kind: Kind, streams: Sequence[OtherStream], masked: str, body: Body) -> int:
    """The number of the stream that a launch runs on: the one that it is given, else that of the text around it.

    Raises:
        UnreadError: it is not known.
    """
    other = next((other for other in streams if other.start < call.head.start < other.end), None)
    if other is not None and not other.is_read:
        raise UnreadError(f"stream {other.text}")
    given = [argument.text for argument in call.arguments if re.fullmatch(STREAM, argument.text)]
    if kind in (Kind.TRITON, Kind.CUTLASS) and given:
        number, text = number_of(given[0], masked, body), given[0]
    elif kind is Kind.CPP or other is None:
        return 0
    else:
        number, text = other.number, other.text
    if number is None:
        raise UnreadError(f"stream {text}")
    return number


def _is_device_work(argument: str, context: FunctionContext) -> bool:
    """True if a function that gets this argument may work on tensors or on the device."""
    return bool(_DEVICE_WORK.search(argument)) or any(
        name in context.variables.tensors for name in re.findall(r"\w+", argument)
    )


def _site(number: int, call: CallExpression, parsed: ParsedLaunch, args: tuple[Arg, ...], stream: int) -> Site:
    return Site(
        id=number,
        kernel=parsed.kernel,
        kind=parsed.kind,
        function=call.function,
        callee=call.callee,
        line=call.line,
        args=args,
        provenance=Provenance(Certainty.NONE),
        op=parsed.op,
        subgraph=call.subgraph,
        loops=call.loops,
        launches=parsed.launches,
        operands=parsed.operands,
        results=parsed.results,
        stream=stream,
    )


def _partial_outputs(args: tuple[Arg, ...], kind: Kind, written: set[str]) -> tuple[Arg, ...]:
    """Makes outputs that have a content already in-out: a generated kernel may write only a part of them."""
    if not traits_of(kind).keeps_old_elements:
        return args
    return tuple(replace(arg, role=Role.INOUT) if arg.role is Role.OUT and arg.base in written else arg for arg in args)


def _fresh(args: tuple[Arg, ...], call: CallExpression, first_uses: Mapping[str, int]) -> tuple[Arg, ...]:
    """Marks the in-out arguments whose memory nothing has written: the call is the first to name them.

    In a loop, the call of the iteration before may have written it.
    """
    if call.loops or not call.arguments:
        return args
    begin, end = call.head.start, call.arguments[-1].span.end
    return tuple(
        replace(arg, fresh=True)
        if arg.role in (Role.INOUT, Role.UNKNOWN) and begin <= first_uses.get(arg.base, -1) < end
        else arg
        for arg in args
    )


def _unread(args: tuple[Arg, ...], call: CallExpression, known: Variables) -> tuple[Arg, ...]:
    """Marks the results that an operator allocates and that are not named after it: attention has such ones."""
    if call.loops or not call.arguments:
        return args
    end = call.arguments[-1].span.end
    return tuple(
        replace(arg, unread=True)
        if arg.role is Role.OUT
        and (arg.form is Form.OUTPUT_SLOT or arg.name in known.uninitialised)
        and known.last_uses.get(arg.name, end) < end
        else arg
        for arg in args
    )


def _line_of(text: str, call: CallExpression) -> str:
    start = text.rfind("\n", 0, call.head.start) + 1
    end = text.find("\n", call.head.start)
    return text[start : end if end >= 0 else len(text)].strip()

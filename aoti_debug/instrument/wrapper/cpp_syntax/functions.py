"""Finds the functions of a generated wrapper, the declarations of their variables, and their streams.

Of a variable it reads C type, aliases, and whether its tensor is initialised. Streams have numbers, as the wrapper has
them: 0 is the stream of the call, 1 and more are side streams (`stream1`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from enum import Enum

from aoti_debug.base.errors import ArtifactError
from aoti_debug.base.frozen import dataclass
from aoti_debug.instrument.wrapper.cpp_syntax import lexer

_ENTRY_HEAD = re.compile(r"^void AOTInductorModel\w*::(_const_run_impl|run_impl)\s*\(", re.MULTILINE)
_CAPTURED = re.compile(r"\bAOTICUDAGraphManager\b|\baoti_torch_cuda_graph_\w+")  # pytorch pull request 196779
_ARRAY_REF = re.compile(r"\b(run_impl_minimal_arrayref_interface|get_data_ptr_wrapper|ArrayRefTensor)\b")
_TRITON_HEAD = re.compile(r"^static [^;{}()]*?(?:\(\([^()]*\)\))?[^;{}()]*?\bvoid (call_\w+)\s*\(", re.MULTILINE)
_CUDA_INCLUDE = re.compile(r"^#include <torch/csrc/inductor/aoti_include/(\w+)\.h>", re.MULTILINE)
_TYPED = re.compile(
    r"\b(u?int(?:8|16|32|64)_t|int|float|double|bool|auto|const char\*|(?:at|c10)::\w+(?:<\w+>)?)\s+(\w+)\s*(?:=|;)"
)
_VIEW = re.compile(
    r"\bauto (\w+) = wrap_with_raii_handle_if_needed\(reinterpret_tensor_wrapper\((\w+),[^;]*;"
    r"(?P<reset> *\w+\.reset\(\);)?"
)
_ALIAS = re.compile(
    r"\b(aoti_torch_assign_tensors_out|aoti_torch_new_tensor_handle|aoti_torch_\w+_view_dtype)"
    r"\((?:wrap_with_raii_handle_if_needed\(reinterpret_tensor_wrapper\()?(\w+),[^;]*&(\w+)\)\)?;"
)
_ASSIGN = "aoti_torch_assign_tensors_out"
_CONSTANT = re.compile(r"\bauto& (\w+) = constants_->at\(")
_INPUT = re.compile(r"\bauto (\w+) = std::move\(inputs\[")
_TENSOR = re.compile(
    r"\bRAIIAtenTensorHandle (\w+)\b|\bauto (\w+) = (?:std::move|wrap_with_raii_handle|RAIIAtenTensorH)"
)
_REASSIGNED = re.compile(r"^\s*(\w+) = std::move\(", re.MULTILINE)
_EMPTY = re.compile(r"\baoti_torch_empty_strided(?:_pinned)?\([^;]*&(\w+)_handle\)")
_MOVED = re.compile(r"\bauto (\w+) = std::move\((\w+)\);")
_WORD = re.compile(r"\b[A-Za-z_]\w*")
_NO_USE = re.compile(  # statements that name a tensor and do not use its values
    r"\bRAIIAtenTensorHandle (\w+)\(\1_handle\)|\b\w+\.reset\(\)|\baoti_torch_delete_tensor_object\(\w+\)"
    r"|\bassert_(?:size_stride|alignment)\(\w+(?=,)"
)
_UNINITIALISED = re.compile(r"\baoti_torch_new_uninitialized_tensor\(&(\w+)_handle\)")
_SIDE = r"_aoti_aux_stream_cache\.get\(\s*\d+\s*,\s*this->device_idx_\s*,\s*stream\s*\)"
_EVENT = r"_aoti_event_cache\.get\(\s*(?P<event>\d+)\s*,\s*this->device_idx_\s*\)"
STREAM = rf"(?:stream\d*|{_SIDE})"  # an expression of a stream
_NUMBER = re.compile(r"stream(?P<name>\d*)|_aoti_aux_stream_cache\.get\(\s*(?P<slot>\d+)\b.*", re.DOTALL)
_DECLARED = re.compile(r"\b\w+Stream_t stream(?P<name>\d+) = _aoti_aux_stream_cache\.get\(\s*(?P<slot>\d+)[^;]*;")

_STREAM_GUARD = re.compile(r"\bAOTI\w+StreamGuard stream_guard\(stream, this->device_idx_\);")
_STREAM_CHANGE = re.compile(r"\b\w*[sS]tream_?[gG]uard\w*|\bstream\d*\s*=(?!=)")
_SIDE_GUARD = re.compile(r"\bstd::unique_ptr<AOTI\w+StreamGuard> _aoti_current_stream_guard;")
_ENTER_SIDE = re.compile(
    r"_aoti_current_stream_guard = std::make_unique<AOTI\w+StreamGuard>\((?P<stream>[^;]*), this->device_idx_\);"
)
_LEAVE_SIDE = re.compile(r"_aoti_current_stream_guard\.reset\(\);")


class StreamAction(Enum):
    """The effect of a statement on the order of streams."""

    RECORD = "an event is recorded on a stream"
    WAIT = "a stream waits for an event"
    SYNCHRONIZE = "the host waits for an event"
    SYNCHRONIZE_ALL = "the host waits for the device"
    UNREAD = "it is not read"


# What orders streams: whole statements, so that nothing else of them goes unread.
_CHECKED = r"AOTI_RUNTIME_CUDA_CHECK\(\s*{call}\s*\)\s*;"
_STEPS = {
    StreamAction.RECORD: rf"cudaEventRecord\(\s*{_EVENT}\s*,\s*(?P<stream>{STREAM})\s*\)",
    StreamAction.WAIT: rf"cudaStreamWaitEvent\(\s*(?P<stream>{STREAM})\s*,\s*{_EVENT}\s*,\s*0\s*\)",
    StreamAction.SYNCHRONIZE: rf"cudaEventSynchronize\(\s*{_EVENT}\s*\)",
}
_KNOWN = tuple((action, re.compile(_CHECKED.format(call=call))) for action, call in _STEPS.items())
_DEVICE_WIDE = re.compile(r"\w*CHECK\w*\(\s*(?:cuCtxSynchronize|cudaDeviceSynchronize)\(\s*\)\s*\)\s*;")
# Names of functions that order streams, or of what they are given.
_ANY_STEP = re.compile(
    r"\b(?:cuda|hip)(?:Event|Stream|Device|Graph|Launch|Memcpy|Memset)[A-Z]\w*"
    r"|\bcu(?:Event|Stream|Ctx)[A-Z]\w*|\b_aoti_event_cache\b|\baoti_torch_\w*(?:synchronize|record_stream)\w*"
)
_CONDITIONAL = re.compile(r"(?:\)|\]|\b(?:else|do|try|mutable|noexcept))\s*\Z")


@dataclass(frozen=True)
class Body:
    """A function definition: offsets into the wrapper's text.

    Attributes:
        name: "run_impl", "_const_run_impl", "call_triton_poi_fused_0".
        parameters: of the "(" that opens the parameter list.
        opening: of the "{" that opens the body.
        closing: of the "}" that closes it.
    """

    name: str
    parameters: int
    opening: int
    closing: int


def entry_points(masked: str) -> tuple[Body, ...]:
    """Finds the functions of the model that launch kernels, in the order of the text.

    Args:
        masked: the wrapper without comments and strings (lexer.mask).

    Raises:
        ArtifactError: there is no run_impl, it uses the minimal ArrayRef interface, or it is captured in CUDA graphs.
    """
    if match := _CAPTURED.search(masked):
        raise ArtifactError(
            f"the model captures itself in CUDA graphs ({match.group()}), which cannot be instrumented",
            hint="lower it with aot_inductor.cudagraph_mode=off",
        )
    if match := _ARRAY_REF.search(masked):
        raise ArtifactError(
            f"the model was lowered for ArrayRef tensors ({match.group(1)}), which cannot be instrumented",
            hint="lower it without aot_inductor.use_minimal_arrayref_interface and aot_inductor.allow_stack_allocation",
        )
    bodies = tuple(_bodies(_ENTRY_HEAD, masked))
    if not any(body.name == "run_impl" for body in bodies):
        raise ArtifactError(
            "the generated C++ has no AOTInductorModel::run_impl",
            hint="this torch generates a wrapper of another form; use torch 2.11 or newer",
        )
    return bodies


def triton_functions(masked: str) -> tuple[Body, ...]:
    """Finds the `call_*` functions that load and launch a Triton kernel."""
    return tuple(_bodies(_TRITON_HEAD, masked))


def device_of(text: str) -> str:
    """Returns the device type that the wrapper was generated for: "cpu", "cuda", and so on."""
    match = _CUDA_INCLUDE.search(text)
    return match.group(1) if match else "cpu"


def _bodies(head: re.Pattern[str], masked: str) -> Iterator[Body]:
    for match in head.finditer(masked):
        parameters = match.end() - 1
        opening = lexer.closing_offset(masked, parameters) + 1
        while opening < len(masked) and masked[opening].isspace():
            opening += 1
        if masked[opening : opening + 1] == "{":
            yield Body(match.group(1), parameters, opening, lexer.closing_offset(masked, opening))


@dataclass(frozen=True)
class Variables:
    """The variables of one function.

    Attributes:
        types: C type of numbers: {"var_0": "int32_t"}.
        bases: the variable that a view or second handle refers to: {"buf19": "buf22"}. A loop-carried handle has none.
        initialised: tensors with a content before any launch: inputs, weights, a subgraph's inputs and outputs.
        uninitialised: handles that a proxy call fills.
        tensors: all variables that are known to be tensors.
        first_uses: of tensors that are allocated and not filled: where each is first named after its definition, an
            offset into the wrapper's text.
        last_uses: where the values of each tensor may last be used, likewise.
    """

    types: dict[str, str]
    bases: dict[str, str]
    initialised: frozenset[str]
    uninitialised: frozenset[str]
    tensors: frozenset[str]
    first_uses: Mapping[str, int] = field(default_factory=dict)
    last_uses: Mapping[str, int] = field(default_factory=dict)


def variables(masked: str, body: Body) -> Variables:
    """Reads the declarations in a function of the masked wrapper text."""
    text = masked[body.opening : body.closing]
    views = {m.group(1): m.group(2) for m in _VIEW.finditer(text) if not m["reset"]}
    aliases = {m.group(3).removesuffix("_handle"): m.group(2) for m in _ALIAS.finditer(text)}
    reassigned = {m.group(1) for m in _REASSIGNED.finditer(text)}
    initialised = {m.group(1) for pattern in (_CONSTANT, _INPUT) for m in pattern.finditer(text)} | reassigned
    initialised |= {m.group(3).removesuffix("_handle") for m in _ALIAS.finditer(text) if m.group(1) == _ASSIGN}
    return Variables(
        types={m.group(2): m.group(1) for m in _TYPED.finditer(text)},
        bases={name: base for name, base in (views | aliases).items() if name not in {base} | reassigned},
        initialised=frozenset(initialised),
        uninitialised=frozenset(m.group(1) for m in _UNINITIALISED.finditer(text)),
        tensors=frozenset(initialised | set(aliases) | {m.group(1) or m.group(2) for m in _TENSOR.finditer(text)}),
        first_uses=_first_uses(text, body.opening),
        last_uses=_last_uses(text, body.opening),
    )


def _first_uses(text: str, offset: int) -> Mapping[str, int]:
    """Where each tensor that is allocated and not filled is first used, also under the name that it is moved to."""
    empty = {m.group(1) for m in _EMPTY.finditer(text)}
    moves = tuple(_MOVED.finditer(text))
    names = empty | {move.group(1) for move in moves}
    mentions: dict[str, list[int]] = {}
    for match in _WORD.finditer(text):
        if match[0] in names:
            mentions.setdefault(match[0], []).append(match.start())
    second = {name: found[1] for name, found in mentions.items() if len(found) > 1}  # the first one defines it
    first_uses = {name: second[name] for name in empty if name in second}
    for move in moves:
        target, source = move.groups()
        if first_uses.get(source) == move.start(2) and target in second:
            first_uses[target] = second[target]
    return {name: offset + at for name, at in first_uses.items()}


def _last_uses(text: str, offset: int) -> Mapping[str, int]:
    """Where each word is last named, other than where its tensor is freed or its sizes are checked."""
    used = _NO_USE.sub(lambda match: " " * len(match[0]), text)
    return {match[0].removesuffix("_handle"): offset + match.start() for match in _WORD.finditer(used)}


@dataclass(frozen=True)
class OtherStream:
    """A part of a function in which operators of torch run on another stream than the call's: offsets into the text.

    Attributes:
        text: the expression of the stream, or what else may have changed it.
        number: of the stream; None if it is not known.
        is_read: False if it is not known what changes: kernels that are given their stream may run on another, too.
    """

    start: int
    end: int
    text: str
    number: int | None = None
    is_read: bool = True


@dataclass(frozen=True)
class StreamStep:
    """A statement that orders streams, or may order them.

    Attributes:
        offset: into the wrapper's text.
        event: its number; -1 if it has none.
        stream: the number of the stream that records or waits; -1 if there is none.
        is_conditional: it stands in a branch, a loop or a lambda: it may run any number of times.
    """

    offset: int
    action: StreamAction
    text: str
    event: int = -1
    stream: int = -1
    is_conditional: bool = False


def number_of(expression: str, masked: str, body: Body) -> int | None:
    """Returns the number of the stream that an expression names; None if it is not known.

    `stream` is 0, `_aoti_aux_stream_cache.get(2, this->device_idx_, stream)` is 2, and so is `stream2` where it is
    declared as that.
    """
    if not re.fullmatch(STREAM, expression.strip()):
        return None
    match = _NUMBER.fullmatch(expression.strip())
    assert match is not None, "it is a stream"
    if match["slot"] is not None:
        return int(match["slot"])
    if not match["name"]:
        return 0
    declared = [m for m in _DECLARED.finditer(masked, body.opening, body.closing) if m["name"] == match["name"]]
    return int(declared[0]["slot"]) if len(declared) == 1 else None


def expression_of(number: int, masked: str, body: Body, offset: int) -> str:
    """Returns an expression of a side stream at an offset: the variable that holds it, else where it comes from."""
    for match in _DECLARED.finditer(masked, body.opening, offset):
        if int(match["slot"]) == number and number_of(f"stream{match['name']}", masked, body) == number:
            return f"stream{match['name']}"
    return f"_aoti_aux_stream_cache.get({number}, this->device_idx_, stream)"


def other_streams(masked: str, body: Body) -> tuple[OtherStream, ...]:
    """Returns the parts of a function that leave the stream of the call, in order."""
    known = [match.span() for match in _STREAM_GUARD.finditer(masked, body.opening, body.closing)][:1]
    declared = [match.span() for match in _SIDE_GUARD.finditer(masked, body.opening, body.closing)][:1]
    known += [*declared, *(match.span() for match in _DECLARED.finditer(masked, body.opening, body.closing))]
    blocks = conditional_blocks(masked, body)
    parts: list[OtherStream] = []
    position = body.opening
    while change := _STREAM_CHANGE.search(masked, position, body.closing):
        own = next((end for start, end in known if start <= change.start() < end), None)
        steady = _always_runs(masked, change.start(), blocks)
        left = _LEAVE_SIDE.match(masked, change.start()) if steady else None
        # The guard that one in force is replaced by is made first: the end of the old one then leaves its stream, too.
        replaces = bool(parts) and parts[-1].end == change.start()
        entered = _ENTER_SIDE.match(masked, change.start()) if declared and steady and not replaces else None
        following = _STREAM_CHANGE.search(masked, entered.end(), body.closing) if entered else None
        if own is not None or left is not None:
            position = own or (left.end() if left else 0)
        elif entered and following:
            text = entered["stream"].strip()
            parts.append(OtherStream(change.start(), following.start(), text, number_of(text, masked, body)))
            position = following.start()
        else:
            parts.append(OtherStream(change.start(), body.closing, change.group(), is_read=False))
            break
    return tuple(parts)


def steps(masked: str, body: Body) -> tuple[StreamStep, ...]:
    """Returns the statements that order streams, in order, with those that may and are not read."""
    blocks = conditional_blocks(masked, body)
    found: list[StreamStep] = []
    spans: list[tuple[int, int]] = []
    for action, pattern in (*_KNOWN, (StreamAction.SYNCHRONIZE_ALL, _DEVICE_WIDE)):
        for match in pattern.finditer(masked, body.opening, body.closing):
            groups = match.groupdict()
            stream = -1 if groups.get("stream") is None else number_of(groups["stream"], masked, body)
            spans.append(match.span())
            found.append(
                StreamStep(
                    match.start(),
                    StreamAction.UNREAD if stream is None else action,
                    " ".join(match.group().split()),
                    int(groups.get("event") or -1),
                    -1 if stream is None else stream,
                    is_conditional=not _always_runs(masked, match.start(), blocks),
                )
            )
    for match in _ANY_STEP.finditer(masked, body.opening, body.closing):
        if not any(start <= match.start() < end for start, end in spans):
            found.append(StreamStep(match.start(), StreamAction.UNREAD, match.group()))
    return tuple(sorted(found, key=lambda step: step.offset))


def conditional_blocks(masked: str, body: Body) -> tuple[tuple[int, int], ...]:
    """Returns the spans of the branches, loops and lambdas of a function, those within others among them."""
    return tuple(
        (match.start(), lexer.closing_offset(masked, match.start()))
        for match in re.compile(r"\{").finditer(masked, body.opening + 1, body.closing)
        if _CONDITIONAL.search(masked, max(body.opening, match.start() - 200), match.start())
    )


def _always_runs(masked: str, offset: int, blocks: Sequence[tuple[int, int]]) -> bool:
    """True if the statement that begins at an offset is no part of another one."""
    before = masked[max(0, offset - 200) : offset].rstrip()
    return not is_within(offset, blocks) and before[-1:] in (";", "{", "}")


def is_within(offset: int, spans: Sequence[tuple[int, int]]) -> bool:
    """True if an offset lies in one of the spans."""
    return any(start < offset < end for start, end in spans)

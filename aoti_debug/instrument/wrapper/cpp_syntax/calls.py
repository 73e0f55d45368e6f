"""Finds the calls in a function that launches kernels: line, loops, subgraph, and the comments above each."""

from __future__ import annotations

import bisect
import dataclasses
import re
from collections.abc import Callable, Sequence

from aoti_debug.base.frozen import dataclass
from aoti_debug.instrument.wrapper.cpp_syntax.functions import Body
from aoti_debug.instrument.wrapper.cpp_syntax.lexer import Lexeme, TextSpan, Token, split_arguments, tokenize

PROXY = "aoti_torch_proxy_executor_call_function"

# Functions that start nothing on a device, of C++ and of the headers of the generated code.
_QUIET = re.compile(
    r"(?:std|c10|at)(?:::\w+)+|(?:const|static|dynamic|reinterpret)_cast|alignas|sizeof|decltype|if|while|for|switch"
    r"|AOTI_\w+|aoti_torch_\w+|RAII\w+|__check_inputs_outputs|assert_\w+|steal_from_raw_handles_to_raii_handles"
    r"|wrap_with_raii_handle_if_needed|reinterpret_tensor_wrapper|temporary_reference|scalar_to_tensor_handle"
    r"|_aoti_(?:aux_stream|event)_cache\.\w+|cudaEventRecord|cudaStreamWaitEvent|cudaEventSynchronize"
    r"|init\w*TMADescriptor\w*|(?:.*(?:\.|->))?(?:data_ptr|get|reset|release|sizes?|strides?|data|c?begin|at|clear)"
)
_SUBGRAPH = re.compile(r"//\s*subgraph: (\S+)")
_HANDLE = re.compile(r"//\s*\[Provenance debug handles\] (\S+)")
_NODES = re.compile(r"//\s*(?:Topologically Sorted|Unsorted) Source Nodes: \[(.*?)\], Original ATen: \[(.*?)\]")


@dataclass(frozen=True)
class CallArgument:
    """An argument of a call: its expression and place in the text."""

    text: str
    span: TextSpan


@dataclass(frozen=True)
class Notes:
    """The content of Inductor's comments above a launch."""

    handle: str = ""  # "aoti_torch_cpu_addmm_out:1"
    nodes: tuple[str, ...] = ()  # names of the traced program's nodes
    aten: tuple[str, ...] = ()  # "aten.addmm"


@dataclass(frozen=True)
class CallExpression:
    """A call as it is written; offsets are into the wrapper's text."""

    callee: str  # "aoti_torch_cpu_addmm_out", "kernels.cuda_fused_mm_0"
    function: str
    head: TextSpan  # of the callee
    opening: int  # of the "("
    arguments: tuple[CallArgument, ...]
    line: int
    loops: int
    subgraph: str
    notes: Notes
    within: str = ""  # the innermost thing around it that may run it another number of times: "a lambda"; "" if none


@dataclass(frozen=True)
class Loop:
    """The head of a `while (1) {`: [start, end), the brace included."""

    span: TextSpan


@dataclass(frozen=True)
class Scan:
    """The calls and loops of a function, in the order of the text.

    Attributes:
        calls: those that were wanted.
        others: calls of functions that are neither wanted nor among those that manage tensors and numbers; no notes.
    """

    calls: tuple[CallExpression, ...]
    loops: tuple[Loop, ...]
    others: tuple[CallExpression, ...] = ()


class Lines:
    """Line numbers, from 1, of offsets into a text."""

    def __init__(self, text: str) -> None:
        self._breaks = [m.start() for m in re.finditer("\n", text)]

    def at(self, offset: int) -> int:
        """Returns the line number of an offset."""
        return bisect.bisect_left(self._breaks, offset) + 1


def scan(text: str, body: Body, lines: Lines, wanted: Callable[[str], bool]) -> Scan:
    """Finds the calls of `body` whose callee fulfils `wanted`, in the order of the text, and its while loops.

    Notes belong to the first such call after their comment that they can be about: a handle names its kernel.
    """
    return _Scanner(text, body, lines, wanted).run()


@dataclasses.dataclass
class _Scope:
    subgraph: str
    is_loop: bool
    within: str = ""


class _Scanner:
    def __init__(self, text: str, body: Body, lines: Lines, wanted: Callable[[str], bool]) -> None:
        self._text = text
        self._body = body
        self._lines = lines
        self._wanted = wanted
        self._blocks = [_Scope("", is_loop=False)]
        self._notes = Notes()

    def run(self) -> Scan:
        tokens = tokenize(self._text, self._body.opening + 1, self._body.closing)
        calls: list[CallExpression] = []
        others: list[CallExpression] = []
        loops: list[Loop] = []
        for i, token in enumerate(tokens):
            if token.lexeme is Lexeme.COMMENT:
                self._comment(token.text, tokens[i - 1].text if i else "")
            elif token.text == "{":
                loop = _while_head(tokens, i)
                if loop is not None:
                    loops.append(Loop(loop))
                within = "" if loop is not None else _block_kind(tokens, i)
                outer = self._blocks[-1]
                self._blocks.append(_Scope(outer.subgraph, loop is not None, within or outer.within))
            elif token.text == "}":
                if len(self._blocks) > 1:
                    self._blocks.pop()
            elif token.lexeme is Lexeme.NAME and i + 1 < len(tokens) and tokens[i + 1].text == "(":
                head = _callee(tokens, i)
                callee = self._text[head.start : head.end]
                if _declares(tokens, head):
                    continue
                if self._wanted(callee):
                    notes = self._notes if _is_about(self._notes, callee) else Notes()
                    if notes is self._notes:
                        self._notes = Notes()
                    calls.append(self._call(head, tokens, i + 1, notes))
                elif not _QUIET.fullmatch(callee):
                    others.append(self._call(head, tokens, i + 1, Notes()))
            elif token.text == "(" and i and tokens[i - 1].text == ">":
                template = _template(tokens, i - 1)
                if template is not None and not _QUIET.fullmatch(self._text[template.start : template.end]):
                    others.append(self._call(template, tokens, i, Notes()))
        return Scan(tuple(calls), tuple(loops), tuple(others))

    def _comment(self, text: str, before: str) -> None:
        if match := _SUBGRAPH.match(text):
            self._blocks[-1].subgraph = self._qualified(match.group(1))
        elif match := _HANDLE.match(text):
            above = self._notes if _NODES.match(before) else Notes()
            self._notes = Notes(match.group(1), above.nodes, above.aten)
        elif match := _NODES.match(text):
            self._notes = Notes("", _names(match.group(1)), _names(match.group(2)))

    def _qualified(self, name: str) -> str:
        """The name of a branch or loop within another one, as Inductor's GraphLowering.qualify_name makes it."""
        outer = self._blocks[-2].subgraph if len(self._blocks) > 1 else ""
        return name if not outer or name.startswith(f"{outer}_") else f"{outer}_{name}"

    def _call(self, head: TextSpan, tokens: Sequence[Token], opening: int, notes: Notes) -> CallExpression:
        spans, _ = split_arguments(tokens, opening)
        return CallExpression(
            callee=self._text[head.start : head.end],
            function=self._body.name,
            head=head,
            opening=tokens[opening].start,
            arguments=tuple(CallArgument(self._text[s.start : s.end], s) for s in spans),
            line=self._lines.at(head.start),
            loops=sum(block.is_loop for block in self._blocks),
            subgraph=self._blocks[-1].subgraph,
            notes=notes,
            within=self._blocks[-1].within or _loop_without_braces(tokens, head),
        )


def _declares(tokens: Sequence[Token], head: TextSpan) -> bool:
    """True for `Type name(…)`, which makes a variable."""
    before = bisect.bisect_left(tokens, head.start, key=lambda token: token.start) - 1
    if before < 0 or tokens[before].text in ("return", "else", "throw", "new"):
        return False
    return tokens[before].lexeme is Lexeme.NAME or tokens[before].text == ">"


def _template(tokens: Sequence[Token], closing: int) -> TextSpan | None:
    """Returns the span of the f in `f<…>(`, where the index is that of the ">"; None for a comparison."""
    depth = 0
    for i in range(closing, -1, -1):
        if tokens[i].text in (">", "<"):
            depth += 1 if tokens[i].text == ">" else -1
            if depth == 0:
                return _callee(tokens, i - 1) if i and tokens[i - 1].lexeme is Lexeme.NAME else None
        elif tokens[i].text in (";", "{", "}"):
            return None
    return None


def _is_about(notes: Notes, callee: str) -> bool:
    name = notes.handle.rpartition(":")[0]
    own = callee.removeprefix("call_").removeprefix("kernels.")
    return not name or callee == PROXY or own.startswith(name)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in (piece.strip() for piece in text.split(",")) if name)


def _callee(tokens: Sequence[Token], last: int) -> TextSpan:
    """Returns the span of the qualified name that ends in the token at `last`: `f`, `kernels.f`, `std::f`."""
    first = last
    while first >= 2 and tokens[first - 1].text in (".", "->", "::") and tokens[first - 2].lexeme is Lexeme.NAME:
        first -= 2
    return TextSpan(tokens[first].start, tokens[last].end)


def _while_head(tokens: Sequence[Token], brace: int) -> TextSpan | None:
    """Returns the span of the `while (1) {` that ends in the brace at index `brace`; None for other braces."""
    texts = [token.text for token in tokens[max(brace - 4, 0) : brace]]
    return TextSpan(tokens[brace - 4].start, tokens[brace].end) if texts == ["while", "(", "1", ")"] else None


def _block_kind(tokens: Sequence[Token], brace: int) -> str:
    """Tells what the block that opens at index `brace` is, where it may run another number of times than the code
    around it: "a lambda", "a loop"; "" for plain blocks, branches, and the braces of values."""
    i = brace - 1
    while i >= 0 and tokens[i].lexeme is Lexeme.COMMENT:
        i -= 1
    while i >= 0 and (tokens[i].lexeme is Lexeme.NAME or tokens[i].text in ("->", "::", "*", "&")):
        if tokens[i].text in ("else", "do", "try"):
            return "a loop" if tokens[i].text == "do" else ""
        i -= 1  # `mutable`, `noexcept`, `-> Type` of a lambda
    if i < 0 or tokens[i].text not in (")", "]"):
        return ""
    if tokens[i].text == ")":
        i = _opening(tokens, i) - 1
    if i >= 0 and tokens[i].text in ("while", "for"):
        return "a loop"
    if i >= 0 and tokens[i].text == "]":
        before = _opening(tokens, i) - 1
        is_index = before >= 0 and (tokens[before].lexeme is Lexeme.NAME or tokens[before].text in (")", "]"))
        return "" if is_index and tokens[before].text != "return" else "a lambda"
    return ""


def _loop_without_braces(tokens: Sequence[Token], head: TextSpan) -> str:
    """ "a loop" where the statement that the call begins is the body of a `for` or `while` without braces; else ""."""
    i = bisect.bisect_left(tokens, head.start, key=lambda token: token.start) - 1
    while i >= 0 and (tokens[i].text == "(" or tokens[i].lexeme in (Lexeme.NAME, Lexeme.COMMENT)):
        i -= 1
    if i < 0 or tokens[i].text != ")":
        return ""
    before = _opening(tokens, i) - 1
    return "a loop" if before >= 0 and tokens[before].text in ("for", "while") else ""


def _opening(tokens: Sequence[Token], closing: int) -> int:
    """The index of the bracket that the one at index `closing` closes, or -1."""
    depth = 0
    for i in range(closing, -1, -1):
        if tokens[i].lexeme is Lexeme.PUNCTUATION and tokens[i].text in "()[]{}":
            depth += 1 if tokens[i].text in ")]}" else -1
            if depth == 0:
                return i
    return -1

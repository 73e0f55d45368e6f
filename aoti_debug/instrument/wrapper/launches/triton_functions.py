"""Parses the `call_*` functions of a wrapper: signature, source, cubin, launch of a Triton kernel."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import groupby, pairwise
from types import MappingProxyType

from aoti_debug.base.frozen import dataclass
from aoti_debug.instrument.wrapper.cpp_syntax.expressions import UnreadError
from aoti_debug.instrument.wrapper.cpp_syntax.functions import Body
from aoti_debug.instrument.wrapper.cpp_syntax.lexer import Lexeme, TextSpan, Token, mask, split_arguments, tokenize
from aoti_debug.instrument.wrapper.launches.c_functions import NUMBERS, Param
from aoti_debug.package.manifest import CType, KernelParam

_PARAMETER = re.compile(r"(?P<ctype>.*[\s&*])(?P<name>\w+)\s*(?:=.*)?\Z", re.DOTALL)
_DECLARATION = re.compile(r"^\s*([\w:]+)\s+(\w+)\s*(?:=\s*(.*?))?;", re.MULTILINE)
_ITEM = re.compile(r"\baoti_torch_item_\w+\((\w+), &(\w+)\)")
_FLOAT_OF = re.compile(r"\bfloat (\w+) = float\((\w+)\);")
_DATA_PTR = re.compile(r"reinterpret_cast<\w+>\((\w+)\.data_ptr\(\)\)")
_SCRATCH = re.compile(r"(\w+?)_scratch_\d+\Z")
_SCRATCH_TENSOR = re.compile(
    r"^\s*(\w+) ((global_scratch|profile_scratch)_ptr) = allocate_scratch_tensor<\1>\(", re.MULTILINE
)
_SCRATCH_FIELD = re.compile(r"\bint64_t (global|profile)_scratch_ptr_numel = (-?\d+) \* static_cast<int64_t>\(grid_0\)")
_SCRATCH_NAMES = frozenset({"global_scratch", "profile_scratch"})
_SCRATCH_SIZE = re.compile(r"\bint64_t (global|profile)(?:_scratch)+_\d+_size\[\] = \{(?:static_cast<int64_t>\()?(\d+)")
_GRID_SIZE = re.compile(r"\buint32_t (\w+) = ([^;]*);")
_MUTATED = re.compile(r"'mutated_arg_names': \[(.*?)\]")
_TRITON_SOURCE = re.compile(r"async_compile\.triton\(\s*'([^']*)',\s*'''(.*?)'''", re.DOTALL)
_TMA_FIELDS = {"block_shape": CType.I32, "kernel_shape": CType.I32, "strides": CType.I64}
_ADDRESS = re.compile(r"&(?P<variable>\w+)(?:\.(?P<member>m|\w+\[\d+\]))?\Z")
_ASSIGNED = re.compile(r"\b(\w+)\s*(?:(?:[-+*/%|&^]|<<|>>)?=(?!=)|\+\+|--)|(?:\+\+|--)\s*(?P<after>\w+)")
_LAUNCH_ARGUMENTS = 8
STREAM_TYPE = re.compile(r"\w+Stream_t|sycl::queue\*")
_COMPILED_FIELD = re.compile(r"\b\w+\.\w+(?:\[\d+\])?")
_USES_OF_ARGUMENTS = 2  # its declaration and the launch
_MEMBER = re.compile(r"kernels_\.(\w+)\Z")
_LITERAL = re.compile(r'"(?:\\.|[^"\\])*"\Z')
_GENERATED = re.compile(r"^@triton_heuristics\.(?!user_autotune\b)\w+\(", re.MULTILINE)
_DEF = re.compile(r"^@triton\.jit[^\n]*\ndef \w+\((.*?)\):", re.DOTALL | re.MULTILINE)
_SOURCE_PARAMETER = re.compile(r"(?:^|,)\s*(?P<name>\w+)")
_ADDRESS_TYPES = frozenset({"CUdeviceptr", "hipDeviceptr_t", "void*"})


@dataclass(frozen=True)
class TritonCall:
    """The launch of a Triton kernel.

    `launchKernel(kernels_.K, grid_0, grid_1, grid_2, 4, 0, kernel_args_, stream_);`

    Attributes:
        statement: offset of the `launchKernel`.
        kernel: K.
        grid: the three expressions.
        sizes: the variables in them and the expression of each, in order: ("grid_0", "xnumel").
        num_warps, shared_bytes: literals in the call.
        arguments: the name of the `void*` array.
        overlaps: it may begin before the kernel before it on its stream has ended (programmatic dependent launch).
    """

    statement: int
    kernel: str
    grid: tuple[str, str, str]
    num_warps: int
    shared_bytes: int
    arguments: str
    sizes: tuple[tuple[str, str], ...] = ()
    overlaps: bool = False


@dataclass(frozen=True)
class TritonFunction:
    """One `call_*` function.

    Attributes:
        unread: what of the function is not read, "" if nothing: what is known of its launch is then not all there is.
        generated: Inductor wrote the kernel: the names of its parameters tell what it does with them.
        name: "call_triton_poi_fused_0".
        params: of its signature, in order.
        source: the Triton source; "" if the wrapper holds none.
        first_line: of the source in the file that torch has Triton compile; 0 without a source.
        mutated: parameters that the kernel reads and writes, as Inductor notes them.
        cubin: path that is passed to loadKernel; "" if the binary is embedded.
        mangled: name of the function in the binary.
        launch: None for a kernel without launchKernel (Triton on the CPU).
        kernel_params: the parameters that `launch.arguments` points to.
        scratch: bytes of scratch memory of each program of the grid: {"global_scratch": 256}.
    """

    name: str
    params: tuple[Param, ...]
    source: str
    mutated: frozenset[str]
    cubin: str
    mangled: str
    launch: TritonCall | None
    kernel_params: tuple[KernelParam, ...]
    scratch: Mapping[str, int] = field(default_factory=dict)
    generated: bool = False
    unread: str = ""
    first_line: int = 0


def parse(text: str, body: Body, compiled: Mapping[str, str] = MappingProxyType({})) -> TritonFunction:
    """Reads the function `body` of a wrapper's text.

    Args:
        compiled: literals of expressions in it that stand for what a compilation gave: {"k_result.num_warps": "4"}.
    """
    tokens = tokenize(text, body.opening + 1, body.closing)
    comment = next((t.text for t in tokens if t.lexeme is Lexeme.COMMENT and t.text.startswith("/*")), "")
    code = [t for t in tokens if t.lexeme is not Lexeme.COMMENT]
    launch, unread = None, ""
    params: tuple[Param, ...] = ()
    kernel_params: tuple[KernelParam, ...] = ()
    try:
        params = _signature(text, body)
        launch = _launch(text, code, params, compiled)
        kernel_params = _kernel_params(text, code, launch, params) if launch else ()
    except UnreadError as error:
        launch, unread = None, f"{error} in {body.name}"
    cubin, mangled = _binary(text, code, launch, compiled) if launch else ("", "")
    source, first_line = _source(comment)
    mutated = _MUTATED.search(comment)
    return TritonFunction(
        name=body.name,
        params=params,
        source=source,
        mutated=frozenset(re.findall(r"\w+", mutated.group(1))) if mutated else frozenset(),
        cubin=cubin,
        mangled=mangled,
        launch=launch,
        kernel_params=kernel_params,
        scratch=_scratch(text, code, launch, compiled) if launch else {},
        generated=bool(mutated and _GENERATED.search(source) and _in_order(source, kernel_params)),
        unread=unread,
        first_line=first_line,
    )


def _signature(text: str, body: Body) -> tuple[Param, ...]:
    tokens = tokenize(text, body.parameters, body.opening)
    spans, _ = split_arguments(tokens, 0)
    return tuple(_parameter(text[span.start : span.end]) for span in spans)


def _parameter(text: str) -> Param:
    match = _PARAMETER.match(text)
    if match is None:
        raise UnreadError(f"parameter {' '.join(text.split())}")
    return Param(" ".join(match["ctype"].split()).replace(" &", "&"), match["name"])


def _in_order(source: str, params: Sequence[KernelParam]) -> bool:
    """True if what a kernel is passed are parameters of its source, in their order; scratch memory comes last."""
    functions = _DEF.findall(source)  # the kernel comes behind its helpers
    names = [match["name"] for match in _SOURCE_PARAMETER.finditer(functions[-1])] if functions else []
    passed = [param.name.partition(".")[0] for param in params]
    while passed and passed[-1] in _SCRATCH_NAMES:
        passed.pop()
    if not set(passed) <= set(names):
        return False
    positions = [names.index(name) for name, _ in groupby(passed)]
    return positions == sorted(set(positions))


def _source(comment: str) -> tuple[str, int]:
    """Extracts the Triton source from `/* async_compile.triton('name', \'\'\'…\'\'\', …) */`, dedented, and its line.

    torch (PyCodeCache in torch/_inductor/codecache.py) writes it to a file with the empty lines that it begins with.
    """
    match = _TRITON_SOURCE.search(comment)
    if match is None:
        return "", 0
    lines = match.group(2).split("\n")
    indents = [len(line) - len(line.lstrip()) for line in lines if line.strip()]
    indent = min(indents, default=0)
    unescaped = "\n".join(line[indent:] for line in lines).replace("\\'\\'\\'", "'''").replace('\\"\\"\\"', '"""')
    text = unescaped.replace("\\\\", "\\")
    return text.strip("\n") + "\n", 1 + len(text) - len(text.lstrip("\n"))


def _calls(code: Sequence[Token], function: str) -> list[int]:
    """Returns the indices of the calls of `function`."""
    return [i for i, (token, after) in enumerate(pairwise(code)) if token.text == function and after.text == "("]


def _only_call(text: str, code: Sequence[Token], function: str) -> tuple[tuple[str, ...], int] | None:
    """Returns the arguments of the only call of `function`, and its offset; None if there is not one."""
    calls = _calls(code, function)
    if len(calls) != 1:
        return None
    spans, _ = split_arguments(code, calls[0] + 1)
    return tuple(text[s.start : s.end] for s in spans), code[calls[0]].start


def _literals(expression: str, compiled: Mapping[str, str]) -> str:
    """The expression with the literals of what came out of a compilation."""
    return _COMPILED_FIELD.sub(lambda field: compiled.get(field[0], field[0]), expression)


def _binary(text: str, code: Sequence[Token], launch: TritonCall, compiled: Mapping[str, str]) -> tuple[str, str]:
    """Returns the path and the function that the only loadKernel loads for the launch; "" for what is not known."""
    call = _only_call(text, code, "loadKernel")
    loaded = f"kernels_.{launch.kernel}="
    if call is None or len(call[0]) < 3 or not "".join(text[: call[1]].split()).endswith(loaded):
        return "", ""
    path, mangled, *_ = (_literals(argument, compiled) for argument in call[0])
    if not _LITERAL.match(mangled):
        return "", ""
    return (_unquote(path) if _LITERAL.match(path) else "", _unquote(mangled))


def _unquote(literal: str) -> str:
    return re.sub(r"\\(.)", r"\1", literal.strip('"'))


def _launch(
    text: str, code: Sequence[Token], params: Sequence[Param], compiled: Mapping[str, str]
) -> TritonCall | None:
    """Returns the only launch of a function; None if it is one of Triton on the CPU."""
    call = _only_call(text, code, "launchKernel")
    if call is None:
        count = len(_calls(code, "launchKernel"))
        if count == 0 and any(t.text.endswith("_launcher_fn") for t in code):
            return None
        raise UnreadError(f"{count} calls of launchKernel")
    index = _calls(code, "launchKernel")[0]
    around = _around(code, index)
    if around:
        raise UnreadError(f"a launchKernel within {around}")
    if len(call[0]) not in (_LAUNCH_ARGUMENTS, _LAUNCH_ARGUMENTS + 1):
        raise UnreadError(f"a launchKernel with {len(call[0])} arguments")
    function, x, y, z, warps, shared, arguments, stream, overlaps = (*call[0], "false")[: _LAUNCH_ARGUMENTS + 1]
    warps, shared = _literals(warps, compiled), _literals(shared, compiled)
    kernel = _MEMBER.match(function)
    types = {param.name: param.ctype for param in params}
    for understood, what, written in (
        (kernel, "kernel", function),
        (warps.isdigit(), "number of warps", warps),
        (shared.isdigit(), "shared memory", shared),
        (re.fullmatch(r"\w+", arguments), "list of arguments", arguments),
        (overlaps in ("true", "false"), "ninth argument of launchKernel", overlaps),
        (STREAM_TYPE.fullmatch(types.get(stream, "")), "stream", stream),
    ):
        if not understood:
            raise UnreadError(f"{what} {written}")
    own = [i for i, t in enumerate(code) if t.text == stream]
    if len(own) > 1:
        raise UnreadError(f"another use of {stream}")
    assert kernel is not None  # it was understood
    sizes = tuple((name, _literals(size, compiled)) for name, size in _sizes(text, code, call[1]))
    return TritonCall(
        call[1], kernel[1], (x, y, z), int(warps), int(shared), arguments, sizes, overlaps=overlaps == "true"
    )


def _sizes(text: str, code: Sequence[Token], launch: int) -> tuple[tuple[str, str], ...]:
    """Returns the sizes that are declared above the launch; none if one of them is changed later."""
    above = mask(text[code[0].start : launch])
    sizes = tuple((m[1], m[2]) for m in _GRID_SIZE.finditer(above))
    assigned = _assigned(above)
    return sizes if all(assigned[name] == 1 for name, _ in sizes) else ()


def _assigned(masked: str) -> Counter[str]:
    """How often each variable gets a value."""
    return Counter(m[1] or m["after"] for m in _ASSIGNED.finditer(masked))


def _around(code: Sequence[Token], index: int) -> str:
    """What the call at an index depends on: "another statement"; "" if it always runs once."""
    if index and code[index - 1].text not in (";", "{", "}"):
        return "another statement"
    depth = 0
    for i in range(index - 1, -1, -1):
        if code[i].text == "}":
            depth += 1
        elif code[i].text == "{":
            depth -= 1
            if depth < 0:
                if i and code[i - 1].text not in (";", "{", "}"):
                    return f"{code[i - 1].text} {{"
                depth = 0
    return ""


def _scratch(text: str, code: Sequence[Token], launch: TritonCall, compiled: Mapping[str, str]) -> Mapping[str, int]:
    above = _literals(text[code[0].start : launch.statement], compiled)
    found = (m for pattern in (_SCRATCH_SIZE, _SCRATCH_FIELD) for m in pattern.finditer(above))
    return {f"{m[1]}_scratch": int(m[2]) for m in found if int(m[2]) > 0}


def _kernel_params(
    text: str, code: Sequence[Token], launch: TritonCall, params: Sequence[Param]
) -> tuple[KernelParam, ...]:
    """Returns the parameters that the array of argument addresses points to, from the declarations above it."""
    span = TextSpan(code[0].start, launch.statement)
    masked = mask(text[span.start : span.end])
    addressed = {p.name: p.ctype for p in params if p.ctype.removesuffix("&") == f"{p.name}_type_"}
    descriptors = {name: KernelParam(name, ctype, CType.NONE) for name, ctype in addressed.items()}
    declared = descriptors | _declarations(masked, {p.name: p.ctype for p in params})
    array = re.search(rf"\bvoid\*\s*{launch.arguments}\[\]\s*=\s*\{{", masked)
    if array is None or sum(t.text == launch.arguments for t in code) != _USES_OF_ARGUMENTS:
        raise UnreadError(f"list of arguments {launch.arguments}")
    opening = next(i for i, t in enumerate(code) if t.start == span.start + array.end() - 1)
    spans, _ = split_arguments(code, opening)
    found = tuple(_kernel_param(text[s.start : s.end], declared) for s in spans)
    for param in params:
        parts = [p.name for p in found if p.name.startswith(f"{param.name}.")]
        if param.name in addressed and f"{param.name}.m" not in parts:
            raise UnreadError(f"parameter {param.ctype} {param.name}")
    return found


def _kernel_param(expression: str, declared: Mapping[str, KernelParam]) -> KernelParam:
    written = _ADDRESS.match(expression)
    if written is None or written["variable"] not in declared:
        raise UnreadError(f"argument {expression} of launchKernel")
    param = declared[written["variable"]]
    if member := written["member"]:
        return KernelParam(f"{param.name}.{member}", "", _TMA_FIELDS.get(member.partition("[")[0], CType.NONE))
    return param


def _declarations(text: str, signature: Mapping[str, str]) -> dict[str, KernelParam]:
    """Returns the variables of a `call_*` function with the parameter that each is made from."""
    assigned = _assigned(text)
    items = {m.group(2): m.group(1) for m in _ITEM.finditer(text)}
    items |= {m.group(1): items[m.group(2)] for m in _FLOAT_OF.finditer(text) if m.group(2) in items}
    params = {
        match[2]: KernelParam(match[3], match[1], CType.ADDRESS)
        for match in _SCRATCH_TENSOR.finditer(text)
        if match[1] in _ADDRESS_TYPES and assigned[match[2]] == 1
    }
    for match in _DECLARATION.finditer(text):
        ctype, variable, value = match.group(1), match.group(2), match.group(3) or ""
        pointer = _DATA_PTR.match(value)
        scratch = _SCRATCH.match(variable)
        if scratch:
            name = scratch.group(1)
        elif pointer:
            name = pointer.group(1)
        else:
            name = items.get(variable) or (value if re.fullmatch(r"\w+", value) and value in signature else variable)
        if assigned[variable] > 1:  # what it holds at the launch is not what it was made from
            name = variable
        if ctype == "auto":
            ctype = signature.get(value, "")
        kind = CType.ADDRESS if ctype in _ADDRESS_TYPES else NUMBERS.get(ctype, CType.NONE)
        params[variable] = KernelParam(name, ctype, kind)
    return params

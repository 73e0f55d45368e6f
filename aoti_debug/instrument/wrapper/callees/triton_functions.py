"""Parses the `call_*` functions of a wrapper: signature, source, cubin, launch of a Triton kernel."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field

from aoti_debug.base.frozen import dataclass
from aoti_debug.instrument.wrapper.callees.prototypes import NUMBERS, Param
from aoti_debug.instrument.wrapper.cpp_syntax.functions import Body
from aoti_debug.instrument.wrapper.cpp_syntax.lexer import Lexeme, TextSpan, Token, split_arguments, tokenize
from aoti_debug.package.manifest import CType, KernelParam

_PARAMETER = re.compile(r"(?P<ctype>.*[\s&*])(?P<name>\w+)\s*(?:=.*)?\Z", re.DOTALL)
_DECLARATION = re.compile(r"^\s*([\w:]+)\s+(\w+)\s*(?:=\s*(.*?))?;", re.MULTILINE)
_ITEM = re.compile(r"\baoti_torch_item_\w+\((\w+), &(\w+)\)")
_FLOAT_OF = re.compile(r"\bfloat (\w+) = float\((\w+)\);")
_DATA_PTR = re.compile(r"reinterpret_cast<\w+>\((\w+)\.data_ptr\(\)\)")
_SCRATCH = re.compile(r"(\w+?)_scratch_\d+\Z")
_SCRATCH_SIZE = re.compile(r"\bint64_t (global|profile)(?:_scratch)+_\d+_size\[\] = \{(?:static_cast<int64_t>\()?(\d+)")
_GRID_SIZE = re.compile(r"\buint32_t (\w+) = ([^;]*);")
_MUTATED = re.compile(r"'mutated_arg_names': \[(.*?)\]")
_TRITON_SOURCE = re.compile(r"async_compile\.triton\(\s*'([^']*)',\s*'''(.*?)'''", re.DOTALL)
_TMA_FIELDS = {"block_shape": CType.I32, "strides": CType.I64}
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
    """

    statement: int
    kernel: str
    grid: tuple[str, str, str]
    num_warps: int
    shared_bytes: int
    arguments: str
    sizes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class TritonFunction:
    """One `call_*` function.

    Attributes:
        name: "call_triton_poi_fused_0".
        params: of its signature, in order.
        source: the Triton source; "" if the wrapper holds none.
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


def parse(text: str, body: Body) -> TritonFunction:
    """Reads the function `body` of a wrapper's text."""
    params = _signature(text, body)
    tokens = tokenize(text, body.opening + 1, body.closing)
    comment = next((t.text for t in tokens if t.lexeme is Lexeme.COMMENT and t.text.startswith("/*")), "")
    code = [t for t in tokens if t.lexeme is not Lexeme.COMMENT]
    cubin, mangled = _binary(text, code)
    launch = _launch(text, code)
    mutated = _MUTATED.search(comment)
    return TritonFunction(
        name=body.name,
        params=params,
        source=_source(comment),
        mutated=frozenset(re.findall(r"\w+", mutated.group(1))) if mutated else frozenset(),
        cubin=cubin,
        mangled=mangled,
        launch=launch,
        kernel_params=_kernel_params(text, code, launch, params) if launch else (),
        scratch=_scratch(text, code, launch) if launch else {},
    )


def _signature(text: str, body: Body) -> tuple[Param, ...]:
    tokens = tokenize(text, body.parameters, body.opening)
    spans, _ = split_arguments(tokens, 0)
    params = []
    for span in spans:
        match = _PARAMETER.match(text[span.start : span.end])
        if match:
            params.append(Param(" ".join(match["ctype"].split()).replace(" &", "&"), match["name"]))
    return tuple(params)


def _source(comment: str) -> str:
    """Extracts the Triton source from `/* async_compile.triton('name', \'\'\'…\'\'\', …) */`, dedented."""
    match = _TRITON_SOURCE.search(comment)
    if match is None:
        return ""
    lines = match.group(2).split("\n")
    indents = [len(line) - len(line.lstrip()) for line in lines if line.strip()]
    indent = min(indents, default=0)
    unescaped = "\n".join(line[indent:] for line in lines).replace("\\'\\'\\'", "'''").replace('\\"\\"\\"', '"""')
    return unescaped.replace("\\\\", "\\").strip("\n") + "\n"


def _arguments(text: str, code: Sequence[Token], function: str) -> tuple[tuple[str, ...], int] | None:
    """Returns the arguments of the first call of `function`, and its offset."""
    for i, token in enumerate(code):
        if token.text == function and i + 1 < len(code) and code[i + 1].text == "(":
            spans, _ = split_arguments(code, i + 1)
            return tuple(text[s.start : s.end] for s in spans), token.start
    return None


def _binary(text: str, code: Sequence[Token]) -> tuple[str, str]:
    call = _arguments(text, code, "loadKernel")
    if call is None or len(call[0]) < 3:
        return "", ""
    path, mangled, *_ = call[0]
    return (_unquote(path) if path.startswith('"') else "", _unquote(mangled))


def _unquote(literal: str) -> str:
    return re.sub(r"\\(.)", r"\1", literal.strip('"'))


def _launch(text: str, code: Sequence[Token]) -> TritonCall | None:
    call = _arguments(text, code, "launchKernel")
    if call is None or len(call[0]) < 8:
        return None
    function, x, y, z, warps, shared, arguments, *_ = call[0]
    if not (warps.isdigit() and shared.isdigit()):
        return None
    sizes = tuple((m[1], m[2]) for m in _GRID_SIZE.finditer(text[code[0].start : call[1]]))
    return TritonCall(call[1], function.rpartition(".")[2], (x, y, z), int(warps), int(shared), arguments, sizes)


def _scratch(text: str, code: Sequence[Token], launch: TritonCall) -> Mapping[str, int]:
    return {f"{m[1]}_scratch": int(m[2]) for m in _SCRATCH_SIZE.finditer(text[code[0].start : launch.statement])}


def _kernel_params(
    text: str, code: Sequence[Token], launch: TritonCall, params: Sequence[Param]
) -> tuple[KernelParam, ...]:
    """Returns the parameters that the array of argument addresses points to, from the declarations above it."""
    span = TextSpan(code[0].start, launch.statement)
    declared = _declarations(text[span.start : span.end], {p.name: p.ctype for p in params})
    array = re.search(rf"\bvoid\*\s*{re.escape(launch.arguments)}\[\]\s*=\s*\{{", text[span.start : span.end])
    if array is None:
        return ()
    opening = next(i for i, t in enumerate(code) if t.start == span.start + array.end() - 1)
    spans, _ = split_arguments(code, opening)
    return tuple(_kernel_param(text[s.start : s.end], declared) for s in spans)


def _kernel_param(expression: str, declared: Mapping[str, KernelParam]) -> KernelParam:
    variable, _, member = expression.removeprefix("&").strip().partition(".")
    if member:
        field = member.partition("[")[0]
        name = declared[variable].name if variable in declared else variable
        return KernelParam(f"{name}.{member}", "", _TMA_FIELDS.get(field, CType.NONE))
    return declared.get(variable, KernelParam(variable, "", CType.NONE))


def _declarations(text: str, signature: Mapping[str, str]) -> dict[str, KernelParam]:
    """Returns the variables of a `call_*` function with the parameter that each is made from."""
    items = {m.group(2): m.group(1) for m in _ITEM.finditer(text)}
    items |= {m.group(1): items[m.group(2)] for m in _FLOAT_OF.finditer(text) if m.group(2) in items}
    params = {}
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
        if ctype == "auto":
            ctype = signature.get(value, "")
        kind = CType.ADDRESS if ctype in _ADDRESS_TYPES else NUMBERS.get(ctype, CType.NONE)
        params[variable] = KernelParam(name, ctype, kind)
    return params

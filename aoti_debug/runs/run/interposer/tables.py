"""Generates the sources of the interposing libraries: the entry of each symbol, and the table of interposer.h."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aoti_debug.runs.run.interposer.symbols import Symbol

_ENTRY = """\
asm(R"(
  .text
  .globl {name}
  .type {name}, @function
{name}:
  .cfi_startproc
  movl ${index}, %r11d
  jmp aoti_debug_interposed_entry
  .cfi_endproc
  .size {name}, .-{name}
)");
"""


def entries(symbols: Sequence[Symbol]) -> str:
    """Assembly that defines the interposed symbols; each jumps to the dispatcher with its index."""
    return "".join(_ENTRY.format(name=symbol.name, index=index) for index, symbol in enumerate(symbols))


def table(symbols: Sequence[Symbol]) -> str:
    """The definition of `aoti_debug_interposed`."""
    return "\n".join(_lines(symbols)) + "\n"


def _lines(symbols: Sequence[Symbol]) -> Iterator[str]:
    yield '#include "interposer/interposer.h"'
    yield "namespace {"
    for index, symbol in enumerate(symbols):
        types = ", ".join(str(param.value) for param in symbol.params) or "0"
        yield f"const uint8_t params_{index}[] = {{{types}}};"
    yield "}  // namespace"
    yield 'extern "C" {'
    yield "const AotiDebugInterposed aoti_debug_interposed[] = {"
    for index, symbol in enumerate(symbols):
        first = symbol.sites[0].id if symbol.sites else 0
        numbers = (first, len(symbol.sites), symbol.action.value, len(symbol.params))
        returns_status = int(symbol.returns_status)
        yield f'    {{"{symbol.name}", {", ".join(map(str, numbers))}, params_{index}, {returns_status}, 0}},'
    yield "};"
    yield f"const uint32_t aoti_debug_n_interposed = {len(symbols)};"
    yield '}  // extern "C"'

"""The address that an instruction of a GPU accesses, out of the registers that a core dump has kept.

A wrong access is reported some instructions after the one that made it, so the registers may hold something else by
then; and it is reported of a warp, so the threads of the warp are told apart by their addresses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from aoti_debug.base.frozen import dataclass
from aoti_debug.package.manifest import CType, KernelParam

LANES = 32  # threads of a warp
MARK = "aoti-debug"  # begins each line that the commands print
_GLOBAL = ("LD", "ST", "LDG", "STG", "RED", "REDG", "ATOM", "ATOMG", "LDGSTS")
_LOADS = ("LD", "LDG", "LDGSTS")
_JUMPS = ("BRA", "BRX", "BRXU", "JMP", "JMX", "JMXU", "CALL", "RET", "BREAK")
_ADDRESS = re.compile(r"\[R(\d+)(?:\.64)?(?:\+(-?0x[0-9a-f]+))?\]")
_PREDICATE = re.compile(r"@(!?)P(\d+)\s")
_REGISTER = re.compile(r"R(\d+)\b")
_SIZES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}
_WIDE = {"64": 2, "WIDE": 2, "F64": 2, "S64": 2, "U64": 2, "128": 4}  # registers of a result
_FOCUS = re.compile(r"\[\w+ focus .*?block (\([\d,]+\)), thread (\([\d,]+\)), .*?lane (\d+)\]")
_LANE = re.compile(r"^[* ] *(\d+) +(active|divergent|inactive|exited)\b", re.MULTILINE)
_VALUES = re.compile(rf"{MARK} registers ([0-9a-f]+) ([0-9a-f]+) ([0-9a-f]+)$")
_WORD = re.compile(rf"{MARK} word ([0-9a-f]+)$")
_PARAMETERS = {7: 0x160, 8: 0x160, 9: 0x210, 10: 0x380, 12: 0x380}  # where they begin in constant bank 0, by sm_9x
_BYTES = dict.fromkeys((CType.BOOL, CType.I8, CType.U8), 1) | dict.fromkeys((CType.I16, CType.U16), 2)
_BYTES |= dict.fromkeys((CType.I32, CType.U32, CType.F32), 4)
_WORDS = 24  # of 8 bytes that are read
_ADDRESS_BITS = 49


@dataclass(frozen=True)
class ThreadAccess:
    """The bytes that a thread accesses.

    Attributes:
        block, thread: "(100,0,0)".
        size: bytes.
    """

    block: str
    thread: str
    address: int
    size: int

    @property
    def ends(self) -> tuple[int, int]:
        """The addresses of its first and its last byte."""
        return self.address, self.address + self.size - 1

    @property
    def is_possible(self) -> bool:
        """False of a number that no address has: its registers hold something else."""
        return not self.address >> _ADDRESS_BITS


@dataclass(frozen=True)
class AddressRegisters:
    """The address of an instruction: two registers, and bytes that are added to them.

    Attributes:
        register: the number of the first one.
        predicate: the number of the predicate without which a thread skips the instruction; None without one.
        negated: threads that have the predicate skip it.
    """

    register: int
    offset: int
    size: int
    predicate: int | None = None
    negated: bool = False


def operand_of(instruction: str) -> AddressRegisters | None:
    """The address of an access to global memory; None of any other instruction, or of one in another form.

    Args:
        instruction: "@!P0 LDG.E.64 R2,desc[UR8][R2.64+0x10]".
    """
    predicate = _PREDICATE.match(instruction)
    opcode = _opcode(instruction)
    found = _ADDRESS.findall(instruction)
    if opcode[0] not in _GLOBAL or "E" not in opcode or not found:  # .E: an address of 64 bits
        return None
    register, offset = found[-1]
    size = next((size for word, size in _SIZES.items() if word in opcode), 4)
    return AddressRegisters(
        int(register),
        int(offset, 16) if offset else 0,
        size,
        None if predicate is None else int(predicate[2]),
        predicate is not None and predicate[1] == "!",
    )


def is_load(instruction: str) -> bool:
    """True of an instruction that only reads memory."""
    return _opcode(instruction)[0] in _LOADS


def doubt_of(operand: AddressRegisters, instruction: str, following: Sequence[str] | None) -> str:
    """A sentence on why the registers may hold another address by now; "" if nothing has changed them.

    Args:
        following: the instructions that the warp had issued after it; None if they are not known.
    """
    if following is None or any(_opcode(text)[0] in _JUMPS for text in following):
        return "what the warp did after that instruction is not known: the registers may hold another address"
    own = {operand.register, operand.register + 1}
    changed = next((text for text in (instruction, *following) if own & _written(text)), "")
    if changed:
        which = "the load itself" if changed == instruction else changed
        return f"{which} may have changed the registers of the address"
    return ""


def _opcode(instruction: str) -> list[str]:
    """["LDG", "E", "64"] of "@!P0 LDG.E.64 R2,[R4.64]"."""
    words = instruction.split()
    return next((word for word in words if not word.startswith("@")), "").split(".")


def _written(instruction: str) -> set[int]:
    """The registers that an instruction may write: those of its first operand that is no predicate."""
    opcode = _opcode(instruction)
    if "SETP" in opcode[0]:
        return set()
    operands = instruction.partition(".".join(opcode))[2].split(",")
    first = next((text.strip() for text in operands if not re.match(r"\s*!?U?P[T\d]", text)), "")
    register = _REGISTER.match(first)
    if register is None:
        return set()
    count = max((_WIDE.get(word, 1) for word in opcode[1:]), default=1)
    if "MMA" in opcode[0] or opcode[0] in ("LDSM", "LDTM", "DADD", "DMUL", "DFMA"):
        count = max(count, 4 if "GMMA" not in opcode[0] else 256)
    return set(range(int(register[1]), int(register[1]) + count))


# What cuda-gdb is asked for, and what it answers


def commands(operand: AddressRegisters | None, architecture: int) -> list[str]:
    """The commands of cuda-gdb that print the registers of each thread of the warp, and the kernel's parameters.

    Args:
        architecture: 90 of sm_90; 0: not known.
    """
    begin = _PARAMETERS.get(architecture // 10)
    words = [] if begin is None else [begin + 8 * number for number in range(_WORDS)]
    asked = [
        rf'printf "{MARK} word %lx\n", *(unsigned long long *) $_cuda_const_bank(0x0, {address:#x})'
        for address in words
    ]
    if operand is None:
        return asked
    predicate = "1" if operand.predicate is None else f"$P{operand.predicate}"
    shown = rf'printf "{MARK} registers %x %x %x\n", $R{operand.register}, $R{operand.register + 1}, {predicate}'
    each = [command for lane in range(LANES) for command in (f"cuda lane {lane}", shown)]
    return [*asked, "info cuda lanes", shown, *each]


def parameters_in(text: str) -> tuple[int, ...]:
    """The words of the kernel's parameters that cuda-gdb has printed; none if the dump does not hold them."""
    return tuple(int(match[1], 16) for line in text.splitlines() if (match := _WORD.match(line)))


def accesses_in(text: str, operand: AddressRegisters) -> tuple[ThreadAccess, ...]:
    """The accesses of the threads that execute the instruction, by their lanes.

    A thread that cuda-gdb does not switch to has no registers: what it prints then is still of the one before.
    """
    states = {int(number): state for number, state in _LANE.findall(text)}
    found: dict[int, ThreadAccess] = {}
    for lane, block, thread, values in _by_lane(text):
        low, high, predicate = values
        if states.get(lane, "active") != "active" or bool(predicate) == operand.negated:
            continue
        address = ((high & 0xFFFFFFFF) << 32 | low & 0xFFFFFFFF) + operand.offset
        found.setdefault(lane, ThreadAccess(block, thread, address, operand.size))
    return tuple(found[lane] for lane in sorted(found))


def _by_lane(text: str) -> Iterator[tuple[int, str, str, tuple[int, int, int]]]:
    focus: re.Match[str] | None = None
    for line in text.splitlines():
        focus = _FOCUS.search(line) or focus
        values = _VALUES.match(line)
        if values is not None and focus is not None:
            yield int(focus[3]), focus[1], focus[2], (int(values[1], 16), int(values[2], 16), int(values[3], 16))
            focus = None


# The pointers among the kernel's parameters


def pointers(words: Sequence[int], parameters: Sequence[KernelParam]) -> dict[str, int]:
    """The pointers that a kernel was passed, by the names of its parameters; none if the words do not hold them all.

    Args:
        words: as `parameters_in` returns them; the parameters lie in them as in a struct of C.
    """
    data = b"".join(word.to_bytes(8, "little") for word in words)
    found, offset = {}, 0
    for parameter in parameters:
        size = _BYTES.get(parameter.type, 8)
        offset = -(-offset // size) * size
        value = int.from_bytes(data[offset : offset + size], "little")
        if parameter.type is CType.ADDRESS and value:
            found[parameter.name] = value
        offset += size
    return found if offset <= len(data) else {}


def nearest_text(address: int, pointers: Mapping[str, int]) -> str:
    """A clause on where an address lies beside the beginnings of arguments, whose sizes are not known."""
    if not pointers:
        return "the dump holds no parameters of the kernel, which would tell the argument"
    before = {name: pointer for name, pointer in pointers.items() if pointer <= address}
    if before:
        name = max(before, key=lambda name: before[name])
        return f"that is {address - before[name]} bytes behind the beginning of {name}, the nearest one before it"
    name = min(pointers, key=lambda name: pointers[name])
    return f"that is {pointers[name] - address} bytes in front of {name}, the first argument in memory"

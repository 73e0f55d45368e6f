"""The address of an instruction of a GPU: its registers, what may have changed them, and the threads of the warp."""

from __future__ import annotations

import pytest

from aoti_debug.package.manifest import CType, KernelParam
from aoti_debug.triage.investigation import gpu_access
from aoti_debug.triage.investigation.gpu_access import AddressRegisters

LOAD = "LDG.E R8,desc[UR8][R2.64]"


@pytest.mark.parametrize(
    ("instruction", "operand"),
    [
        (LOAD, AddressRegisters(2, 0, 4)),
        ("LDG.E.U8.SYS R19,[R2+0xe0]", AddressRegisters(2, 0xE0, 1)),
        ("@!P1 STG.E.128 desc[UR4][R10.64+-0x20],R4", AddressRegisters(10, -0x20, 16, 1, negated=True)),
        ("@P0 LDG.E.64 R6,desc[UR4][R2.64+0x10]", AddressRegisters(2, 0x10, 8, 0)),
        ("LDGSTS.E.BYPASS.128 [R0],desc[UR4][R12.64]", AddressRegisters(12, 0, 16)),
        ("ATOMG.E.ADD.STRONG.GPU PT,R3,desc[UR4][R6.64],R9", AddressRegisters(6, 0, 4)),
        ("LDS R3,[R2]", None),
        ("LDG.E R3,desc[UR8][R2.U32+UR4]", None),
        ("UTMALDG.2D [UR8],[UR4]", None),
        ("EXIT", None),
        ("", None),
    ],
)
def test_the_registers_of_an_address(instruction: str, operand: AddressRegisters | None) -> None:
    assert gpu_access.operand_of(instruction) == operand


@pytest.mark.parametrize(
    ("following", "doubt"),
    [
        ((), ""),
        (("IMAD.WIDE.U32 R4,R9,0x4,R6", "STG.E desc[UR8][R2.64],R3", "@P0 EXIT"), ""),
        (("ISETP.GE.AND P0,PT,R2,R5,PT",), ""),
        (("IADD3 R3,P0,R2,UR4,RZ",), "IADD3 R3,P0,R2,UR4,RZ may have changed the registers of the address"),
        (("IMAD.WIDE R1,R9,0x4,R6",), "IMAD.WIDE R1,R9,0x4,R6 may have changed the registers of the address"),
        (("HMMA.16816.F32 R0,R4,R8,R0",), "HMMA.16816.F32 R0,R4,R8,R0 may have changed the registers of the address"),
        (("@P0 BRA 0x7f0",), "what the warp did after that instruction is not known"),
        (None, "what the warp did after that instruction is not known"),
    ],
)
def test_what_may_have_changed_them(following: tuple[str, ...] | None, doubt: str) -> None:
    found = gpu_access.doubt_of(AddressRegisters(2, 0, 4), LOAD, following)
    assert found.startswith(doubt)
    assert bool(found) == bool(doubt)


def test_a_load_into_its_own_address() -> None:
    found = gpu_access.doubt_of(AddressRegisters(2, 0, 8), "LDG.E.64 R2,desc[UR8][R2.64]", ())
    assert found == "the load itself may have changed the registers of the address"


def printed(*lanes: tuple[int, str]) -> str:
    """What cuda-gdb prints of the lanes that it switches to."""
    focus = (
        "[Switching focus to CUDA kernel 0, grid 1, block (5,0,0), thread ({},0,0), device 0, sm 0, warp 1, lane {}]"
    )
    return "\n".join(f"{focus.format(lane + 32, lane)}\naoti-debug registers {values}" for lane, values in lanes)


def test_a_thread_without_the_predicate_made_no_access() -> None:
    text = printed((0, "10 7f00 1"), (1, "20 7f00 0"))
    kept = gpu_access.accesses_in(text, AddressRegisters(2, 4, 4, 0))
    assert [(access.block, access.thread, access.address) for access in kept] == [
        ("(5,0,0)", "(32,0,0)", 0x7F0000000014)
    ]
    other = gpu_access.accesses_in(text, AddressRegisters(2, 4, 4, 0, negated=True))
    assert [access.thread for access in other] == ["(33,0,0)"]


def test_a_lane_that_was_not_switched_to_has_no_registers() -> None:
    text = printed((0, "10 7f00 1")) + "\naoti-debug registers 10 7f00 1"
    assert len(gpu_access.accesses_in(text, AddressRegisters(2, 0, 4))) == 1


def test_registers_are_asked_for_lane_by_lane() -> None:
    asked = gpu_access.commands(AddressRegisters(2, 0, 4, 1), 0)
    assert asked[:3] == [
        "info cuda lanes",
        r'printf "aoti-debug registers %x %x %x\n", $R2, $R3, $P1',
        "cuda lane 0",
    ]
    assert len(asked) == 2 + 2 * gpu_access.LANES
    assert gpu_access.commands(None, 0) == []
    assert gpu_access.commands(None, 90)[0] == (
        r'printf "aoti-debug word %lx\n", *(unsigned long long *) $_cuda_const_bank(0x0, 0x210)'
    )


PARAMETERS = (
    KernelParam("n", "int32_t", CType.I32),
    KernelParam("in_ptr0", "CUdeviceptr", CType.ADDRESS),
    KernelParam("scale", "float", CType.F32),
    KernelParam("out_ptr0", "CUdeviceptr", CType.ADDRESS),
)


def test_parameters_lie_as_in_a_struct() -> None:
    words = gpu_access.parameters_in(
        "aoti-debug word 40\nerror\naoti-debug word 7000\naoti-debug word 1\naoti-debug word 9000"
    )
    assert gpu_access.pointers(words, PARAMETERS) == {"in_ptr0": 0x7000, "out_ptr0": 0x9000}
    assert gpu_access.pointers(words[:3], PARAMETERS) == {}


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (0x7010, "that is 16 bytes behind the beginning of in_ptr0, the nearest one before it"),
        (0x6FF0, "that is 16 bytes in front of in_ptr0, the first argument in memory"),
    ],
)
def test_the_nearest_pointer(address: int, text: str) -> None:
    assert gpu_access.nearest_text(address, {"in_ptr0": 0x7000, "out_ptr0": 0x9000}) == text

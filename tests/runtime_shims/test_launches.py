"""What the journal says about calls and launches."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from aoti_debug.base.abi import NoteCode
from tests.runtime_shims.journal_decoder import Journal
from tests.runtime_shims.runtime_library import (
    ADDRESS,
    BOOL,
    F32,
    F64,
    HANDLE,
    I64,
    IN,
    INOUT,
    INTS,
    LIST,
    NONE,
    OPAQUE,
    OPTIONAL,
    OPTIONAL_LIST,
    OUT,
    OUTPUT_SLOT,
    POINTER,
    SCALAR,
    SCALAR_REF,
    STRING,
    CValue,
    Handle,
    Runtime,
    Slot,
    address_of,
    handles,
)

Load = Callable[..., Runtime]
Decode = Callable[[], Journal]
UNSET, NULL, TENSOR_VALUE, NUMBER, TEXT, OPAQUE_VALUE, UNDEFINED = range(7)


def bits(value: float) -> int:
    (pattern,) = struct.unpack("<Q", struct.pack("<d", value))
    return int(pattern)


def test_calls_and_launches_are_numbered(load: Load, journal: Decode) -> None:
    runtime = load()
    a, b = runtime.site(4, "kernel_a"), runtime.site(9, "kernel_b")
    with runtime.call(kind=1, model=0xABC, stream=0x10):
        with runtime.launch(a):
            pass
    for _ in range(2):
        with runtime.call(model=0xDEF):
            with runtime.launch(a):
                pass
            with runtime.launch(b):
                pass
    runtime.unload()
    found = journal()
    assert [(r.kind, r.call, r.model, r.stream, r.level) for r in found.of("call_begin")] == [
        (1, 0, 0xABC, 0x10, 3),
        (0, 0, 0xDEF, 0, 3),
        (0, 1, 0xDEF, 0, 3),
    ]
    begins = found.of("launch_begin")
    assert [(r.kind, r.call, r.launch, r.site, r.sequence) for r in begins] == [
        *((1, 0, 0, 4, 1), (0, 0, 0, 4, 2), (0, 0, 1, 9, 3), (0, 1, 0, 4, 4), (0, 1, 1, 9, 5)),
    ]
    assert [(r.kind, r.call, r.launch, r.status, r.flags) for r in found.of("launch_end")] == [
        *((1, 0, 0, 0, 0), (0, 0, 0, 0, 0), (0, 0, 1, 0, 0), (0, 1, 0, 0, 0), (0, 1, 1, 0, 0)),
    ]
    assert [(r.kind, r.call, r.launches, r.failed) for r in found.of("call_end")] == [
        *((1, 0, 1, 0), (0, 0, 2, 0), (0, 1, 2, 0)),
    ]
    assert len(found.of("run_end")) == 1
    assert found.header["level"] == 3
    assert found.header["every"] == 0


def test_tensor_layout(load: Load, journal: Decode) -> None:
    runtime = load()
    site = runtime.site(0, "k", Slot("x"))
    base = torch.zeros(10, 20, dtype=torch.bfloat16)
    view = base[2:].t()
    handle = Handle(view)
    with runtime.call(), runtime.launch(site, handle.value):
        pass
    runtime.unload()
    (begin,) = journal().of("launch_begin")
    tag, _, data, layout = begin.values[0]
    assert (tag, data) == (TENSOR_VALUE, view.data_ptr())
    assert layout == {
        "id": 0,
        "dtype": 15,
        "device_type": 0,
        "device_index": -1,
        "layout": 0,
        "ndim": 2,
        "storage_offset": 40,
        "storage_bytes": 400,
        "shape": (20, 8),
        "strides": (1, 20),
    }


def test_a_list_of_outputs_is_read_after_the_launch(load: Load, journal: Decode) -> None:
    runtime = load()
    site = runtime.site(0, "k", Slot("made", LIST, OUT, element=0), Slot("read", LIST, IN, value=1, element=0))
    given, unmade, made = Handle(torch.zeros(2)), Handle.undefined(), Handle(torch.zeros(4, 5))
    outputs, inputs = handles(unmade), handles(given)
    with runtime.call(), runtime.launch(site, address_of(outputs), address_of(inputs)):
        outputs[0] = made.address
    runtime.unload()
    (begin,), (end,) = journal().of("launch_begin"), journal().of("launch_end")
    assert [begin.values[slot][0] for slot in (0, 1)] == [UNDEFINED, TENSOR_VALUE]
    assert {slot: value[3]["shape"] for slot, value in end.values.items()} == {0: (4, 5)}


def test_every_form(load: Load, journal: Decode) -> None:
    runtime = load()
    x, y = torch.zeros(3), torch.zeros(4, 5)
    hx, hy = Handle(x), Handle(y)
    one = handles(hx)
    pair = handles(hx, None, hy)
    optional_pair = (ctypes.c_uint64 * 2)(0, ctypes.addressof(handles_kept := handles(hy)))
    ints = (ctypes.c_int64 * 3)(7, -8, 9)
    number, truth, real = ctypes.c_int64(-5), ctypes.c_bool(True), ctypes.c_float(0.5)
    expressions = {
        "tensor": (Slot("tensor"), hx.value),
        "none": (Slot("none"), CValue(0, HANDLE)),
        "optional": (Slot("optional", OPTIONAL), address_of(one)),
        "no optional": (Slot("no optional", OPTIONAL), CValue(0, ADDRESS)),
        "list[0]": (Slot("list[0]", LIST, element=0), address_of(pair)),
        "list[1]": (Slot("list[1]", LIST, element=1), address_of(pair)),
        "list[2]": (Slot("list[2]", LIST, element=2), address_of(pair)),
        "olist[0]": (Slot("olist[0]", OPTIONAL_LIST, element=0), address_of(optional_pair)),
        "olist[1]": (Slot("olist[1]", OPTIONAL_LIST, element=1), address_of(optional_pair)),
        "pointer": (Slot("pointer", POINTER), hy.value),
        "raw pointer": (Slot("raw pointer", POINTER), CValue(0x1234, ADDRESS)),
        "scalar": (Slot("scalar", SCALAR, NONE), CValue(2**64 - 3, I64)),
        "real": (Slot("real", SCALAR, NONE), CValue(bits(0.25), F64)),
        "odd": (Slot("odd", SCALAR, NONE), CValue(0, 0)),
        "ref": (Slot("ref", SCALAR_REF, NONE, type=I64), address_of(number)),
        "bool ref": (Slot("bool ref", SCALAR_REF, NONE, type=BOOL), address_of(truth)),
        "float ref": (Slot("float ref", SCALAR_REF, NONE, type=F32), address_of(real)),
        "no ref": (Slot("no ref", SCALAR_REF, NONE, type=I64), CValue(0, ADDRESS)),
        "ints[1]": (Slot("ints[1]", INTS, NONE, element=1), address_of(ints)),
        "text": (Slot("text", STRING, NONE), CValue(ctypes.addressof(ints), ADDRESS)),
        "no text": (Slot("no text", STRING, NONE), CValue(0, ADDRESS)),
        "opaque": (Slot("opaque", OPAQUE, NONE), CValue(77, ADDRESS)),
    }
    slots = [
        Slot(slot.name, slot.form, slot.role, index, slot.element, slot.type)
        for index, (slot, _) in enumerate(expressions.values())
    ]
    site = runtime.site(0, "k", *slots)
    with runtime.call(), runtime.launch(site, *(value for _, value in expressions.values())):
        pass
    runtime.unload()
    assert len(handles_kept) == 1
    (begin,) = journal().of("launch_begin")
    found = {name: begin.values[index] for index, name in enumerate(expressions)}
    tensors = {name: (data, layout["shape"]) for name, (tag, _, data, layout) in found.items() if tag == TENSOR_VALUE}
    of_x, of_y = (x.data_ptr(), (3,)), (y.data_ptr(), (4, 5))
    assert tensors == {
        "tensor": of_x,
        "optional": of_x,
        "list[0]": of_x,
        "list[2]": of_y,
        "olist[1]": of_y,
        "pointer": of_y,
    }
    assert {name: value[:3] for name, value in found.items() if name not in tensors} == {
        "none": (NULL, 0, 0),
        "no optional": (NULL, 0, 0),
        "list[1]": (NULL, 0, 0),
        "olist[0]": (NULL, 0, 0),
        "raw pointer": (NUMBER, ADDRESS, 0x1234),
        "scalar": (NUMBER, I64, 2**64 - 3),
        "real": (NUMBER, F64, bits(0.25)),
        "odd": (OPAQUE_VALUE, 0, 0),
        "ref": (NUMBER, I64, 2**64 - 5),
        "bool ref": (NUMBER, BOOL, 1),
        "float ref": (NUMBER, F32, bits(0.5)),
        "no ref": (NULL, 0, 0),
        "ints[1]": (NUMBER, I64, 2**64 - 8),
        "text": (TEXT, 0, 0),
        "no text": (NULL, 0, 0),
        "opaque": (OPAQUE_VALUE, 0, 0),
    }


def test_outputs_are_read_after_the_launch(load: Load, journal: Decode) -> None:
    runtime = load()
    garbage = (ctypes.c_uint64 * 2)(0xDEAD, 0xBEEF)
    number = ctypes.c_int64(11)
    site = runtime.site(
        0,
        "k",
        Slot("out", OUTPUT_SLOT, OUT, 0),
        Slot("none", OUTPUT_SLOT, OUT, 1),
        Slot("unused", OUTPUT_SLOT, OUT, 2),
        Slot("count", SCALAR_REF, OUT, 3, type=I64),
    )
    out = Handle(torch.zeros(2, 2))
    second = CValue(ctypes.addressof(garbage) + 8, ADDRESS)
    with runtime.call(), runtime.launch(site, address_of(garbage), second, CValue(0, ADDRESS), address_of(number)):
        garbage[0], garbage[1] = out.address, 0
        number.value = 42
    runtime.unload()
    (begin,), (end,) = journal().of("launch_begin"), journal().of("launch_end")
    assert {slot: value[0] for slot, value in begin.values.items()} == {0: UNSET, 1: UNSET, 2: NULL, 3: UNSET}
    assert {slot: value[0] for slot, value in end.values.items()} == {0: TENSOR_VALUE, 1: NULL, 2: NULL, 3: NUMBER}
    assert end.values[0][3]["shape"] == (2, 2)
    assert end.values[3][2] == 42


def test_outputs_of_a_failed_launch_are_not_read(load: Load, journal: Decode) -> None:
    runtime = load()
    garbage = (ctypes.c_uint64 * 1)(0xDEAD)
    site = runtime.site(0, "k", Slot("out", OUTPUT_SLOT, OUT, 0))
    with runtime.call():
        launch = runtime.open_launch(site, address_of(garbage))
        launch.end(status=1)
    runtime.unload()
    (end,) = journal().of("launch_end")
    assert end.values[0][0] == UNSET


def test_undefined_sparse_and_quantized_tensors(load: Load, journal: Decode) -> None:
    runtime = load(LEVEL=2)
    site = runtime.site(0, "k", Slot("sparse", value=0), Slot("quantized", value=1), Slot("undefined", value=2))
    sparse = torch.eye(4).to_sparse()
    quantized = torch.quantize_per_tensor(torch.randn(5), 0.1, 3, torch.qint8)
    given = Handle(sparse), Handle(quantized), Handle.undefined()
    with runtime.call(), runtime.launch(site, *(handle.value for handle in given)):
        pass
    runtime.unload()
    (begin,) = journal().of("launch_begin")
    assert begin.values[0][3]["layout"] == 1
    assert begin.values[0][3]["shape"] == ()
    assert begin.values[1][3]["dtype"] == 12
    assert begin.values[2][0] == UNDEFINED
    skipped = journal().of("tensor_stats")
    assert [(r.slot, r.flags, r.tail.decode()) for r in skipped] == [
        (0, 2, "not read: layout sparse_coo"),
        (1, 2, "not read: quantized qint8"),
    ]


def test_iterations_of_loops(load: Load, journal: Decode) -> None:
    runtime = load()
    site = runtime.site(0, "k")

    def launch() -> None:
        with runtime.launch(site):
            pass

    with runtime.call():
        runtime.lib.h_loop_enter()
        launch()
        runtime.lib.h_loop_next()
        for _ in range(5):
            runtime.lib.h_loop_enter()
        launch()
        for _ in range(5):
            runtime.lib.h_loop_next()
            runtime.lib.h_loop_leave()
        launch()
        runtime.lib.h_loop_leave()
        launch()
    runtime.unload()
    loops = [(r.n_loops, r.loop0, r.loop1, r.loop2, r.loop3) for r in journal().of("launch_begin")]
    assert loops == [(1, 0, 0, 0, 0), (4, 1, 0, 0, 0), (1, 1, 0, 0, 0), (0, 0, 0, 0, 0)]


def test_grid_belongs_to_the_innermost_launch(load: Load, journal: Decode) -> None:
    runtime = load()
    site = runtime.site(0, "call_k", grid=True)
    kernel = runtime.kernel(3, "k", ADDRESS, I64, 4, F32, BOOL)
    pointer, wide, narrow = ctypes.c_uint64(0x7F00), ctypes.c_int64(-1), ctypes.c_int32(-2)
    real, truth = ctypes.c_float(1.5), ctypes.c_bool(True)
    arguments = (ctypes.c_void_p * 5)(*(ctypes.addressof(v) for v in (pointer, wide, narrow, real, truth)))
    grid = (ctypes.c_uint32 * 3)(12, 3, 1)
    with runtime.call():
        with runtime.launch(site):
            runtime.lib.h_grid(kernel, grid, 4, 1024, arguments)
        with runtime.launch(site):
            pass
    runtime.lib.h_grid(kernel, grid, 4, 1024, arguments)  # outside any launch
    runtime.unload()
    (record,) = journal().of("grid")
    assert (record.call, record.launch, record.kernel) == (0, 0, 3)
    assert (record.x, record.y, record.z, record.num_warps, record.shared_bytes) == (12, 3, 1, 4, 1024)
    assert record.arguments == (0x7F00, 2**64 - 1, 2**64 - 2, bits(1.5), 1)
    assert [r.flags for r in journal().of("launch_end")] == [0, 1]


def test_shim_error_is_a_fault(load: Load, journal: Decode, capfd: pytest.CaptureFixture[str]) -> None:
    runtime = load()
    site = runtime.site(0, "aoti_torch_index_put_out")
    with runtime.call():
        runtime.open_launch(site).end(status=1)
        with runtime.launch(site):
            pass
    runtime.unload()
    (fault,) = journal().of("fault")
    assert (fault.call, fault.launch, fault.in_launch, fault.domain, fault.code) == (0, 0, 1, 2, 1)
    assert [r.status for r in journal().of("launch_end")] == [1, 0]
    assert journal().of("call_end")[0].failed == 0
    assert "0.0 FAULT in aoti_torch_index_put_out" in capfd.readouterr().err


def test_exception_is_a_fault(load: Load, journal: Decode) -> None:
    runtime = load()
    site = runtime.site(0, "k")
    with pytest.raises(RuntimeError), runtime.call(), runtime.launch(site):
        raise RuntimeError("out of bounds")
    runtime.unload()
    (fault,) = journal().of("fault")
    assert (fault.in_launch, fault.domain, fault.code, fault.text) == (1, 1, -1, "out of bounds")
    assert journal().of("call_end")[0].failed == 1


def test_exception_outside_any_launch(load: Load, journal: Decode) -> None:
    runtime = load()
    with pytest.raises(RuntimeError), runtime.call():
        raise RuntimeError("out of memory")
    runtime.unload()
    (fault,) = journal().of("fault")
    assert (fault.in_launch, fault.domain) == (0, 1)


def test_generated_code(load: Load, journal: Decode) -> None:
    runtime = load()
    runtime.site(0, "cpp_fused_0", Slot("x", TENSOR_FORM), Slot("p", POINTER, IN, 1), Slot("s", SCALAR, NONE, 2))
    runtime.site(1, "aoti_torch_clone", Slot("x", TENSOR_FORM, INOUT), Slot("y", OUTPUT_SLOT, OUT, 1))
    x = Handle(torch.arange(3.0))
    run_model = runtime.lib.h_run_model
    run_model.argtypes = (ctypes.c_void_p, ctypes.c_int)
    assert run_model(x.address, 0) == 0
    assert run_model(x.address, 1) == -1
    assert run_model(x.address, 2) == 1
    runtime.unload()
    begins = journal().of("launch_begin")
    assert [(r.call, r.launch, r.site, r.n_loops) for r in begins] == [
        *((0, 0, 0, 1), (0, 1, 1, 0), (1, 0, 0, 1), (1, 1, 1, 0), (2, 0, 0, 1), (2, 1, 1, 0)),
    ]
    assert begins[0].values[1][:3] == (NUMBER, ADDRESS, 0)
    assert begins[0].values[2][:3] == (NUMBER, F64, bits(0.5))
    faults = [(r.call, r.launch, r.domain, r.code, r.text) for r in journal().of("fault")]
    assert faults[0] == (1, 1, 1, -1, "a planted fault")
    assert faults[1][:4] == (2, 1, 2, 1)
    assert [r.failed for r in journal().of("call_end")] == [0, 1, 0]


TENSOR_FORM = 0


def test_more_slots_than_a_block_holds(load: Load, journal: Decode) -> None:
    runtime = load()
    site = runtime.site(0, "wide", *(Slot(f"x{i}", value=i) for i in range(6000)))
    x = Handle(torch.zeros(1))
    with runtime.call(), runtime.launch(site, *([x.value] * 6000)):
        pass
    with runtime.call(), runtime.launch(site, *([x.value] * 6000)):
        pass
    runtime.unload()
    for begin in journal().of("launch_begin"):
        assert 3500 < len(begin.values) < 4096
        assert {value[0] for value in begin.values.values()} == {TENSOR_VALUE}


def test_more_layouts_than_a_block_holds(load: Load, journal: Decode) -> None:
    runtime = load()
    site = runtime.site(0, "wide", *(Slot(f"x{i}", value=i) for i in range(700)))
    tensors = [Handle(torch.zeros(i + 1, 1, 1, 1)) for i in range(700)]
    with runtime.call(), runtime.launch(site, *(handle.value for handle in tensors)):
        pass
    runtime.unload()
    (begin,) = journal().of("launch_begin")
    known = [value for value in begin.values.values() if value[0] == TENSOR_VALUE]
    assert 300 < len(known) < 700
    assert [value[3]["shape"][0] for value in known] == list(range(1, len(known) + 1))
    assert {value[0] for value in begin.values.values()} == {TENSOR_VALUE, OPAQUE_VALUE}


def test_struct_sizes_of_the_compiler(library: Path) -> None:
    from aoti_debug.base import abi

    sizeof = ctypes.CDLL(str(library)).h_sizeof
    assert {s.name: sizeof(s.name.encode()) for s in abi.STRUCTS} == {s.name: s.size for s in abi.STRUCTS}


def test_changes_of_weights_are_noted(load: Load, journal: Decode) -> None:
    runtime = load()
    site = runtime.site(0, "k")
    runtime.lib.h_weights(b"updated", 1, 0)  # before the first call, too
    with runtime.call(), runtime.launch(site):
        pass
    runtime.lib.h_weights(b"swapped", 0, 1)
    runtime.unload()
    found = [(note.code, note.text) for note in journal().of("note")]
    assert found == [
        (NoteCode.WEIGHTS, "weights: updated, on the inactive side, some of them"),
        (NoteCode.WEIGHTS, "weights: swapped, on the active side"),
    ]


def test_changes_of_weights_leave_nothing_at_level_0(load: Load, run: Path) -> None:
    runtime = load(LEVEL=0)
    runtime.lib.h_weights(b"updated", 0, 1)
    runtime.unload()
    assert list(run.iterdir()) == []

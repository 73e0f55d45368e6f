"""Races of host threads, in runs whose launches, times and addresses are made up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from aoti_debug.compare.bisect.threads_text import race_lines, races_document, unsearched
from aoti_debug.compare.diff import thread_races
from aoti_debug.compare.diff.thread_races import Meanwhile, ThreadRace
from aoti_debug.package.argument_values import Absent, Tensor
from aoti_debug.package.manifest import Arg, Constant, Form, Kind, Manifest, Role
from aoti_debug.package.stream_order import StreamOrder
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from tests import factories
from tests.factories import JournalWriter, arg, make_manifest, site, tensor

HERE = tensor(64, data_ptr=0x1000)  # 256 bytes
BEHIND = tensor(64, data_ptr=0x1100)


@dataclass(frozen=True)
class Step:
    """A launch of a call, which has one argument.

    Attributes:
        call: also the thread that makes it, but for `thread`.
        begin, end: microseconds.
        stream: of its call.
        side: it runs on another stream.
        loops: the iterations of the loops that it is in.
    """

    call: int
    begin: int
    end: int
    argument: Arg
    tensor: Tensor = HERE
    kind: Kind = Kind.CPP
    thread: int | None = None
    stream: int = 5
    side: bool = False
    loops: tuple[int, ...] = ()


def read(name: str = "buf0") -> Arg:
    return arg(name, Role.IN, base=name)


def written(name: str = "buf0", role: Role = Role.OUT) -> Arg:
    return arg(name, role, base=name)


def returned(name: str = "buf0") -> Arg:
    return arg(name, Role.OUT, Form.OUTPUT_SLOT, base=name)


def found(base: Path, *steps: Step, **made: Any) -> tuple[ThreadRace, ...]:
    """The races of a run."""
    return thread_races.find(recorded(base, *steps, **made))


def recorded(
    base: Path,
    *steps: Step,
    weights: tuple[str, ...] = (),
    outputs: tuple[str, ...] = (),
    device: str = "cpu",
    several: StreamOrder | None = None,
    crumbs: bytes | None = None,
) -> RunDir:
    """A run. Each call begins with its first launch and ends with its last one."""
    writer = JournalWriter()
    events: list[tuple[int, int, str, int]] = []
    for number, step in enumerate(steps):
        events += [(step.begin, 1, "launch", number), (step.end, 2, "return", number)]
    for call in {step.call for step in steps}:
        own = [step for step in steps if step.call == call]
        events.append((min(step.begin for step in own), 0, "call", call))
        events.append((max(step.end for step in own), 3, "called", call))
    order: dict[int, int] = {}
    places: dict[int, int] = {}
    for time, _, what, number in sorted(events):
        writer.time_ns = 1000 * time
        if what in ("call", "called"):
            of_call = next(step for step in steps if step.call == number)
            writer.thread = _thread(of_call)
            if what == "call":
                writer.call_begin(number, stream_slot=number, stream=of_call.stream)
            else:
                writer.call_end(number)
            continue
        step = steps[number]
        writer.thread = _thread(step)
        is_slot = step.argument.form is Form.OUTPUT_SLOT
        if what == "launch":
            places[number] = order[step.call] = order.get(step.call, -1) + 1
            value = Absent.UNSET if is_slot else step.tensor
            slot = 2 if step.side else step.call
            writer.launch_begin(places[number], number, value, call=step.call, stream_slot=slot, loops=step.loops)
        else:
            writer.launch_end(places[number], {0: step.tensor} if is_slot else None, call=step.call)
    sites = [site(f"kernel_{number}", step.argument, kind=step.kind) for number, step in enumerate(steps)]
    made: Manifest = make_manifest(*sites, device=device)
    constants = tuple(Constant(name, name, "float32", (64,), (1,), False, "Buffer") for name in weights)
    made = replace(made, constants=constants, outputs=outputs, stream_order=several)
    return open_run(factories.run_directory(base, made, writer, crumbs=crumbs))


def _thread(step: Step) -> int:
    return 10 + step.call if step.thread is None else step.thread


def test_two_launches_at_the_same_time(tmp_path: Path) -> None:
    (race,) = found(tmp_path, Step(0, 10, 20, written()), Step(1, 15, 25, read("buf3")))
    assert (race.first.launch.id, race.first.does, race.first.thread) == ("0.0", "writes", 10)
    assert (race.second.launch.id, race.second.does, race.second.thread) == ("1.0", "reads", 11)
    assert (race.memory, race.bytes, race.meanwhile, race.doubt) == ("buf0", (0, 256), Meanwhile.BOTH_RAN, "")
    assert not race.is_shared


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Step(0, 10, 20, read()), Step(1, 15, 25, read())),  # nothing is written
        (Step(0, 10, 20, written()), Step(1, 15, 25, read(), BEHIND)),  # other bytes
        (Step(0, 10, 20, written()), Step(1, 30, 40, written())),  # the allocator may have given it to the other call
        (Step(0, 10, 20, written()), Step(1, 15, 25, read(), thread=10)),  # one thread
    ],
)
def test_no_race(tmp_path: Path, first: Step, second: Step) -> None:
    assert found(tmp_path, first, second) == ()


def test_between_two_launches_of_a_call_that_holds_the_memory(tmp_path: Path) -> None:
    steps = (Step(0, 10, 20, written()), Step(0, 50, 60, read()), Step(1, 30, 40, written("buf7")))
    (race,) = found(tmp_path, *steps)
    assert (race.first.launch.id, race.second.launch.id) == ("0.0", "1.0")
    assert race.meanwhile is Meanwhile.BETWEEN
    assert [launch.id for launch in race.around] == ["0.0", "0.1"]


def test_launches_that_use_other_bytes_are_not_around_it(tmp_path: Path) -> None:
    steps = (
        Step(0, 10, 20, written("count")),
        Step(0, 50, 60, read("count"), BEHIND),
        Step(1, 30, 40, written("count")),
    )
    (race,) = found(tmp_path, *steps, weights=("count",))
    assert (race.meanwhile, race.around, race.doubt) == (Meanwhile.BOTH_CALLS, (), "")


def test_memory_that_a_launch_allocates_is_there_when_it_ends(tmp_path: Path) -> None:
    """The other call may have freed it just before; not if that uses it after the launch has ended."""
    first = Step(0, 10, 20, written())
    slot = Step(1, 15, 30, returned("buf7"), kind=Kind.SHIM_ALLOC)
    assert found(tmp_path / "freed", first, slot) == ()
    (race,) = found(tmp_path / "held", first, Step(0, 40, 50, read()), slot)
    assert (race.second.does, race.meanwhile, race.doubt) == ("returns", Meanwhile.BETWEEN, "")


def test_of_an_operator_of_the_models_own_it_is_not_known_whether_it_wrote_what_it_returns(tmp_path: Path) -> None:
    steps = (Step(0, 10, 20, read()), Step(0, 40, 50, read()), Step(1, 25, 30, returned(), kind=Kind.PROXY))
    (race,) = found(tmp_path, *steps)
    assert race.doubt == "it is not known whether what is returned was written"


def test_calls_that_overlap_share_a_state(tmp_path: Path) -> None:
    """Also where the launches did not run at the same time."""
    state = written("count", Role.INOUT)
    steps = (Step(0, 10, 20, state), Step(0, 50, 60, read("buf9"), BEHIND), Step(1, 30, 40, state))
    (race,) = found(tmp_path / "overlap", *steps, weights=("count",))
    assert (race.memory, race.is_shared, race.meanwhile, race.doubt) == ("count", True, Meanwhile.BOTH_CALLS, "")
    assert found(tmp_path / "apart", steps[0], steps[2], weights=("count",)) == ()


def test_the_bytes_of_a_state_are_those_from_its_beginning(tmp_path: Path) -> None:
    parts = (tensor(16, storage_offset=begin, data_ptr=0x1000 + 4 * begin) for begin in (8, 16))
    steps = [Step(call, 10 + call, 20 + call, written("count"), part) for call, part in enumerate(parts)]
    (race,) = found(tmp_path, *steps, weights=("count",))
    assert race.bytes == (64, 96)


def test_operators_of_the_models_own_may_hold_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = written("count", Role.INOUT)
    monkeypatch.setattr(thread_races, "_changed_in", lambda launch, argument: True)  # no hashes are recorded here
    steps = [Step(call, 10 + call, 20 + call, state, kind=Kind.PROXY) for call in (0, 1)]
    (race,) = found(tmp_path, *steps, weights=("count",))
    assert race.doubt == "both are operators of the model's own, which may hold a lock"


def test_an_operator_of_which_only_the_schema_says_that_it_writes(tmp_path: Path) -> None:
    steps = (Step(0, 10, 20, read("count")), Step(1, 15, 25, written("count", Role.INOUT), kind=Kind.PROXY))
    (race,) = found(tmp_path, *steps, weights=("count",))
    assert race.doubt == "only its schema says that it is written: it was not seen to change"


def test_a_call_holds_its_output_until_it_ends(tmp_path: Path) -> None:
    steps = (Step(0, 10, 20, written("buf9")), Step(0, 50, 60, read("buf0"), BEHIND), Step(1, 30, 40, written("buf7")))
    assert found(tmp_path / "no output", *steps) == ()
    (race,) = found(tmp_path / "output", *steps, outputs=("buf9",))
    assert (race.first.launch.id, race.second.launch.id) == ("0.0", "1.0")


def test_an_output_that_a_loop_carries_is_other_memory_each_time(tmp_path: Path) -> None:
    """A call holds what it reads in one iteration until the last launch of that iteration that uses it."""
    steps = (
        Step(0, 10, 20, read("buf2"), loops=(0,)),
        Step(0, 30, 40, read("buf2"), loops=(1,)),
        Step(0, 80, 90, read("buf0"), BEHIND),
        Step(1, 50, 60, written("buf7")),
    )
    assert found(tmp_path, *steps, outputs=("buf2",)) == ()


def test_a_launch_that_may_write_is_a_doubt(tmp_path: Path) -> None:
    unknown = written("table", Role.UNKNOWN)
    (race,) = found(tmp_path, Step(0, 10, 20, unknown), Step(1, 15, 25, unknown), weights=("table",))
    assert race.doubt == "it is not known whether it is written"


def test_parts_of_a_buffer_without_a_byte_in_common(tmp_path: Path) -> None:
    even, odd = (tensor(32, strides=(2,), data_ptr=0x1000 + 4 * begin) for begin in (0, 1))
    steps = (Step(0, 10, 20, written(), even), Step(1, 15, 25, read(), odd))
    assert found(tmp_path, *steps) == ()


def test_a_stream_of_a_device_orders_its_launches(tmp_path: Path) -> None:
    """Of one stream each model of a loader has a slot of its own."""
    there = tensor(64, data_ptr=0x1000, device="cuda:0")
    one, other = Step(0, 10, 20, written(), there), Step(1, 15, 25, read(), there)
    assert found(tmp_path / "one", one, other, device="cuda") == ()
    (race,) = found(tmp_path / "two", one, replace(other, stream=7), device="cuda")
    assert race.doubt == ""
    of_thread = [replace(step, stream=2) for step in (one, other)]  # CU_STREAM_PER_THREAD
    (race,) = found(tmp_path / "of thread", *of_thread, device="cuda")
    assert race.doubt == ""
    (race,) = found(tmp_path / "default", one, replace(other, stream=0), device="cuda")
    assert race.doubt == "the default stream of the device may order them"


def test_of_several_streams_the_breadcrumbs_have_the_handles(tmp_path: Path) -> None:
    there = tensor(64, data_ptr=0x1000, device="cuda:0")
    steps = (Step(0, 10, 20, written(), there, side=True), Step(1, 15, 25, read(), there))
    several = StreamOrder((1,), ())
    (race,) = found(tmp_path / "with", *steps, device="cuda", several=several, crumbs=factories.crumbs(0, 0, 0))
    assert race.doubt == ""
    (race,) = found(tmp_path / "without", *steps, device="cuda", several=several)
    assert race.doubt == "it is not known whether they are on one stream"


def test_each_memory_is_one_race(tmp_path: Path) -> None:
    state = written("count", Role.INOUT)
    steps = [Step(call, 10 + call, 20 + call, state) for call in range(4)]
    (race,) = found(tmp_path, *steps, weights=("count",))
    assert race.calls == 6


def test_pairs_of_calls_with_weaker_evidence_do_not_count(tmp_path: Path) -> None:
    state = written("count", Role.INOUT)
    steps = [
        Step(0, 10, 20, state),
        Step(1, 15, 25, state),
        Step(2, 5, 6, read("buf9"), BEHIND),
        Step(2, 30, 40, state),
    ]
    (race,) = found(tmp_path, *steps, weights=("count",))
    assert (race.meanwhile, race.calls) == (Meanwhile.BOTH_RAN, 1)


@pytest.mark.parametrize(("most", "launches"), [(1, 2), (2, 2)])
def test_launches_that_are_not_looked_at_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, launches: int
) -> None:
    monkeypatch.setattr(thread_races, "MOST_LAUNCHES", most)
    run = recorded(tmp_path, Step(0, 10, 20, written()), Step(1, 15, 25, read("buf3")))
    races = thread_races.find(run)
    assert len(races) == most - 1
    assert races_document(races, run)["races_unsearched"] == launches - most
    said = "note: only the first 1 of 2 launches were looked at for races of threads: the others may have some"
    assert (said in race_lines(races, run)) == (most < launches)


def test_a_run_of_one_thread_has_no_race_that_was_not_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_races, "MOST_LAUNCHES", 1)
    run = recorded(tmp_path, Step(0, 10, 20, written()), Step(0, 25, 35, read("buf3")))
    assert unsearched(run) == 0

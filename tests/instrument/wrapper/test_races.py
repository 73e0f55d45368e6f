"""Races between streams: each that is planted is found, with both launches; wrappers without one have none."""

from __future__ import annotations

from itertools import product

import pytest

from aoti_debug.instrument.wrapper.model_variables import UNKNOWN, WHOLE, Elements, overlap
from aoti_debug.package.stream_order import Race
from tests.instrument.wrapper import planted_races, race_kinds, texts
from tests.instrument.wrapper.planted_races import NAMES, Planted, clean, order_of, races_of
from tests.instrument.wrapper.race_kinds import Kind

PLANTED = tuple(planted_races.planted())


@pytest.mark.parametrize("name", NAMES)
def test_no_race(name: str) -> None:
    order = order_of(clean(name))
    assert order.streams in ((1,), (1, 2))
    assert order.races == ()
    assert order.undecided == ()


@pytest.mark.parametrize("name", [n for n in texts.NAMES if "_streams" not in n and "_overlapping" not in n])
def test_a_wrapper_of_one_stream_has_no_order_of_streams(name: str) -> None:
    assert texts.analysis(name).stream_order is None


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: f"{planted.wrapper}: no {planted.lacks}")
def test_a_planted_race(planted: Planted) -> None:
    assert races_of(planted.text) == planted.pairs


@pytest.mark.parametrize("version", ["2.14.1", "2.15.0"])
def test_torch_gives_kernels_of_a_side_stream_the_stream_of_the_call(version: str) -> None:
    """The example of its golden wrapper: relu runs on stream 0, and the product of its result on stream 1."""
    assert races_of(texts.text(f"torch_{version}_streams")) == {
        ("triton_poi_fused_relu_0", "aoti_torch_cuda_mm_out", "buf0")
    }


def test_kernels_between_two_products_of_a_side_stream() -> None:
    assert races_of(planted_races.as_generated("side_kernels")) == {
        ("aoti_torch_cuda_mm_out", "triton_poi_fused_add_tanh_1", "buf5"),
        ("triton_poi_fused_add_tanh_1", "aoti_torch_cuda_mm_out", "buf6"),
    }


def test_inductor_reuses_a_buffer_that_a_side_stream_still_reads() -> None:
    assert races_of(planted_races.as_generated("fork_join")) == {
        ("aoti_torch_cuda_mm_out", "triton_poi_fused_add_sin_1", "buf0")
    }


OVERLAPPING = texts.text("torch_2.15.0_overlapping")
WAITS = "        tl.extra.cuda.gdc_wait()\n"
LETS_BEGIN = "        tl.extra.cuda.gdc_launch_dependents()\n"


def _early(text: str) -> list[tuple[int, int, str, bool]]:
    return [(race.first.site, race.second.site, race.memory, bool(race.doubt)) for race in order_of(text).races]


def test_kernels_that_begin_early_and_wait() -> None:
    """A softmax in two kernels. The second reads the product before it waits: the first has waited for that."""
    assert (order_of(OVERLAPPING).streams, order_of(OVERLAPPING).undecided, _early(OVERLAPPING)) == ((), (), [])


def test_a_kernel_that_reads_before_it_waits_what_the_one_before_it_writes() -> None:
    first, second, third = OVERLAPPING.split(WAITS)
    late = second + third.replace(LETS_BEGIN, f"{LETS_BEGIN}{WAITS}")
    assert _early(first + WAITS + late) == [(3, 4, "buf1", False), (3, 4, "buf2", False)]


def test_a_kernel_that_never_waits() -> None:
    """It races with the one before it; then the one behind it, which relies on its wait, races with what is before."""
    first, second, third = OVERLAPPING.split(WAITS)
    assert _early(first + WAITS + second + third) == [(3, 4, "buf1", False), (3, 4, "buf2", False)]
    assert _early(first + second + WAITS + third) == [(2, 3, "buf0", True), (2, 4, "buf0", True)]


def test_a_kernel_that_writes_early_what_the_one_before_it_reads() -> None:
    text = OVERLAPPING.replace("sum_1(buf0, buf1, buf2, buf3,", "sum_1(buf0, buf1, buf2, buf0,")
    store = "        tl.store(out_ptr0 + (x0), tmp11, xmask)\n"
    at = text.rindex(WAITS)
    races = _early(text[:at] + store + text[at:])
    assert races == [(3, 4, "buf0", False)]


def test_a_kernel_whose_predecessor_does_not_let_it_begin() -> None:
    at = OVERLAPPING.index(LETS_BEGIN)
    text = OVERLAPPING[:at] + OVERLAPPING[at + len(LETS_BEGIN) :]
    at = text.rindex(WAITS)
    (one, _) = order_of(text[:at] + text[at + len(WAITS) :]).races
    assert one.doubt == "triton_per_fused__softmax_relu_0 is not known to let it begin before it has ended"


def test_a_source_that_is_not_understood_is_said() -> None:
    text = OVERLAPPING.replace("        x0 = xindex\n        tl.extra", "        x0 = = xindex\n        tl.extra")
    assert text != OVERLAPPING
    assert order_of(text).undecided == ("what triton_per_fused__softmax_relu_0 does before it waits is not known",)


def test_the_bytes_that_both_use() -> None:
    """Of a whole buffer; of two parts of a concatenation that lie between each other; of a pool."""
    found = {(p.wrapper, p.lacks): order_of(p.text).races[0].bytes for p in PLANTED}
    assert found["fork_join", "wait for event 2 on stream 1"] == (0, 64 * 64 * 4)
    assert found["two_branches", "wait for event 5 on stream 0"] == (256, 32768)
    assert order_of(planted_races.as_generated("pools")).races[0].bytes == (16384, 16640)


def test_buffers_that_lie_in_the_same_bytes_of_a_pool() -> None:
    """The planned memory of the pipeline: a sum on the stream of the call is written where the products are read."""
    text = planted_races.as_generated("pools")
    order = order_of(text)
    assert [(r.first.stream, r.first.argument, r.second.argument, r.memory, r.doubt) for r in order.races] == [
        (1, "buf5", "buf16", "pool1", ""),
        (2, "buf5", "buf16", "pool1", ""),
    ]
    apart = text.replace(
        "(pool1, 16384L, cached_torch_dtype_float32, 1", "(pool1, 32768L, cached_torch_dtype_float32, 1"
    )
    assert apart != text
    assert order_of(apart).races == ()
    symbolic = text.replace(
        "(pool1, 16384L, cached_torch_dtype_float32, 1", "(pool1, 4L*s0, cached_torch_dtype_float32, 1"
    )
    doubts = {race.doubt for race in order_of(symbolic).races}
    assert doubts == {"it is not known whether they touch the same bytes of it"}


def test_memory_that_is_given_back_while_another_stream_uses_it() -> None:
    """A buffer of stream 1 that a product on stream 2 reads, then one more buffer and product on stream 1."""
    text = clean("pipeline")
    after = next(line for line in text.splitlines() if "arg1_1.reset();" in line)
    enter = next(line for line in text.splitlines() if "StreamGuard>(_aoti_aux_stream_cache.get(1," in line)
    more = f"""
{enter}
    AtenTensorHandle buf40_handle;
    RAIIAtenTensorHandle buf40(buf40_handle);
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cuda_mm_out(buf40, arg1_1, arg1_1));
    _aoti_current_stream_guard.reset();
"""
    assert "    buf5.reset();\n" in text
    end = "    _aoti_current_stream_guard.reset();\n"
    at = text.rindex(end) + len(end)
    race = only_race(text[:at] + more + text[at:].replace(after, "", 1))
    assert (race.first.site, race.first.stream, race.second.stream, race.memory) == (4, 2, 1, "buf5")
    assert race.doubt == "the allocator may give the memory of buf5 to buf40"
    waits = more.replace(
        "    AtenTensorHandle",
        "    AOTI_RUNTIME_CUDA_CHECK(cudaStreamWaitEvent(_aoti_aux_stream_cache.get(1, this->device_idx_, stream), "
        "_aoti_event_cache.get(5, this->device_idx_), 0));\n    AtenTensorHandle",
    )
    assert order_of(text[:at] + waits + text[at:]).races == ()


def test_the_launches_that_each_launch_waits_for() -> None:
    """Of the pipeline: sites 2, 5 and 6 on the stream of the call, 3 on stream 1, 4 on stream 2."""
    sites = planted_races.analysed(clean("pipeline")).sites
    assert [site.stream for site in sites] == [0, 0, 0, 1, 2, 0, 0]
    assert [site.waits_for for site in sites] == [(), (), (), (2,), (2, 3), (), (3, 4)]


def test_a_launch_in_a_branch_waits_for_nothing_that_is_sure() -> None:
    launch = "    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cuda_mm_out(buf5, buf0, arg1_1));"
    sites = planted_races.analysed(without("fork_join", launch, f"    if (some) {{\n{launch}\n    }}")).sites
    assert sites[3].waits_for == ()


def only_race(text: str) -> Race:
    (race,) = order_of(text).races
    return race


def without(name: str, old: str, new: str = "") -> str:
    text = clean(name)
    assert text.count(old) == 1
    return text.replace(old, new)


WAIT = "AOTI_RUNTIME_CUDA_CHECK(cudaStreamWaitEvent(stream, _aoti_event_cache.get(3, this->device_idx_), 0));"
RECORD = (
    "AOTI_RUNTIME_CUDA_CHECK(cudaEventRecord(_aoti_event_cache.get(3, this->device_idx_), "
    "_aoti_aux_stream_cache.get(1, this->device_idx_, stream)));"
)


@pytest.mark.parametrize(
    ("old", "new", "missing"),
    [
        (RECORD, "", "no event is recorded on stream 1 between them"),
        (WAIT, "", "event 3 is recorded on stream 1 between them, and nothing waits for it between them"),
        (
            WAIT,
            WAIT.replace("(stream,", "(_aoti_aux_stream_cache.get(2, this->device_idx_, stream),"),
            "event 3 is recorded on stream 1 between them, and only stream 2 waits for it",
        ),
    ],
)
def test_what_is_missing(old: str, new: str, missing: str) -> None:
    race = only_race(without("fork_join", old, new))
    assert race.missing == missing
    assert (race.first.stream, race.first.does, race.second.stream, race.second.does) == (1, "writes", 0, "reads")


@pytest.mark.parametrize(
    "instead",
    [
        "AOTI_RUNTIME_CUDA_CHECK(cudaEventSynchronize(_aoti_event_cache.get(3, this->device_idx_)));",
        "CUDA_DRIVER_CHECK(cuCtxSynchronize());",
    ],
)
def test_the_host_waits(instead: str) -> None:
    assert order_of(without("fork_join", WAIT, instead)).races == ()


@pytest.mark.parametrize(
    "instead",
    [
        f"if (some) {{ {WAIT} }}",
        f"if (some) {WAIT}",
        "AOTI_RUNTIME_CUDA_CHECK(cudaStreamSynchronize(elsewhere));",
    ],
)
def test_what_may_wait_leaves_a_doubt(instead: str) -> None:
    race = only_race(without("fork_join", WAIT, instead))
    assert race.doubt == "an operator that may wait, a branch, or what is not read may order them"


def test_what_is_not_read_is_said() -> None:
    order = order_of(without("fork_join", WAIT, f"{WAIT} AOTI_RUNTIME_CUDA_CHECK(cudaStreamSynchronize(elsewhere));"))
    assert order.races == ()
    assert order.undecided == ("cudaStreamSynchronize is not read: it may order streams",)


def test_a_call_that_is_not_read_may_order() -> None:
    order = order_of(without("fork_join", WAIT, "kernels.launch_something(buf5.data_ptr(), stream);"))
    assert [race.doubt for race in order.races] == [
        "an operator that may wait, a branch, or what is not read may order them"
    ]
    (sentence,) = order.undecided
    assert sentence.endswith("of the wrapper is not read: it may launch, and may order streams")


def test_a_wait_before_the_record_orders_nothing() -> None:
    order = order_of(without("fork_join", RECORD))
    assert order.undecided == ("event 3 is waited for before this call has recorded it, which orders nothing in it",)


def test_a_launch_in_a_branch_is_no_certain_race() -> None:
    launch = "    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cuda_mm_out(buf5, buf0, arg1_1));"
    text = without("fork_join", WAIT).replace(launch, f"    if (some) {{\n{launch}\n    }}")
    assert {race.doubt for race in order_of(text).races} == {"one of them runs only in a branch or a loop"}


def test_the_roles_of_a_kernel_that_are_not_known() -> None:
    """Whether the kernel writes the buffer that the product reads: nothing says."""
    text = planted_races.as_generated("fork_join").replace(
        "triton_heuristics.pointwise(", "triton_heuristics.user_autotune("
    )
    races = [race for race in order_of(text).races if race.memory == "buf0"]
    assert [(race.second.does, race.doubt) for race in races] == [
        ("may write", "it is not known whether it is written")
    ]


def test_an_output_stays_behind_on_a_side_stream() -> None:
    text = clean("fork_join").replace("output_handles[0] = buf13.release();", "output_handles[0] = buf5.release();")
    text = text.replace(WAIT, "")
    races = {(race.second.site, race.memory): race for race in order_of(text).races if race.doubt}
    race = races[-1, "buf5"]
    assert race.missing == "stream 0 does not wait for stream 1 after it"
    assert race.doubt == "the caller may use it on stream 0 before it is written"


def test_an_input_that_a_side_stream_reads_at_once() -> None:
    wait = next(line for line in clean("fork_join").splitlines() if "cudaStreamWaitEvent(_aoti_aux" in line)
    doubtful = [race for race in order_of(without("fork_join", wait.strip())).races if race.first.site == -1]
    assert [(race.memory, race.missing) for race in doubtful] == [
        ("arg1_1", "stream 1 waits for nothing of stream 0 before it")
    ]


def test_overlapping_elements() -> None:
    """Compared with the elements one by one."""
    shapes = [((), ()), ((4,), (1,)), ((4,), (2,)), ((2, 3), (6, 1)), ((2, 3), (6, 2)), ((0, 3), (1, 1))]
    shapes += [((2, 3), (3, 1)), ((3, 2), (1, 3)), ((2, 2, 2), (1, 1, 5)), ((2, 1), (1, 9))]
    parts = [Elements(begin, sizes, strides) for begin in range(6) for sizes, strides in shapes]
    for one, other in product(parts, parts):
        if WHOLE in (one, other):
            continue
        assert overlap(one, other) is bool({*one.elements()} & {*other.elements()})
    assert overlap(WHOLE, parts[1]) is True
    assert overlap(WHOLE, UNKNOWN) is None
    assert overlap(parts[1], UNKNOWN) is None
    dense = Elements(0, (1 << 20,), (1,))
    assert overlap(dense, Elements(1 << 19, (1 << 20,), (1,))) is True
    large = Elements(0, (1 << 20,), (2,))
    assert overlap(large, Elements(1, (1 << 20,), (2,))) is None


@pytest.mark.parametrize("kind", list(race_kinds.kinds()), ids=lambda kind: kind.name)
def test_a_race_of_each_kind(kind: Kind) -> None:
    if kind.certain:
        assert race_kinds.found(kind.text, certain=True) == kind.pairs
    else:
        assert race_kinds.found(kind.text, certain=False) >= kind.pairs


@pytest.mark.parametrize("seed", range(6))
def test_programs_that_are_put_together_at_random(seed: int) -> None:
    """Without a race, and the first that has one when it lacks a wait."""
    made = race_kinds.program(seed)
    assert (made.races(), order_of(made.wrapper()).races, order_of(made.wrapper()).undecided) == (set(), (), ())
    lacking = next((less for less in race_kinds.without_a_wait(made) if less.races()), None)
    assert lacking is None or race_kinds.found_in(lacking) == lacking.races()

"""Races of distinct kinds, one in each wrapper; and wrappers of several streams that are put together at random.

The wrappers are changed ones of planted_races.py, and one of torch 2.15.0 whose kernels begin before the one before
them has ended. Of the random ones all races are known: they are worked out here from the paths between their launches.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations

from aoti_debug.instrument.wrapper.analysis import Analysis
from aoti_debug.package.stream_order import Racer
from tests.instrument.wrapper import planted_races, texts
from tests.instrument.wrapper.planted_races import Pair

_RELU, _MM, _ADD = "triton_poi_fused_relu_0", "aoti_torch_cuda_mm_out", "triton_poi_fused_add_2"
_ADD_SIN = "triton_poi_fused_add_sin_1"
_SOFTMAX, _SUM = "triton_per_fused__softmax_relu_0", "triton_per_fused__softmax_relu_sum_1"
_SIDE = "_aoti_aux_stream_cache.get({}, this->device_idx_, stream)"
CALLER = "the caller"


@dataclass(frozen=True)
class Kind:
    """A race.

    Attributes:
        pairs: the races that the wrapper has by it.
        certain: nothing leaves a doubt.
    """

    name: str
    text: str
    pairs: frozenset[Pair]
    certain: bool = True


def _stream(number: int) -> str:
    return _SIDE.format(number) if number else "stream"


def record(event: int, stream: int) -> str:
    name = f"_aoti_event_cache.get({event}, this->device_idx_)"
    return f"AOTI_RUNTIME_CUDA_CHECK(cudaEventRecord({name}, {_stream(stream)}));"


def wait(event: int, stream: int) -> str:
    return (
        f"AOTI_RUNTIME_CUDA_CHECK(cudaStreamWaitEvent({_stream(stream)}, "
        f"_aoti_event_cache.get({event}, this->device_idx_), 0));"
    )


_PRODUCT = "AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cuda_mm_out(buf5, buf0, arg1_1));"
_SUM_OF_BOTH = (
    "call_triton_poi_fused_add_2(buf5, buf9, buf13, 4096L, this->device_idx_, stream, kernels, this->cubin_dir_);"
)
_SINE = "call_triton_poi_fused_add_sin_1(arg1_1, buf9,"
_GDC_WAIT = "        tl.extra.cuda.gdc_wait()\n"


def _changed(text: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def kinds() -> Iterator[Kind]:
    """All of them."""
    fork = planted_races.clean("fork_join")
    begin, end = frozenset({(_RELU, _MM, "buf0")}), frozenset({(_MM, _ADD, "buf5")})
    yield Kind("no record before a side stream begins", _changed(fork, (record(2, 0), "")), begin)
    yield Kind("a side stream that waits for nothing", _changed(fork, (wait(2, 1), "")), begin)
    yield Kind("no record where a side stream ends", _changed(fork, (record(3, 1), "")), end)
    yield Kind("nothing waits for a side stream", _changed(fork, (wait(3, 0), "")), end)
    yield Kind("a wait for another event", _changed(fork, (wait(3, 0), wait(2, 0))), end)
    yield Kind("a wait of another stream", _changed(fork, (wait(3, 0), wait(3, 2))), end)
    yield Kind("a record on another stream", _changed(fork, (record(3, 1), record(3, 0))), end)
    early = _changed(fork, (record(3, 1), ""), (_PRODUCT, f"{record(3, 1)}\n    {_PRODUCT}"))
    yield Kind("a record before the launch", early, end)
    late = _changed(fork, (wait(3, 0), ""), (_SUM_OF_BOTH, f"{_SUM_OF_BOTH}\n    {wait(3, 0)}"))
    yield Kind("a wait after the launch", late, end)
    swapped = _changed(fork, (wait(3, 0), ""), (record(3, 1), f"{wait(3, 0)}\n    {record(3, 1)}"))
    yield Kind("a wait before the record", swapped, end)
    again = _changed(fork, (record(3, 1), f"{record(3, 1)}\n    {record(3, 0)}"))
    yield Kind("an event that is recorded again elsewhere", again, end)
    reused = planted_races.as_generated("fork_join")
    yield Kind("memory that is used again while a stream reads it", reused, frozenset({(_MM, _ADD_SIN, "buf0")}))
    both = _changed(fork, (_SINE, _SINE.replace("buf9", "buf5")), (wait(3, 0), ""))
    yield Kind("two streams that write to a buffer", both, frozenset({(_MM, _ADD_SIN, "buf5"), *end}))
    wrong = planted_races.as_generated("side_kernels")
    middle = "triton_poi_fused_add_tanh_1"
    yield Kind(
        "a kernel of a side stream on the call's", wrong, frozenset({(_MM, middle, "buf5"), (middle, _MM, "buf6")})
    )
    pipeline = planted_races.clean("pipeline")
    chain = frozenset({(_MM, _MM, "buf5"), (_MM, _ADD, "buf0")})
    yield Kind("a wait for the stream before the last", _changed(pipeline, (wait(4, 2), wait(3, 2))), chain)
    pools = planted_races.as_generated("pools")
    total = "triton_per_fused_sin_sum_1"
    yield Kind("two buffers in the same bytes of a pool", pools, frozenset({(_MM, total, "pool1")}))
    yield from _of_kernels_that_begin_early()
    yield from _with_a_doubt(fork)


def _of_kernels_that_begin_early() -> Iterator[Kind]:
    text = texts.text("torch_2.15.0_overlapping")
    first, second, third = text.split(_GDC_WAIT)
    reads = frozenset({(_SOFTMAX, _SUM, "buf1"), (_SOFTMAX, _SUM, "buf2")})
    lets = "        tl.extra.cuda.gdc_launch_dependents()\n"
    late = first + _GDC_WAIT + second + third.replace(lets, lets + _GDC_WAIT)
    yield Kind("a kernel that reads before it waits", late, reads)
    yield Kind("a kernel that never waits", first + _GDC_WAIT + second + third, reads)
    text = text.replace("sum_1(buf0, buf1, buf2, buf3,", "sum_1(buf0, buf1, buf2, buf0,")
    at = text.rindex(_GDC_WAIT)
    store = "        tl.store(out_ptr0 + (x0), tmp11, xmask)\n"
    yield Kind(
        "a kernel that writes before it waits", text[:at] + store + text[at:], frozenset({(_SOFTMAX, _SUM, "buf0")})
    )
    broken = first + second + _GDC_WAIT + third
    pairs = frozenset({(_MM, _SOFTMAX, "buf0"), (_MM, _SUM, "buf0")})
    yield Kind("a kernel that relies on the wait of one that has none", broken, pairs, certain=False)


def _with_a_doubt(fork: str) -> Iterator[Kind]:
    end = frozenset({(_MM, _ADD, "buf5")})
    branch = _changed(fork, (wait(3, 0), f"if (some) {{ {wait(3, 0)} }}"))
    yield Kind("a wait in a branch", branch, end, certain=False)
    at_once = _changed(fork, (wait(2, 1), ""))
    yield Kind("an input while the caller may write it", at_once, frozenset({(CALLER, _MM, "arg1_1")}), certain=False)
    given = "output_handles[0] = buf13.release();"
    output = _changed(fork, (given, given.replace("buf13", "buf5")), (wait(3, 0), ""))
    yield Kind("an output that stays behind", output, frozenset({(_MM, CALLER, "buf5")}), certain=False)
    unread = _changed(fork, (wait(3, 0), "AOTI_RUNTIME_CUDA_CHECK(cudaStreamSynchronize(elsewhere));"))
    yield Kind("a wait that is not read", unread, end, certain=False)


@dataclass
class Program:
    """Launches on streams, each of which reads what others have written, in the form of a wrapper.

    Attributes:
        streams: of each launch.
        reads: of each, the numbers of the launches whose results it reads; -1: the model's input.
        waits: of each, the launches on other streams that its stream waits for before it; -1: the beginning.
    """

    streams: list[int]
    reads: list[list[int]]
    waits: list[list[int]] = field(default_factory=list)

    def wrapper(self) -> str:
        """The text."""
        text = planted_races.clean("fork_join")
        begin = text.index("    AtenTensorHandle buf0_handle;")
        finish = text.index("    output_handles[0] = buf13.release();")
        stream2 = f"    cudaStream_t stream2 = {_SIDE.format(2)};\n"
        lines = [stream2, f"    {record(100, 0)}\n"]
        for number, stream in enumerate(self.streams):
            lines += [f"    {line}\n" for line in self._launch(number, stream)]
        last = len(self.streams) - 1
        return text[:begin] + "".join(lines) + text[finish:].replace("buf13", f"buf{last}")

    def _launch(self, number: int, stream: int) -> Iterator[str]:
        for awaited in self.waits[number]:
            yield wait(100 if awaited < 0 else awaited, stream)
        if stream:
            guard = f"std::make_unique<AOTICudaStreamGuard>({_stream(stream)}, this->device_idx_)"
            yield f"_aoti_current_stream_guard = {guard};"
        yield f"AtenTensorHandle buf{number}_handle;"
        sizes = "2, int_array_0, int_array_1, cached_torch_dtype_float32, cached_torch_device_type_cuda"
        yield (
            f"AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided({sizes}, this->device_idx_, &buf{number}_handle));"
        )
        yield f"RAIIAtenTensorHandle buf{number}(buf{number}_handle);"
        read = ["arg0_1" if source < 0 else f"buf{source}" for source in self.reads[number]]
        if len(read) == 1:
            name = f"stream{stream}" if stream else "stream"
            end = f"4096L, this->device_idx_, {name}, kernels, this->cubin_dir_"
            yield f"call_triton_poi_fused_relu_0({read[0]}, buf{number}, {end});"
        else:
            yield f"AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cuda_mm_out(buf{number}, {read[0]}, {read[1]}));"
        yield record(number, stream)
        if stream:
            yield "_aoti_current_stream_guard.reset();"

    def races(self) -> set[tuple[int, int]]:
        """The pairs of launches of which the second reads what the first writes, without a path between them."""
        before: list[set[int]] = []  # of each launch, those that have ended when it begins
        for number, stream in enumerate(self.streams):
            ended: set[int] = set()
            for earlier in range(number):
                if self.streams[earlier] == stream:
                    ended |= {earlier, *before[earlier]}
                    for awaited in self.waits[earlier]:
                        ended |= {awaited, *before[awaited]} if awaited >= 0 else set()
            for awaited in self.waits[number]:
                ended |= {awaited, *before[awaited]} if awaited >= 0 else set()
            before.append(ended)
        pairs = combinations(range(len(self.streams)), 2)
        return {(one, other) for one, other in pairs if one in self.reads[other] and one not in before[other]}


def found(text: str, *, certain: bool) -> frozenset[Pair]:
    """The races that are found in a wrapper, without doubt or with one."""
    analysis = planted_races.analysed(text)
    assert analysis.stream_order is not None
    races = [race for race in analysis.stream_order.races if certain is not bool(race.doubt)]
    return frozenset((_kernel(analysis, race.first), _kernel(analysis, race.second), race.memory) for race in races)


def _kernel(analysis: Analysis, racer: Racer) -> str:
    return CALLER if racer.site < 0 else analysis.sites[racer.site].kernel


def found_in(made: Program) -> set[tuple[int, int]]:
    """The races that are found in a program without doubt, by the numbers of its launches."""
    analysis = planted_races.analysed(made.wrapper())
    assert analysis.stream_order is not None
    own = [site.id for site in analysis.sites if "clone" not in site.kernel]  # copies of inputs are not the program's
    races = [race for race in analysis.stream_order.races if not race.doubt]
    return {(own.index(race.first.site), own.index(race.second.site)) for race in races}


def without_a_wait(made: Program) -> Iterator[Program]:
    """The programs that lack one of its waits."""
    for number, awaited in enumerate(made.waits):
        for one in awaited:
            waits = [list(others) for others in made.waits]
            waits[number].remove(one)
            yield Program(made.streams, made.reads, waits)


def program(seed: int) -> Program:
    """A program without a race: each stream waits for the beginning of the call, and for what its launches read."""
    chance = random.Random(seed)
    count = chance.randint(4, 12)
    streams = [0, *(chance.randint(0, 2) for _ in range(count - 2)), 0]
    made = Program(streams, [])
    for number, stream in enumerate(streams):
        sources = range(-1, number)
        made.reads.append(chance.sample(sources, min(chance.randint(1, 2), len(sources))))
        if number == count - 1:
            made.reads[-1] = [number - 1]
        awaited = [source for source in made.reads[-1] if source >= 0 and streams[source] != stream]
        made.waits.append(awaited + ([-1] if stream else []))
    made.waits[-1] += [number for number in range(count - 1) if streams[number]]  # so that nothing stays behind
    return made

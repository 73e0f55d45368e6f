"""Executes the launches of a generated wrapper of several streams in other orders than the host's: an oracle of races.

It shares nothing with the analysis of aoti_debug: it reads the statements of the wrapper by their forms, and emulates
the device. Each stream is a queue; a launch reads when it begins and writes when it ends; a wait goes on when the last
record of its event that the host had enqueued is done. Two launches race if they touch an element in common, one of
them writing, and the device can finish the second one while the first one does not begin. Beside that, whole calls are
executed in random orders, with numbers: do outputs change?
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

_RECORD = re.compile(r"cudaEventRecord\(_aoti_event_cache\.get\((\d+),[^)]*\), (.*)\)\);")
_WAIT = re.compile(r"cudaStreamWaitEvent\((.*), _aoti_event_cache\.get\((\d+),[^)]*\), 0\)\);")
_SIDE = re.compile(r"_aoti_aux_stream_cache\.get\((\d+),")
_ENTER = re.compile(r"_aoti_current_stream_guard = std::make_unique<AOTICudaStreamGuard>\((.*), this->device_idx_\);")
_LEAVE = "_aoti_current_stream_guard.reset();"
_ARRAY = re.compile(r"static constexpr int64_t (\w+)\[\] = \{([^}]*)\};")
_EMPTY = re.compile(r"aoti_torch_empty_strided\((\d+), (\w+), (\w+), .*, &(\w+)_handle\)")
_OWNED = re.compile(r"^RAIIAtenTensorHandle (\w+)\(\w+_handle\);")
_NAMED = re.compile(r"^auto (\w+) = (.*reinterpret_tensor_wrapper\(.*\)\));")
_MOVED = re.compile(r"^auto (\w+) = std::move\((\w+)\);")
_VIEW = re.compile(r"reinterpret_tensor_wrapper\((\w+), (\d+), (\w+), (\w+), (\d+)L\)")
_TRITON = re.compile(r"^(call_triton_\w+)\((.*)\);$")
_OPERATOR = re.compile(r"AOTI_TORCH_ERROR_CODE_CHECK\((aoti_torch_cuda_\w+_out)\((.*)\)\);$")
_INPUT = re.compile(r"^auto (\w+) = std::move\(inputs\[\d+\]\);")
_OUTPUT = re.compile(r"output_handles\[\d+\] = (\w+)\.release\(\);")


SQUARE = ((64, 64), (64, 1))  # sizes and strides of inputs, and of buffers of which the wrapper does not say them


class NotEmulatedError(Exception):
    """The wrapper has a statement of another form."""


@dataclass(frozen=True)
class Part:
    """A tensor: elements of the memory of a buffer."""

    root: str
    begin: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    def elements(self) -> frozenset[int]:
        return _elements(self.begin, self.sizes, self.strides)[0]

    def in_order(self) -> tuple[int, ...]:
        return _elements(self.begin, self.sizes, self.strides)[1]


@cache
def _elements(begin: int, sizes: tuple[int, ...], strides: tuple[int, ...]) -> tuple[frozenset[int], tuple[int, ...]]:
    found = [begin]
    for size, stride in zip(sizes, strides, strict=True):
        found = [first + stride * step for first in found for step in range(size)]
    return frozenset(found), tuple(found)


@dataclass(eq=False)
class Work:
    """What the host enqueues on a stream.

    Attributes:
        line: in the wrapper, from 1.
        kind: "launch", "record" or "wait".
        awaited: of a wait: the record; None if there was none before it, so that it waits for nothing.
    """

    line: int
    stream: int
    kind: str
    name: str = ""
    reads: Sequence[Part] = ()
    writes: Sequence[Part] = ()
    awaited: Work | None = None


@dataclass
class Program:
    """The work of a call in the order in which the host enqueues it, and the memory of its outputs."""

    work: list[Work] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)

    @property
    def launches(self) -> list[Work]:
        return [one for one in self.work if one.kind == "launch"]


class _Reader:
    """Reads the statements of run_impl."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._arrays: dict[str, tuple[int, ...]] = {}
        self._parts: dict[str, Part] = {}
        self._records: dict[int, Work] = {}
        self._stream = 0
        self.program = Program()

    def read(self) -> Program:
        lines = self._text.split("\n")
        begin = next(number for number, line in enumerate(lines) if "void AOTInductorModel::run_impl(" in line)
        end = next(number for number, line in enumerate(lines) if line.startswith("} // AOTInductorModel::run_impl"))
        inside = False
        for number in range(begin, end):
            line = lines[number].strip()
            inside = (inside or line.startswith("if ((reinterpret_cast")) and line != "}"  # copies of inputs
            if not inside:
                self._statement(line, number + 1)
        return self.program

    def _statement(self, line: str, number: int) -> None:
        if match := _ARRAY.match(line):
            self._arrays[match[1]] = tuple(
                int(word.strip().rstrip("L")) for word in match[2].split(",") if word.strip()
            )
        elif match := _INPUT.match(line):
            self._parts[match[1]] = Part(match[1], 0, *SQUARE)
        elif match := _EMPTY.search(line):
            self._parts[match[4]] = Part(match[4], 0, self._arrays[match[2]], self._arrays[match[3]])
        elif match := _OWNED.match(line):
            self._parts.setdefault(match[1], Part(match[1], 0, *SQUARE))
        elif match := _NAMED.match(line):
            self._parts[match[1]] = self._part(match[2])
        elif match := _MOVED.match(line):
            self._parts[match[1]] = self._parts[match[2]]
        elif match := _ENTER.match(line):
            self._stream = _number(match[1])
        elif line == _LEAVE:
            self._stream = 0
        elif match := _RECORD.search(line):
            self._records[int(match[1])] = self._add(Work(number, _number(match[2]), "record"))
        elif match := _WAIT.search(line):
            self._add(Work(number, _number(match[1]), "wait", awaited=self._records.get(int(match[2]))))
        elif match := _OUTPUT.search(line):
            self.program.outputs.append(self._parts[match[1]].root)
        elif match := _TRITON.match(line):
            self._triton(match[1], _split(match[2]), number)
        elif match := _OPERATOR.match(line):
            result, *given = _split(match[2])
            reads = [self._part(word) for word in given if self._is_tensor(word)]
            self._add(Work(number, self._stream, "launch", match[1], reads, [self._part(result)]))
        elif "aoti_torch_cuda_" in line or "cudaStream" in line.replace("cudaStream_t", "") or "cudaEvent" in line:
            raise NotEmulatedError(line)

    def _add(self, work: Work) -> Work:
        self.program.work.append(work)
        return work

    def _triton(self, name: str, given: list[str], number: int) -> None:
        declared = re.search(rf" {name}\(\n(.*?)\n\)\s*{{", self._text, re.DOTALL)
        if declared is None:
            raise NotEmulatedError(name)
        names = [line.split("=")[0].strip().rstrip(",").split()[-1].lstrip("&*") for line in declared[1].split("\n")]
        reads, writes = [], []
        for parameter, word in zip(names, given, strict=False):
            if not re.match(r"(?:in|out|in_out)_ptr\d", parameter):
                continue
            part = self._part(word)
            if parameter.startswith("in"):
                reads.append(part)
            if not parameter.startswith("in_ptr"):
                writes.append(part)
        if not writes:
            raise NotEmulatedError(f"{name}: {names}")
        stream = next(word for word in given if re.fullmatch(r"stream\d*", word))
        self._add(Work(number, int(stream[6:] or 0), "launch", name, reads, writes))

    def _is_tensor(self, word: str) -> bool:
        return word in self._parts or bool(_VIEW.search(word))

    def _part(self, word: str) -> Part:
        match = _VIEW.search(word)
        if match is None:
            return self._parts[word]
        base = self._parts[match[1]]
        return Part(base.root, base.begin + int(match[5]), self._arrays[match[3]], self._arrays[match[4]])


def _number(stream: str) -> int:
    side = _SIDE.search(stream)
    return int(side[1]) if side else int(stream.removeprefix("stream") or 0)


def _split(text: str) -> list[str]:
    """The arguments of a call."""
    found, depth, begin = [], 0, 0
    for at, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if char == "," and depth == 0:
            found.append(text[begin:at].strip())
            begin = at + 1
    return [*found, text[begin:].strip()]


def read(text: str) -> Program:
    """The work that a wrapper enqueues.

    Raises:
        NotEmulatedError: it has a statement of another form.
    """
    return _Reader(text).read()


class _Device:
    """Queues of work; what is at the head of a queue may be done if what it waits for is done."""

    def __init__(self, program: Program) -> None:
        self._queues: dict[int, list[Work]] = {}
        for one in program.work:
            self._queues.setdefault(one.stream, []).append(one)
        self._next = dict.fromkeys(self._queues, 0)
        self.done: set[int] = set()

    def ready(self) -> list[Work]:
        heads = [queue[self._next[stream]] for stream, queue in self._queues.items() if self._next[stream] < len(queue)]
        return [one for one in heads if one.awaited is None or id(one.awaited) in self.done]

    def finish(self, one: Work) -> None:
        self._next[one.stream] += 1
        self.done.add(id(one))


def _finishes_without(program: Program, first: Work, second: Work) -> bool:
    """True if the device can finish the second launch while the first one does not begin."""
    device = _Device(program)
    while ready := [one for one in device.ready() if one is not first]:
        for one in ready:
            device.finish(one)
        if id(second) in device.done:
            return True
    return False


def _touch(first: Work, second: Work) -> Iterator[str]:
    """The memory of which two launches touch an element in common, one writing."""
    pairs = [(one, other) for one in first.writes for other in (*second.reads, *second.writes)]
    pairs += [(one, other) for one in first.reads for other in second.writes]
    for one, other in pairs:
        if one.root == other.root and not one.elements().isdisjoint(other.elements()):
            yield one.root


def races(program: Program) -> set[tuple[int, int]]:
    """The lines of each two launches that race, in the order of the host."""
    launches = program.launches
    return {
        (first.line, second.line)
        for number, second in enumerate(launches)
        for first in launches[:number]
        if first.stream != second.stream and any(_touch(first, second)) and _finishes_without(program, first, second)
    }


def outputs_change(program: Program, seed: int, orders: int) -> bool:
    """True if a call returns something else in one of so many random orders than in that of the host."""
    chance = random.Random(seed)
    expected = _executed(program, None)
    return any(_executed(program, chance) != expected for _ in range(orders))


def _executed(program: Program, chance: random.Random | None) -> list[int]:
    """The contents of the outputs after a call; a launch may run while others do."""
    memory: dict[str, dict[int, int]] = {}
    if chance is None:
        for one in program.launches:
            _end(one, _begin(one, memory), memory)
        return _contents(program, memory)
    device = _Device(program)
    running: list[tuple[Work, int]] = []
    weights = {one.stream: chance.random() ** 3 + 0.01 for one in program.work}
    while True:
        busy = {one.stream for one, _ in running}
        ready = [one for one in device.ready() if one.stream not in busy]
        choices: list[Work | tuple[Work, int]] = [*ready, *running]
        if not choices:
            return _contents(program, memory)
        chosen = chance.choices(choices, [weights[(c if isinstance(c, Work) else c[0]).stream] for c in choices])[0]
        if not isinstance(chosen, Work):
            running.remove(chosen)
            _end(*chosen, memory)
            device.finish(chosen[0])
        elif chosen.kind == "launch":
            running.append((chosen, _begin(chosen, memory)))
        else:
            device.finish(chosen)


def _begin(one: Work, memory: dict[str, dict[int, int]]) -> int:
    """A number that stands for all that a launch reads."""
    read: list[object] = [one.line]
    for part in one.reads:
        held = memory.get(part.root)
        read.append(tuple(map(held.get, part.in_order())) if held else None)
    return hash(tuple(read))


def _end(one: Work, number: int, memory: dict[str, dict[int, int]]) -> None:
    for part in one.writes:
        memory.setdefault(part.root, {}).update(dict.fromkeys(part.in_order(), number))


def _contents(program: Program, memory: dict[str, dict[int, int]]) -> list[int]:
    return [hash(tuple(sorted(memory.get(root, {}).items()))) for root in program.outputs]


_STATEMENT = re.compile(r"^ *AOTI_RUNTIME_CUDA_CHECK\(cuda(?:EventRecord|StreamWaitEvent)\(.*$")


def mutants(text: str) -> Iterator[tuple[str, str]]:
    """The wrapper without each of its records and waits, with each record before the launch that it follows, and with
    each wait behind the launch that follows it; each with what was done."""
    lines = text.split("\n")
    launches = [number - 1 for number in (one.line for one in read(text).launches)]
    for number, line in enumerate(lines):
        if not _STATEMENT.match(line):
            continue
        what = "record" if "cudaEventRecord" in line else "wait"
        yield f"no {what} in line {number + 1}", _with(lines, number, "")
        if what == "record" and (before := [at for at in launches if at < number]):
            at = before[-1]
            yield (
                f"record of line {number + 1} before line {at + 1}",
                _with(lines, number, "", at, f"{line}\n{lines[at]}"),
            )
        if what == "wait" and (after := [at for at in launches if at > number]):
            at = after[0]
            yield f"wait of line {number + 1} after line {at + 1}", _with(lines, number, "", at, f"{lines[at]}\n{line}")


def _with(lines: Sequence[str], number: int, text: str, other: int = -1, other_text: str = "") -> str:
    changed = list(lines)
    changed[number] = text
    if other >= 0:
        changed[other] = other_text
    return "\n".join(changed)

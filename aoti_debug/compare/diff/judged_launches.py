"""The launches of one side of a comparison, judged by the program of that side."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from aoti_debug.base import wording
from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.comparison import PRIVATE, Row
from aoti_debug.compare.diff.pairs import RecordedTensors
from aoti_debug.compare.measure.verdicts import LaunchVerdict
from aoti_debug.compare.protocol.measurement import Measurement
from aoti_debug.compare.regions.recorded_values import RecordedValues
from aoti_debug.runs.diagnosis.dataflow import Dataflow
from aoti_debug.runs.rundir.formats.journal_records import LaunchKey
from aoti_debug.runs.rundir.launch import Argument, Launch

Place = tuple[LaunchKey, str]
"""A launch and one of its arguments."""


@dataclass(frozen=True)
class Judgement:
    """The state of a launch and of the launches without a counterpart that made what it read.

    Attributes:
        wrong: in words, "3 of 64 elements of buf1"; "" if nothing is.
        unknown: why it is not known; "" if it is.
        is_ill_conditioned: a change of its inputs by one ULP changes a lot.
        unread: what it wrote and was not compared, because no launch reads it and the model does not return it.
    """

    wrong: str = ""
    unknown: str = ""
    is_ill_conditioned: bool = False
    unread: tuple[str, ...] = ()


class JudgedLaunches:
    """The launches of one run.

    Args:
        values: what each of them reads and writes.
        rows: their comparison with the program.
        paired: what they wrote that has a counterpart in the other run.
    """

    def __init__(self, values: RecordedValues, rows: tuple[Row, ...], paired: Set[Place]) -> None:
        self._values = values
        self._tensors = RecordedTensors(values.run)
        self._rows = {row.launch.id: row for row in rows}
        self._readers: dict[str, list[Row]] = {}
        for row in rows:
            for id_ in row.together_with[:-1]:
                self._readers.setdefault(id_, []).append(row)
        self._paired = paired
        self._read = {
            (read.write.launch.key, read.write.argument.name)
            for launch in values.run.launches
            for read in values.reads.get(launch.key, ())
            if read.write is not None and not self._tensors.is_partial_result(launch, read.argument)
        }
        self._flow = Dataflow(values.run)

    def error(self, launch: Launch, argument: str) -> Measurement | None:
        """The error of what a launch wrote; None if it was not compared by itself."""
        row = self._rows.get(launch.id)
        found = () if row is None else row.outputs
        return next((output for output in found if output.argument == argument), None)

    def judgement(self, launch: Launch, written: tuple[str, ...]) -> Judgement:
        """The judgement on what a launch wrote, and on what it was made from, back to what has a counterpart.

        Args:
            written: the arguments that are asked for.
        """
        found = [self.own(launch, written)]
        for other in makers(self._values, launch, self._paired):
            own, name = self.own(other), f"{other.id} {other.kernel} before it: "
            found.append(replace(own, wrong=own.wrong and name + own.wrong, unknown=own.unknown and name + own.unknown))
        return Judgement(
            next((item.wrong for item in found if item.wrong), ""),
            next((item.unknown for item in found if item.unknown), ""),
            any(item.is_ill_conditioned for item in found),
            found[0].unread,
        )

    def own(self, launch: Launch, written: tuple[str, ...] = ()) -> Judgement:
        """The judgement on what a launch wrote itself.

        Args:
            written: the arguments that are asked for; () for all.
        """
        row, readers = self._rows.get(launch.id), self._readers.get(launch.id, [])
        through = [reader for reader in readers if reader.verdict is not LaunchVerdict.NOT_COMPARABLE]
        compared = [] if row is None or row.verdict is LaunchVerdict.NOT_COMPARABLE else [row]
        wrong = next((item for item in (*compared, *through) if item.verdict is LaunchVerdict.WRONG), None)
        if wrong is not None:
            return Judgement(wrong=_wrong(wrong))
        known = {output.argument for item in compared for output in item.outputs}
        if not known and not through:
            reason = "" if row is None or row.reason in ("", PRIVATE) else row.reason
            return Judgement(unknown=reason or "the program has no value for what it wrote")
        ill = any(item.verdict is LaunchVerdict.ILL_CONDITIONED for item in (*compared, *through))
        writes = self._values.writes.get(launch.key, ())
        open_ = [
            w.argument for w in writes if w.argument.name not in known and (not written or w.argument.name in written)
        ]
        unread = tuple(argument.name for argument in open_ if not self._is_used(launch, argument))
        missing = next(
            (a.name for a in open_ if a.name not in unread and not (through and self._is_read(launch, a))), ""
        )
        if missing:
            return Judgement(unknown=f"the program has no value for {missing}")
        if written and set(written) <= set(unread):
            return Judgement(
                unknown=f"nothing reads {wording.join_truncated(unread, 4)}, and the program has no value for it"
            )
        return Judgement(is_ill_conditioned=ill, unread=unread)

    def _is_used(self, launch: Launch, argument: Argument) -> bool:
        return self._is_read(launch, argument) or self._flow.is_output(argument)

    def _is_read(self, launch: Launch, argument: Argument) -> bool:
        return (launch.key, argument.name) in self._read


def makers(values: RecordedValues, launch: Launch, paired: Set[Place]) -> tuple[Launch, ...]:
    """The launches that made what a launch read, as far back as nothing of it has a counterpart in the other run."""
    found: dict[LaunchKey, Launch] = {}
    pending = [launch]
    while pending:
        for read in values.reads.get(pending.pop().key, ()):
            write = read.write
            if write is None or (write.launch.key, write.argument.name) in paired:
                continue
            if write.launch.key not in found and write.launch.key != launch.key:
                found[write.launch.key] = write.launch
                pending.append(write.launch)
    return tuple(found.values())


def _wrong(row: Row) -> str:
    worst = row.worst
    return "" if worst is None else f"{worst.wrong} of {wording.pluralize(worst.count, 'element')} of {worst.argument}"

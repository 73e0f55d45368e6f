"""The launches of a run in which the sample lies among others, against those of a run of the sample alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from hashlib import sha256
from pathlib import Path

from aoti_debug.base.abi import Phase
from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.diff.diff_runs import pair_runs
from aoti_debug.compare.diff.pairs import LaunchPair, PairRelation, RecordedTensor, TensorPair
from aoti_debug.compare.invariance.sample_rows import (
    PlacedTensor,
    RowMap,
    RowsDifference,
    RowsRelation,
    SampleExtent,
    belongs_to_several,
    maps_of,
    rows_difference,
    with_sample,
)
from aoti_debug.compare.invariance.varied_inputs import SampleSurroundings
from aoti_debug.compare.what_if.substituted_run import Replace
from aoti_debug.runs.rundir.formats import tensor_file_format
from aoti_debug.runs.rundir.formats.journal_records import LaunchKey
from aoti_debug.runs.rundir.formats.stored_tensor import layout_of, open_tensor
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir

_SEVERAL = (
    "the size is in several of its dimensions: the sample's own elements have the same bits, those of it and of others "
    "are not compared"
)


class LaunchRelation(str, Enum):
    """The relation of a launch to the same launch of the sample alone."""

    SAME = "same"  # the sample's elements of all that it wrote have the same bits
    BEGINS = "begins"  # it read the same bits of the sample, and wrote others
    FOLLOWS = "follows"  # it read other bits of the sample, and wrote others
    ABSORBS = "absorbs"  # it read other bits of the sample, and wrote the same
    MIXES = "mixes"  # what it writes for the sample changes with the values of the others, what it reads does not
    COUNTS = "counts"  # it read nothing of the sample, and wrote what depends on the size or the place: indices
    UNREPEATABLE = "not repeatable"  # it writes other bits from run to run
    UNKNOWN = "not known"


@dataclass(frozen=True, kw_only=True)
class SampleRun:
    """A run in which the sample has certain surroundings.

    Attributes:
        outputs: the files of what the model returned, by index.
        width: how many rows the sample has.
    """

    surroundings: SampleSurroundings
    run: RunDir
    outputs: Mapping[int, Path]
    width: int

    @property
    def extent(self) -> SampleExtent:
        """The rows of the sample among all."""
        return SampleExtent(self.surroundings.size, self.surroundings.place, self.width)


@dataclass(frozen=True)
class SampleTensor:
    """A tensor that a launch read or wrote for the sample, against the run of the sample alone.

    Attributes:
        name: of the argument.
        shapes: of the whole tensor, alone and here.
    """

    name: str
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    rows: RowsDifference


@dataclass(frozen=True, kw_only=True)
class LaunchRows:
    """A launch, against the same launch of the sample alone.

    Attributes:
        launch: here.
        alone: of the run of the sample alone.
        reads, writes: its tensors.
        reason: why it is UNKNOWN.
    """

    launch: Launch
    alone: Launch
    relation: LaunchRelation
    reads: tuple[SampleTensor, ...]
    writes: tuple[SampleTensor, ...]
    reason: str = ""

    @property
    def differing(self) -> tuple[SampleTensor, ...]:
        """The tensors that it wrote with other bits."""
        return tuple(tensor for tensor in self.writes if tensor.rows.relation is RowsRelation.DIFFERENT)


@dataclass(frozen=True)
class OutputRows:
    """An output of the model for the sample, against the run of the sample alone.

    Attributes:
        index: of the output.
    """

    index: int
    tensor: SampleTensor


_Place = tuple[LaunchKey, str, Phase]
_Maps = tuple[RowMap, ...] | None


@dataclass(frozen=True)
class Control:
    """Two runs in which the sample has the same size and place.

    Attributes:
        among: of another size than the smallest.
        other: with other values in the rows that are not the sample's; None if there is no such run.
    """

    among: SampleRun
    other: SampleRun | None

    def tensors(self, alone: SampleRun) -> Iterator[tuple[_Place, _Maps]]:
        """Yields the tensors of a run of the sample alone, with the places of the sample's elements."""
        others = {} if self.other is None else _counterparts(self.among.run, self.other.run)
        for pair in pair_runs(alone.run, self.among.run)[0].pairs:
            for tensors in (*pair.reads, *pair.writes):
                other = others.get(_place(tensors.b))
                first, second = _placed(tensors.a, alone), _placed(tensors.b, self.among)
                third = None if other is None or self.other is None else _placed(other, self.other)
                if first is not None and second is not None:
                    yield _place(tensors.a), maps_of(first, second, third)

    def outputs(self, alone: SampleRun) -> Iterator[tuple[int, _Maps]]:
        """Yields the outputs, likewise."""
        other = self.other
        for index, files in _common(alone.outputs, self.among.outputs).items():
            third = _of_file(other.outputs[index], other) if other is not None and index in other.outputs else None
            yield index, maps_of(_of_file(files[0], alone), _of_file(files[1], self.among), third)


class SampleComparison:
    """Compares runs with a run of the sample alone.

    Args:
        alone: the run with the smallest size.
        controls: what changes with the values of the other rows is looked for in each; each has another place.
        again: as the first run of the first control, once more; only hashes are needed.
    """

    def __init__(self, alone: SampleRun, controls: Sequence[Control], again: RunDir) -> None:
        self._alone = alone
        among = controls[0].among
        self._unrepeatable = frozenset(
            pair.launch.key for pair in pair_runs(among.run, again)[0].pairs if pair.outcome is PairRelation.PARTS
        )
        self._maps: dict[_Place, dict[int, _Maps]] = {}
        self._output_maps: dict[int, dict[int, _Maps]] = {}
        for control in controls:
            at = control.among.surroundings.place
            for place, maps in control.tensors(alone):
                self._maps.setdefault(place, {})[at] = maps
            for index, maps in control.outputs(alone):
                self._output_maps.setdefault(index, {})[at] = maps

    def launches(self, run: SampleRun) -> tuple[LaunchRows, ...]:
        """The launches of a run.

        Raises:
            RunDirError: a tensor is damaged.
        """
        pairing, _ = pair_runs(self._alone.run, run.run)
        return tuple(self._launch(pair, run) for pair in pairing.pairs)

    def unpaired(self, run: SampleRun) -> tuple[Launch, ...]:
        """The launches of a run that the run of the sample alone does not have."""
        return pair_runs(self._alone.run, run.run)[0].only_b

    def outputs(self, run: SampleRun) -> tuple[OutputRows, ...]:
        """The outputs of a run.

        Raises:
            RunDirError: a file is damaged.
        """
        found = []
        for index, files in _common(self._alone.outputs, run.outputs).items():
            first, second = _of_file(files[0], self._alone), _of_file(files[1], run)
            maps = self._output_maps.get(index, {})
            rows = _difference(first, second, maps)
            if rows.relation is RowsRelation.EQUAL and belongs_to_several(_maps_at(maps, run.surroundings.place)):
                rows = RowsDifference(RowsRelation.UNKNOWN, reason=_SEVERAL)
            found.append(OutputRows(index, SampleTensor(f"output {index}", (first.shape, second.shape), rows)))
        return tuple(found)

    def output_bits(self, run: SampleRun) -> str | None:
        """A hash of what the model returned for the sample; None if it is not known which elements these are.

        Raises:
            RunDirError: a file is damaged.
        """
        digest = sha256()
        for index, path in sorted(run.outputs.items()):
            placed = _of_file(path, run)
            maps = _maps_at(self._output_maps.get(index, {}), run.surroundings.place)
            found = next((one for one in maps or () if placed.fits(one)), None)
            if found is None or len(maps or ()) > 1:
                return None
            digest.update(placed.sample(found).data.tobytes())
        return digest.hexdigest() if run.outputs else None

    def healed(self, run: SampleRun, folder: Path) -> tuple[Replace, ...]:
        """Instructions that give the sample's elements of everything that is written the bits that they have alone.

        Args:
            folder: for the tensors.

        Raises:
            RunDirError: a tensor is damaged.
            OSError: a tensor cannot be written.
        """
        folder.mkdir(parents=True, exist_ok=True)
        found: list[Replace] = []
        for pair in pair_runs(self._alone.run, run.run)[0].pairs:
            counts = self._launch(pair, run).relation is LaunchRelation.COUNTS
            for write in () if counts else pair.writes:
                maps = _maps_at(self._maps.get(_place(write.a), {}), run.surroundings.place)
                path = folder / f"{len(found)}.safetensors"
                first, second = _placed(write.a, self._alone), _placed(write.b, run)
                layout = write.b.argument.layout
                if first is None or second is None or layout is None or not maps or not second.fits(maps[0]):
                    continue
                if len(maps) > 1 or not tensor_file_format.is_storable(layout.dtype):
                    continue
                data = with_sample(second, maps[0], first.sample(maps[0]))
                path.write_bytes(tensor_file_format.header(write.b.argument.name, layout) + data)
                found.append(Replace(pair.launch.id, write.b.argument.name, path))
        return tuple(found)

    def _launch(self, pair: LaunchPair, run: SampleRun) -> LaunchRows:
        reads = tuple(self._tensor(read, run) for read in pair.reads)
        writes = tuple(self._tensor(write, run) for write in pair.writes)
        relation, reason = relation_of(reads, writes)
        if not reason and relation is not LaunchRelation.SAME and pair.launch.key in self._unrepeatable:
            relation = LaunchRelation.UNREPEATABLE
        unpaired = pair.unpaired_writes if relation is LaunchRelation.SAME else pair.unpaired_reads
        if unpaired and relation in (LaunchRelation.SAME, LaunchRelation.BEGINS):
            relation, reason = LaunchRelation.UNKNOWN, f"{unpaired[0]} has no counterpart"
        return LaunchRows(
            launch=pair.launch,
            alone=pair.counterparts[0],
            relation=relation,
            reads=reads,
            writes=writes,
            reason=reason,
        )

    def _tensor(self, pair: TensorPair, run: SampleRun) -> SampleTensor:
        layouts = pair.a.argument.layout, pair.b.argument.layout
        shapes = tuple(() if layout is None else layout.shape for layout in layouts)
        return SampleTensor(pair.b.argument.name, (shapes[0], shapes[1]), self._rows(pair, run))

    def _rows(self, pair: TensorPair, run: SampleRun) -> RowsDifference:
        first, second = _placed(pair.a, self._alone), _placed(pair.b, run)
        if first is None or second is None:
            return RowsDifference(RowsRelation.UNKNOWN, reason="it was not saved")
        return _difference(first, second, self._maps.get(_place(pair.a), {}))


def _maps_at(found: Mapping[int, _Maps], place: int) -> _Maps:
    """The places of the sample's elements where the sample has a place; those of the first control as far as they fit.

    Args:
        found: by the place of the sample.
    """
    first = next(iter(found.values()), None)
    own = found.get(place, first)
    if not own or not first:
        return first if own is None else own
    return tuple(one for one in own if one in first) or own


def _difference(alone: PlacedTensor, among: PlacedTensor, found: Mapping[int, _Maps]) -> RowsDifference:
    """Compares the sample's elements; those that differ are mixed if they change with the others at any place."""
    rows = rows_difference(alone, among, _maps_at(found, among.extent.place))
    if rows.relation is RowsRelation.DIFFERENT and () in found.values():
        return RowsDifference(RowsRelation.MIXED)
    return rows


def relation_of(reads: Sequence[SampleTensor], writes: Sequence[SampleTensor]) -> tuple[LaunchRelation, str]:
    """The relation of a launch to that of the sample alone, and why it is not known; "" if it is."""
    read, written = ([tensor.rows.relation for tensor in side] for side in (reads, writes))
    unread, unwritten = (
        next((tensor for tensor in side if tensor.rows.relation is RowsRelation.UNKNOWN), None)
        for side in (reads, writes)
    )
    differs = {RowsRelation.DIFFERENT, RowsRelation.MIXED}
    is_changed = bool(differs.intersection(written))
    if is_changed and RowsRelation.MIXED in written and RowsRelation.MIXED not in read and unread is None:
        return LaunchRelation.MIXES, ""
    if is_changed and differs.intersection(read):
        return LaunchRelation.FOLLOWS, ""
    if is_changed and unread is not None:
        return LaunchRelation.UNKNOWN, f"what it read is not known: {unread.name}, {unread.rows.reason}"
    if is_changed:
        reads_sample = any(tensor.shapes[0] != tensor.shapes[1] for tensor in reads)
        return LaunchRelation.BEGINS if reads_sample else LaunchRelation.COUNTS, ""
    if unwritten is not None:
        return LaunchRelation.UNKNOWN, f"{unwritten.name}: {unwritten.rows.reason}"
    return LaunchRelation.ABSORBS if differs.intersection(read) else LaunchRelation.SAME, ""


def _counterparts(a: RunDir, b: RunDir) -> dict[_Place, RecordedTensor]:
    """The tensors of the second run, by the place of their counterparts in the first."""
    pairs = pair_runs(a, b)[0].pairs
    return {_place(tensors.a): tensors.b for pair in pairs for tensors in (*pair.reads, *pair.writes)}


def _place(tensor: RecordedTensor) -> _Place:
    return tensor.launch.key, tensor.argument.name, tensor.phase


def _placed(tensor: RecordedTensor, run: SampleRun) -> PlacedTensor | None:
    """A recorded tensor with its elements; None if they were not saved."""
    file, layout = tensor.file, tensor.argument.layout
    if file is None or layout is None:
        return None
    return PlacedTensor(open_tensor(run.run.tensor_path(file)), layout.shape, run.extent)


def _of_file(path: Path, run: SampleRun) -> PlacedTensor:
    return PlacedTensor(open_tensor(path), layout_of(path).shape, run.extent)


def _common(a: Mapping[int, Path], b: Mapping[int, Path]) -> dict[int, tuple[Path, Path]]:
    return {index: (a[index], b[index]) for index in a if index in b}


def in_order(launches: Sequence[LaunchRows]) -> Iterator[LaunchRows]:
    """Yields them in the order of the run of the sample alone."""
    yield from sorted(launches, key=lambda found: found.alone.sequence)


def groups_of(runs: Sequence[SampleRun], comparison: SampleComparison) -> tuple[tuple[SampleRun, ...], ...]:
    """The runs in groups with the same bits of the sample in all outputs; () if that is not known of one."""
    groups: dict[str, list[SampleRun]] = {}
    for run in runs:
        bits = comparison.output_bits(run)
        if bits is None:
            return ()
        groups.setdefault(bits, []).append(run)
    return tuple(map(tuple, groups.values()))

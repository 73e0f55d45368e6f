"""Saves the flight recorder's content of a dead process: the inputs of the suspects and of the launches before."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from aoti_debug.base.abi import Phase, SaveStatus
from aoti_debug.base.errors import RunDirError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import atomic_write, json_data
from aoti_debug.package.argument_values import Layout, Tensor
from aoti_debug.runs.diagnosis.verdict import Verdict
from aoti_debug.runs.rundir import flight_recorder, rescued_tensors, run_directory
from aoti_debug.runs.rundir.flight_recorder import FlightStatus, KeptLaunch, KeptTensor, Recording
from aoti_debug.runs.rundir.formats import shared_files, tensor_file_format, weight_reference
from aoti_debug.runs.rundir.formats.journal_records import LaunchKey, TensorFile
from aoti_debug.runs.rundir.formats.weight_reference import WeightReference
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.run_json import ExitKind


@dataclass(frozen=True)
class Rescue:
    """The result of a rescue.

    Attributes:
        launches: those with rescued tensors, oldest first.
        tensors: the number of rescued tensors.
        failure: the reason why it is incomplete, and the rest is still in shared memory; "" otherwise.
    """

    launches: tuple[LaunchKey, ...] = ()
    tensors: int = 0
    failure: str = ""


def rescue(path: Path) -> Rescue:
    """Rescues the tensors of the run in a directory (see `rescue_of`).

    Raises:
        RunDirError: the run cannot be read.
    """
    if shared_files.linked(path, shared_files.FLIGHT_RECORDER) is None:
        return Rescue()
    from aoti_debug.runs.diagnosis.diagnose import diagnose  # reads native stacks; most runs end well

    run = run_directory.open_run(path)
    return rescue_of(run, diagnose(run) if run.state.is_failure else None)


def rescue_of(run: RunDir, verdict: Verdict | None) -> Rescue:
    """Saves the recorded inputs of the suspects and of the launches before them as files, and frees the shared memory.

    Nothing is saved of a clean run; a run that is still going on is left as it is.

    Raises:
        RunDirError: the run cannot be read.
    """
    # A copied run links to memory of another machine.
    memory = shared_files.linked(run.path, shared_files.FLIGHT_RECORDER)
    if memory is None or run.state is ExitKind.RUNNING:
        return Rescue()
    try:
        recording = None if verdict is None else flight_recorder.read(memory)
    except RunDirError as error:
        release(run.path)
        return Rescue(failure=str(error))
    result = Rescue() if verdict is None or recording is None else save(run, _kept(run, verdict, recording))
    if not result.failure:
        release(run.path)
    return result


def release(path: Path) -> None:
    """Frees the shared memory of a run whose process has ended."""
    shared_files.remove(path, shared_files.FLIGHT_RECORDER)


@dataclass(frozen=True)
class InputBytes:
    """An input of a launch, out of the memory of a process that has died.

    Attributes:
        slot: its index in the launch's arguments.
        data: the bytes from the first element to the end of the last one; none of a weight that is referred to.
        reason: why these bytes are not to be had; "" if they are.
        weight: the reference to the weight that has these bytes; None where there is none.
    """

    launch: Launch
    slot: int
    layout: Layout
    data: bytes | memoryview
    reason: str = ""
    weight: WeightReference | None = None


def save(run: RunDir, tensors: Iterable[InputBytes]) -> Rescue:
    """Saves inputs of launches as tensors of the run, beside those that were rescued before."""
    index = [record for record in rescued_tensors.read(run.path) if record.path]
    failure = ""
    for tensor in tensors:
        record = _record(tensor)
        if record.path:
            try:
                _write(run.path, Path(record.path), tensor)
            except OSError as error:
                failure = f"not every tensor could be rescued: {error.strerror}"
                record = record._replace(status=SaveStatus.SKIPPED, path="", hash=(0, 0), reason=failure)
        index.append(record)
    try:
        rescued_tensors.write(run.path, index)
    except OSError as error:
        failure = f"the tensors could not be rescued: {error.strerror}"
    saved = [record for record in index if record.path]
    return Rescue(tuple(dict.fromkeys(record.key for record in saved)), len(saved), failure)


def _kept(run: RunDir, verdict: Verdict, recording: Recording) -> Iterator[InputBytes]:
    """What the flight recorder holds of the suspects and of the launches before them."""
    for kept in _select(verdict, recording):
        launch = run.launches.find(kept.key)
        for tensor, layout in () if launch is None else _unsaved(launch, kept.tensors):
            assert launch is not None
            data, reason = recording.bytes_of(tensor), flight_recorder.REASONS.get(tensor.status, "")
            if not reason and tensor.bytes < layout.extent_bytes:
                reason = "the flight recorder has only a part of its bytes"
            if tensor.status is FlightStatus.REFERRED and recording.weights is None:
                reason = "the file of the weights, which has its bytes, is not known"
            weight = None if reason else _weight(recording, tensor, launch.args[tensor.slot].name, layout)
            yield InputBytes(launch, tensor.slot, layout, data, reason, weight)


def _weight(recording: Recording, tensor: KeptTensor, name: str, layout: Layout) -> WeightReference | None:
    """The reference to the weight that a tensor is; None if it is none, or its file has other bytes."""
    file = recording.weights
    if file is None or not tensor.place:
        return None
    reference = WeightReference(
        format=weight_reference.FORMAT,
        name=name,
        file=file.path,
        size=file.size,
        sha256=file.sha256,
        begin=tensor.place,
        dtype=layout.dtype,
        shape=layout.shape,
        strides=layout.strides,
        storage_offset=layout.storage_offset,
        storage_bytes=layout.storage_bytes,
        hash=tensor.hash,
    )
    if tensor.status is FlightStatus.REFERRED:
        return reference
    import numpy as np

    elements = _row_major(recording.bytes_of(tensor), layout)  # of a device, which had no time to compare them
    try:
        same = np.array_equal(reference.elements(), np.frombuffer(elements, np.uint8))
    except RunDirError:
        return None
    return replace(reference, hash=tensor_file_format.content_hashes(elements)) if same else None


def _select(verdict: Verdict, recording: Recording) -> list[KeptLaunch]:
    """The suspects, and the launches before the last of them; without suspects, the newest."""
    suspects = {launch.key for launch in verdict.suspects}
    kept = [launch for launch in recording.launches if launch.key in suspects]
    last = kept[-1].key if kept else None
    if suspects and last is None:
        return []
    selected = {launch.generation: launch for launch in (*recording.launches_until(last), *kept)}
    return [selected[generation] for generation in sorted(selected)]


def _unsaved(launch: Launch, tensors: Iterable[KeptTensor]) -> Iterator[tuple[KeptTensor, Layout]]:
    """The tensors of a launch that the run did not save itself, with their layouts from the journal."""
    for tensor in tensors:
        argument = launch.args[tensor.slot] if tensor.slot < len(launch.args) else None
        if argument is None or not isinstance(argument.before, Tensor):
            continue
        saved = argument.files.get(Phase.BEFORE)
        if saved is None or not saved.path:
            yield tensor, argument.before.layout


def _record(tensor: InputBytes) -> TensorFile:
    launch, layout, reason = tensor.launch, tensor.layout, tensor.reason
    argument = launch.args[tensor.slot]
    if not reason and not tensor_file_format.is_storable(layout.dtype):
        reason = flight_recorder.REASONS[FlightStatus.UNREADABLE]
    path = tensor_file_format.tensor_path(launch.key, Phase.BEFORE, launch.kernel, argument.name, layout.device)
    hashes, status = (0, 0), SaveStatus.SKIPPED
    if tensor.weight is not None:
        path = str(weight_reference.instead_of(Path(path)))
        hashes, status = tensor.weight.hash, SaveStatus.REFERRED
    elif not reason:
        hashes, status = tensor_file_format.content_hashes(_elements(tensor)), SaveStatus.WRITTEN
    return TensorFile(
        time_ns=launch.begin_ns,
        thread=launch.thread,
        key=launch.key,
        slot=tensor.slot,
        phase=Phase.BEFORE,
        status=status,
        bytes=layout.bytes,
        hash=hashes,
        path="" if reason else path,
        reason=reason,
    )


def _elements(tensor: InputBytes) -> memoryview:
    """The bytes of the logical tensor, row-major."""
    return _row_major(memoryview(tensor.data), tensor.layout)


def _row_major(data: memoryview, layout: Layout) -> memoryview:
    if layout.contiguous:
        return data[: layout.bytes]
    import numpy as np

    item = layout.item_bytes
    elements = np.frombuffer(data, dtype=f"V{item}")
    strides = tuple(stride * item for stride in layout.strides)
    strided = np.lib.stride_tricks.as_strided(elements, layout.shape, strides, writeable=False)
    return memoryview(np.ascontiguousarray(strided).tobytes())


def _write(run: Path, path: Path, tensor: InputBytes) -> None:
    """Writes a tensor file, or a reference, atomically.

    Args:
        path: in the run directory, which is not made again where somebody deletes it meanwhile.

    Raises:
        OSError: it cannot be written.
    """
    for folder in list(path.parents)[-2::-1]:  # without "."
        with contextlib.suppress(FileExistsError):
            (run / folder).mkdir()
    with atomic_write.replace_file(run / path) as temporary, temporary.open("wb") as file:
        if tensor.weight is not None:
            file.write(f"{json_data.to_text(tensor.weight)}\n".encode())
            return
        file.write(tensor_file_format.header(tensor.launch.args[tensor.slot].name, tensor.layout))
        file.write(_elements(tensor))

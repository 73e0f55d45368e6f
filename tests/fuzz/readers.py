"""Every reader of untrusted input, as a function of the bytes that were sent.

A reader returns, or raises an AotiDebugError with one clear line and an exit code from 2 to 6. Anything else is a
failure: another exception would end a command with exit code 70.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from aoti_debug.app.cli import main
from aoti_debug.base import abi
from aoti_debug.base.abi import FaultDomain, NoteCode, Phase
from aoti_debug.base.errors import AotiDebugError
from aoti_debug.base.machine.files import json_data
from aoti_debug.base.native import core_stacks
from aoti_debug.base.native.core_file import CoreFile
from aoti_debug.compare import stored_comparison
from aoti_debug.compare.comparison import Comparison, Row
from aoti_debug.compare.measure.verdicts import LaunchVerdict
from aoti_debug.compare.protocol.measurement import Element, ErrorSpread, Measurement
from aoti_debug.compare.stored_comparison import document
from aoti_debug.compare.suspects import Suspect
from aoti_debug.instrument.builder.instrument import instrument
from aoti_debug.instrument.frontend import compatibility
from aoti_debug.instrument.wrapper.analysis import analyse
from aoti_debug.package import manifest
from aoti_debug.package.inputs import input_files, signature
from aoti_debug.package.inputs.signature import Dim, Leaf, ModelSignature
from aoti_debug.package.manifest import Constant, Kernel, Role
from aoti_debug.package.pt2 import archive, program_weights
from aoti_debug.package.weights_file import PackedWeights
from aoti_debug.runs.kernel_source import cpp_text, model_lines, result_slices
from aoti_debug.runs.run import memory_meter
from aoti_debug.runs.rundir import device_activity, rescued_tensors, run_directory, threads_json
from aoti_debug.runs.rundir.formats import journal, weight_reference
from aoti_debug.runs.rundir.threads_json import CallState, OutputElement, ThreadCall, ThreadsRecord
from aoti_debug.triage.investigation import core_launch
from aoti_debug.views.profile import model_profile as profile_document
from aoti_debug.views.profile.roofline import Peaks
from aoti_debug.views.profile.text import profile_lines
from aoti_debug.views.profile.trace import slices, trace_text
from tests import archives, crashed_run, factories
from tests.core_files import Mapped, Memory, SmallCore
from tests.factories import JournalWriter, arg, make_manifest, records_of, site, tensor
from tests.instrument.wrapper import texts
from tests.triage import kernel_sources
from tests.views.profile import on_gpu
from tests.views.profile.measured import profile_of
from tests.views.profile.on_gpu import Recorder

MAX_LINE = 2000  # characters of an error


class UnclearError(AssertionError):
    """A command or a reader failed in another way than it should."""


@dataclass(frozen=True)
class Reader:
    """A reader with valid contents, from which others are made.

    Attributes:
        read: reads bytes; the folder is empty and its own.
        samples: contents that it can read.
        form: the strategy by which contents are changed: "bytes", "json" or "text".
    """

    name: str
    read: Callable[[bytes, Path], None]
    samples: Callable[[], Sequence[bytes]]
    form: str


def check(reader: Reader, data: bytes, folder: Path) -> None:
    """Reads bytes and raises what should not have been raised."""
    try:
        reader.read(data, folder)
    except AotiDebugError as error:
        check_error(error.exit_code, str(error))


def check_error(code: int, text: str) -> None:
    """Raises UnclearError unless this is a code from 2 to 6 with one line."""
    if not 2 <= code <= 6 or not text.strip() or "\n" in text.strip() or len(text) > MAX_LINE:
        raise UnclearError(f"exit code {code}: {text[:500]!r}")


# ---- run directories


def journal_of_every_record(block_bytes: int = abi.BLOCK_BYTES) -> JournalWriter:
    """A journal with a record of most types."""
    writer = JournalWriter(crumb_every=1, block_bytes=block_bytes)
    writer.call_begin()
    x, y = tensor(2, 3), tensor(4, dtype="bfloat16", data_ptr=0x2000)
    writer.launch(0, 0, x, y)
    writer.grid(0, 0, (1, 2, 3), 1, 2)
    writer.tensor_file(0, 0, Phase.BEFORE, "tensors/before/first/x.safetensors", size=24)
    writer.tensor_stats(0, 1, Phase.AFTER, factories.statistics(), layout=y.layout)
    writer.launch_begin(1, 1, y, x, x)
    writer.damage(1, 24, b"damage", at=0x1000, size=24)
    writer.fault(1, FaultDomain.EXCEPTION, text="it failed")
    writer.note(NoteCode.CONFIGURATION, "a note")
    writer.run_end()
    return writer


@cache
def _run_files() -> dict[str, bytes]:
    """The files of a run that died, by name."""
    stacks = b"thread 1 signal 11 code 1 address 0 pc 7f00 caller 7f10\nframes 1 7f00 7f10\n"
    with tempfile.TemporaryDirectory() as base:
        path = crashed_run.crashed(Path(base), None)
        found = {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()}
    return found | {
        "journal.bin": journal_of_every_record().bytes()[:4096],
        "crumbs.bin": factories.crumbs(1, 2),
        "flight.bin": crashed_run.both_launches().bytes(),
        "backtrace.txt": stacks,
        "backtrace.maps": b"7000-8000 r-xp 00000000 00:00 0 /lib/none.so\n",
        rescued_tensors.NAME: b'{"format": 1, "tensors": []}',
    }


def _show(name: str) -> Callable[[bytes, Path], None]:
    def read(data: bytes, folder: Path) -> None:
        run = folder / f"20261120-231501-{crashed_run.NOBODY}"
        run.mkdir()
        for other, content in _run_files().items():
            (run / other).write_bytes(data if other == name else content)
        before = sorted(os.listdir(folder))
        for arguments in (["show", "--json", str(run)], ["show", "0.1", "--run", str(run)]):
            _command(arguments)
        if sorted(os.listdir(folder)) != before:
            raise UnclearError(f"files outside of the run: {sorted(os.listdir(folder))}")

    return read


def _report(data: bytes, folder: Path) -> None:
    run = folder / f"20261120-231501-{crashed_run.NOBODY}"
    run.mkdir()
    for name, content in _run_files().items():
        (run / name).write_bytes(content)
    (run / stored_comparison.NAME).write_bytes(data)
    _command(["report", str(run), "-o", str(folder / "report.html")])


def _memory(data: bytes, folder: Path) -> None:
    run = folder / f"20261120-231501-{crashed_run.NOBODY}"
    run.mkdir()
    for name, content in _run_files().items():
        (run / name).write_bytes(content)
    (run / memory_meter.MEMORY_FILE).write_bytes(data)
    _command(["memory", str(run)])


def _threads(data: bytes, folder: Path) -> None:
    (folder / threads_json.NAME).write_bytes(data)
    threads_json.read(folder)


def _threads_samples() -> Sequence[bytes]:
    element = OutputElement(output=0, index=(1, 2), values=("1.5", "2.5"), different=3, elements=8)
    calls = (
        ThreadCall(thread=0, inputs=1, state=CallState.EQUAL),
        ThreadCall(thread=1, inputs=0, state=CallState.DIFFERS, element=element),
    )
    record = ThreadsRecord(threads=(7, 8), runners=2, sets=2, calls=calls, updates=1)
    return [json_data.to_text(record).encode()]


def _activity(data: bytes, folder: Path) -> None:
    recorder = _on_gpu()
    run = recorder.write(folder)
    (run.path / device_activity.NAME).write_bytes(data)
    profile = profile_of(Path("model.pt2"), run, Peaks("a GPU", 10e9, {"float32": 100e9}))
    profile_lines(profile, None, 100)
    trace_text(slices(run, profile.warm_up, profile.on_device), "model.pt2")
    json.dumps(profile_document.document(profile), allow_nan=False)


def _on_gpu() -> Recorder:
    """A call and a replay on a GPU."""
    recorder = Recorder()
    recorder.call(0)
    recorder.call(1, flags=on_gpu.capturing(), kernels=False)
    recorder.replay(on_gpu.PRODUCT, on_gpu.REDUCE, on_gpu.RELU, "Memset (Device)", on_gpu.RELU)
    return recorder


@cache
def _activities() -> bytes:
    with tempfile.TemporaryDirectory() as base:
        return (_on_gpu().write(Path(base)).path / device_activity.NAME).read_bytes()


def _counters() -> bytes:
    return b'{"calls": [{"resident": 1, "peak_resident": 2, "allocated": 3, "peak_allocated": 4, "reserved": 5}], ' + (
        b'"steps": [[1700000000000000000, 64]], "without_snapshot": "a reason"}'
    )


@cache
def _comparison() -> bytes:
    """What is kept of a comparison of this run, whose launches all have something wrong."""
    with tempfile.TemporaryDirectory() as base:
        run = run_directory.open_run(crashed_run.crashed(Path(base), None))
        spread = ErrorSpread(ulp=(1, 0, 2), misplaced=1, rows=1, columns=2, map=(0.5, 1e300), ranges=(((0, 1),),))
        element = Element(1, "nan", "0.5", "0.5")
        output = Measurement(
            argument="y",
            value="mm",
            operator="aten.mm.out",
            dtype="float32",
            shape=(2,),
            count=2,
            wrong=1,
            worst=element,
            spread=spread,
        )
        line = manifest.ModelLine("model.py", 3, "forward", "y = x @ w")
        rows = tuple(
            Row(
                launch=launch,
                verdict=LaunchVerdict.WRONG,
                reason="a reason",
                outputs=(output,),
                inherited={"y": 0.5},
                together_with=(launch.id,),
                suspects=(Suspect(node="mm", operator="mm", line=line),),
            )
            for launch in run.launches
        )
        return json.dumps(document(Comparison(run=run, rows=rows, program_failure="a reason", repro="repro"))).encode()


def _command(arguments: Sequence[str]) -> None:
    said, failed = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(failed):
        code = main.run(arguments)
    if code > 1:
        error = failed.getvalue().split("\nhint: ")[0].strip()
        check_error(code, error)


def _read_journal(data: bytes, folder: Path) -> None:
    path = folder / "journal.bin"
    path.write_bytes(data)
    for record in records_of(journal.read(path)):
        for value in getattr(record, "values", None) or ():
            str(value)


# ---- text


def _read_wrapper(data: bytes, folder: Path) -> None:
    text = data.decode("utf-8", "replace")
    analysis = analyse(text, headers=[_shims()], operators=texts.OPERATORS, schemas=texts.SCHEMAS)
    instrument(text, analysis)


@cache
def _shims() -> str:
    return (texts.WRAPPERS / "shim.h.txt").read_text()


def _read_proxy(data: bytes, folder: Path) -> None:
    text = data.decode("utf-8", "replace")
    analyse(texts.text("views"), proxy=text, headers=[_shims()], operators=texts.OPERATORS)


def _read_provenance(data: bytes, folder: Path) -> None:
    text = data.decode("utf-8", "replace")
    analyse(texts.text("sizes"), provenance=text, headers=[_shims()], operators=texts.OPERATORS)


def _read_kernel(language: str) -> Callable[[bytes, Path], None]:
    def read(data: bytes, folder: Path) -> None:
        text = data.decode("utf-8", "replace")
        kernel = Kernel("kernel", language, text, "0" * 64)
        result_slices.kernel_slices(kernel, frozenset({"in_ptr0", "out_ptr0"}))
        for line in text.splitlines()[:40]:
            model_lines.indices(line)
            cpp_text.to_python(line)

    return read


# ---- archives and inputs


def _read_core(data: bytes, folder: Path) -> None:
    path = folder / "core"
    path.write_bytes(data)
    with CoreFile(path) as core:
        _ignore((core.executable, core.files, core.read(0x10FF0, 0x40), core.read(0x12000, 1)))
        _ignore((core_launch.package_states(core), core_launch.packages_in(core)))


def _core() -> bytes:
    mapped = (Mapped(0x10000, 0x13000, 0, __file__), Mapped(0x20000, 0x21000, 0, "/memfd:aoti-debug-control (deleted)"))
    memory = (Memory(0x10000, b"a" * 4096), Memory(0x20000, b"AOTIDBP1\x01".ljust(4096, b"\0")))
    return SmallCore(threads=(7, 8), memory=memory, mapped=mapped, entry=0x10010).content()


def _unwound() -> bytes:
    marks = ("instruction\n=> 0x7f65 <f+4>:\tmov (%rdx,%rax,8),%rcx", "registers\nrdx  0x10  16\nrax  0x2  2")
    stacks = "stacks\n\nThread 1 (Thread 0x7f (LWP 7)):\npc 0x7f65 sp 0x7ffe\npc 0x7f70 sp 0x7fff"
    return "".join(f"\naoti-debug {part}\n" for part in (*marks, stacks)).encode()


def _read_unwound(data: bytes, _: Path) -> None:
    _ignore(core_stacks.parse(data.decode("utf-8", "replace")).accessed)


def _read_archive(data: bytes, folder: Path) -> None:
    path = folder / "model.pt2"
    path.write_bytes(data)
    found = archive.inspect(path)
    with contextlib.suppress(KeyError):
        input_files.read_signature(found)


def _archives() -> Iterator[bytes]:
    for members in (archives.PROGRAM, archives.PACKAGE, archives.SOURCES):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as written:
            for name, content in members.items():
                written.writestr(f"model/{name}", content, zipfile.ZIP_DEFLATED)
        yield buffer.getvalue()


def _read_weights(data: bytes, folder: Path) -> None:
    """Every weight that is found lies within the archive."""
    path = folder / "model.pt2"
    path.write_bytes(data)
    with contextlib.suppress(OSError, zipfile.BadZipFile):
        for name, stored in program_weights.stored_weights(path).items():
            key: object = name
            if not isinstance(key, str) or stored.begin < 0 or stored.nbytes < 1:
                raise UnclearError(f"{name!r}: {stored}")
            if stored.begin + stored.nbytes > len(data) or len(stored.shape) != len(stored.strides):
                raise UnclearError(f"{name!r} lies outside of the archive: {stored}")


def _read_packed_weights(data: bytes, folder: Path) -> None:
    """Every weight that is found lies within the package."""
    path = folder / "model.pt2"
    path.write_bytes(data)
    constant = Constant("w", "w", "float32", (4, 4), (4, 1), folded=False)
    packed = PackedWeights({"w": 64}, {"w": 64}, 128)
    of = replace(make_manifest(site("k", arg("w"))), constants=(constant,), packed=packed)
    with contextlib.suppress(OSError, zipfile.BadZipFile):
        for stored in program_weights.packed_weights(archive.inspect(path), of).values():
            if stored.begin < 0 or stored.nbytes < 1 or stored.begin + stored.nbytes > len(data):
                raise UnclearError(f"a weight lies outside of the package: {stored}")


def _packages() -> Iterator[bytes]:
    """Compiled packages that hold weights: beside the library, behind it, and each in a file of torch.save."""
    saved = io.BytesIO()
    with zipfile.ZipFile(saved, "w") as written:
        archives.write_aligned(written, "archive/data/0", bytes(64))
    library = b"\x7fELF\x02\x01" + bytes(58)
    config = json.dumps({"w": ["weight_0", [4, 4], [4, 1], 0]}).encode()
    for members in (
        {"model_weights.blob": bytes(128)},
        {"model.so": library + bytes(200)},
        {"weights_config.json": config, "../../weights/weight_0": saved.getvalue()},
    ):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as written:
            for name, content in {"model.so": library, **members}.items():
                member = os.path.normpath(f"model/data/aotinductor/model/{name}")
                archives.write_aligned(written, member, content)
        yield buffer.getvalue()


def _read_weight_descriptions(data: bytes, folder: Path) -> None:
    _read_weights(_program(data), folder)


def _program(descriptions: bytes) -> bytes:
    """An exported program of these descriptions, with 64 bytes for each of two weights."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as written:
        for name in ("weight_0", "weight_1"):
            archives.write_aligned(written, f"model/data/weights/{name}", bytes(64))
        written.writestr("model/data/weights/model_weights_config.json", descriptions)
        written.writestr("model/data/constants/model_constants_config.json", b'{"config": {}}')
    return buffer.getvalue()


@cache
def _weight_descriptions() -> bytes:
    def described(member: str, dtype: int, sizes: Sequence[int], strides: Sequence[int], offset: int = 0) -> object:
        meta = {
            "dtype": dtype,
            "sizes": [{"as_int": size} for size in sizes],
            "strides": [{"as_int": stride} for stride in strides],
            "storage_offset": {"as_int": offset},
            "layout": 7,
        }
        return {"path_name": member, "is_param": True, "use_pickle": False, "tensor_meta": meta}

    weights = {
        "linear.weight": described("weight_0", 7, (4, 4), (4, 1)),
        "turned": described("weight_1", 13, (4, 8), (1, 4), 2),
        "scalar": described("weight_1", 8, (), ()),
    }
    return json.dumps({"config": weights}).encode()


_SIGNATURE = ModelSignature((Leaf("x", "torch.float32", "cpu", (Dim(2, 2), Dim(1, -1, "s0"))), Leaf("n", constant="3")))


def _read_reference(data: bytes, folder: Path) -> None:
    path = folder / "x.weight.json"
    path.write_bytes(data)
    reference = weight_reference.read(path)
    reference.elements()


def _reference() -> bytes:
    described = {
        "format": 1,
        "name": "w",
        "file": "/model.pt2",
        "size": 4096,
        "sha256": "ab",
        "begin": 64,
        "hash": [1, 2],
    }
    layout = {"dtype": "float32", "shape": [4, 6], "strides": [1, 4], "storage_offset": 0, "storage_bytes": 96}
    return json.dumps(described | layout).encode()


def _read_safetensors(data: bytes, folder: Path) -> None:
    path = folder / "inputs.safetensors"
    path.write_bytes(data)
    input_files.load(path)


def _read_inputs(data: bytes, folder: Path) -> None:
    path = folder / "inputs.pt"
    path.write_bytes(data)
    input_files.load(path)


def _pickles() -> Iterator[bytes]:
    import torch

    for value in ((torch.zeros(2),), {"args": (torch.ones(1), 3), "kwargs": {"x": None}}):
        buffer = io.BytesIO()
        torch.save(value, buffer)
        yield buffer.getvalue()


def _safetensors() -> bytes:
    return save({"x": np.zeros(2, np.float32), "y": np.ones(3, np.int64)})


def _goldens(pattern: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted(texts.WRAPPERS.glob(pattern)) if path.stat().st_size < 30_000]


def _kernels(language: str) -> list[bytes]:
    found = [value for value in vars(kernel_sources).values() if isinstance(value, Kernel)]
    return [kernel.source.encode() for kernel in found if kernel.language == language]


def _manifest_json() -> bytes:
    return make_manifest(
        site("first", arg("x"), arg("y", Role.OUT)), kernels=(factories.triton_kernel("k"),)
    ).json_text.encode()


def _shown(name: str) -> Reader:
    form = {".bin": "bytes", ".json": "json"}.get(Path(name).suffix, "text")
    return Reader(f"show {name}", _show(name), lambda: [_run_files()[name]], form)


def readers() -> tuple[Reader, ...]:
    """Every reader."""
    shown = tuple(_shown(name) for name in _run_files())
    return (
        Reader("journal", _read_journal, lambda: [journal_of_every_record().bytes()[:4096]], "bytes"),
        Reader("manifest", lambda data, _: _ignore(manifest.from_json(data)), lambda: [_manifest_json()], "json"),
        *shown,
        Reader("comparison", _report, lambda: [_comparison()], "json"),
        Reader("counters of memory", _memory, lambda: [_counters()], "json"),
        Reader("calls of threads", _threads, _threads_samples, "json"),
        Reader("work of a GPU", _activity, lambda: [_activities()], "json"),
        Reader("wrapper", _read_wrapper, lambda: _goldens("*.cpp.txt"), "text"),
        Reader("proxy", _read_proxy, lambda: _goldens("*.proxy.json"), "json"),
        Reader("provenance", _read_provenance, lambda: _goldens("*.provenance.json"), "json"),
        Reader("triton kernel", _read_kernel("triton"), lambda: _kernels("triton"), "text"),
        Reader("cpp kernel", _read_kernel("cpp"), lambda: _kernels("cpp"), "text"),
        Reader("core", _read_core, lambda: [_core()], "bytes"),
        Reader("output of gdb", _read_unwound, lambda: [_unwound()], "text"),
        Reader("archive", _read_archive, lambda: list(_archives()), "bytes"),
        Reader("weights of a program", _read_weights, lambda: [_program(_weight_descriptions())], "bytes"),
        Reader("weights of a package", _read_packed_weights, lambda: list(_packages()), "bytes"),
        Reader("descriptions of weights", _read_weight_descriptions, lambda: [_weight_descriptions()], "json"),
        Reader(
            "metadata",
            lambda data, _: _ignore(compatibility.parse_metadata(Path("model.pt2"), "metadata.json", data)),
            lambda: [b'{"AOTI_DEVICE_KEY": "cpu", "AOTI_CPU_ISA": "AVX2"}'],
            "json",
        ),
        Reader("signature", lambda data, _: _read_signature(data), lambda: [_signature()], "json"),
        Reader("inputs.pt", _read_inputs, lambda: list(_pickles()), "bytes"),
        Reader("weight reference", _read_reference, lambda: [_reference()], "json"),
        Reader("inputs.safetensors", _read_safetensors, lambda: [_safetensors()], "bytes"),
    )


def _ignore(_: object) -> None:
    return None


def _read_signature(data: bytes) -> None:
    signature.from_json(data.decode("utf-8", "replace"))


def _signature() -> bytes:
    return signature.to_json(_SIGNATURE).encode()

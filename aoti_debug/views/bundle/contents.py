"""The contents of a bundle. Files that this module does not name are left out.

The folder in the archive is laid out like the directory that it comes from, so that aoti-debug opens it.
"""

from __future__ import annotations

import dataclasses
import json
import platform
from dataclasses import replace
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.abi import SaveStatus
from aoti_debug.base.errors import RunDirError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import untrusted_files
from aoti_debug.base.native import crash_stacks
from aoti_debug.compare import stored_comparison
from aoti_debug.package.manifest import Kernel, Manifest, Provenance, Site, Unrecognised
from aoti_debug.runs.diagnosis import findings
from aoti_debug.runs.diagnosis.findings import Finding
from aoti_debug.runs.rundir import breadcrumbs, run_directory, run_json, summaries
from aoti_debug.runs.rundir.formats import tensor_file_format, weight_reference
from aoti_debug.runs.rundir.formats.journal_records import TensorFile
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.triage.build_failures.proof_script import BUILD_REPRO
from aoti_debug.triage.results import triage_directory
from aoti_debug.triage.results.triage_directory import Record
from aoti_debug.views.redaction import RedactedPart, Redaction, redact_journal, redaction_for
from aoti_debug.views.report import report
from aoti_debug.views.report.subject import ReportSubject

README = "README.txt"
LOGS = ("stdout.log", "stderr.log")
_LARGEST_JOURNAL = 1 << 32  # bytes
_LARGEST_LOG = 4 << 20  # bytes, the end of it
_LARGEST_TENSORS = 64 << 20  # bytes of the guilty launch's saved tensors
_HOLDS_VALUES = "it holds values of tensors"
_HOLDS_SOURCE = "it holds source"
_NO_TENSORS = f"only tensors of the guilty launch are included, up to {wording.byte_size_in('MiB', _LARGEST_TENSORS)}"
_MAY_QUOTE_VALUES = "it may quote values"
_MAY_QUOTE_SOURCE = "it may quote source"
_KNOWN_REASONS = {
    run_directory.PACKAGE: "the package with its weights: send it separately if you may share it",
    "inputs.pt": "the model's inputs: send them separately if you may share them",
    "inputs.safetensors": "the model's inputs: send them separately if you may share them",
    crash_stacks.STACKS: "raw addresses; backtrace.json has them symbolized",
    crash_stacks.WAITS: "backtrace.json has it, with the stacks",
    crash_stacks.PYTHON: "Python stacks",
    "flight.bin": "values of tensors that the flight recorder kept",
    "rescued.json": "it belongs to tensors that are left out",
}


def remove_source(manifest: Manifest) -> Manifest:
    """The manifest without the texts of kernels, of the model and of the generated code.

    Names, files, line numbers, roles and layouts stay.
    """
    return replace(
        manifest,
        sites=tuple(_site(site) for site in manifest.sites),
        kernels=tuple(_kernel(kernel) for kernel in manifest.kernels),
        unrecognised=tuple(Unrecognised(call.function, call.line, "") for call in manifest.unrecognised),
        triton_helpers="",
    )


def _site(site: Site) -> Site:
    return replace(
        site,
        args=tuple(replace(arg, text="") for arg in site.args),
        operands=tuple(replace(operand, value="null") for operand in site.operands),
        provenance=_provenance(site.provenance),
    )


def _provenance(provenance: Provenance) -> Provenance:
    return replace(provenance, source=tuple(replace(frame, text="") for frame in provenance.source), stacks=())


def _kernel(kernel: Kernel) -> Kernel:
    return replace(kernel, source="")


@dataclass(frozen=True)
class Item:
    """A file of the archive.

    Attributes:
        name: its path below the archive's folder.
        content: the bytes, or the file that has them.
        size: bytes.
    """

    name: str
    content: bytes | Path
    size: int

    def read(self) -> bytes:
        """The file's bytes."""
        if isinstance(self.content, bytes):
            return self.content
        return untrusted_files.read_bytes(self.content.parent, self.content.name, self.size)


@dataclass(frozen=True)
class ExcludedFile:
    """A file or folder of the directory that is not in the archive.

    Attributes:
        size: bytes of the file, or of all files of the folder.
        why: "it holds values of tensors".
    """

    name: str
    size: int
    why: str


@dataclasses.dataclass
class Contents:
    """The files of an archive, and what was left out of it.

    Attributes:
        root: the archive's folder.
    """

    root: str
    items: list[Item] = dataclasses.field(default_factory=list)
    left_out: list[ExcludedFile] = dataclasses.field(default_factory=list)

    def add(self, name: str, content: str | bytes | Path) -> None:
        """Adds a file: a text, bytes, or the path of a file."""
        data = content.encode(errors="backslashreplace") if isinstance(content, str) else content
        self.items.append(Item(name, data, len(data) if isinstance(data, bytes) else data.stat().st_size))

    def leave_out(self, name: str, path: Path, why: str) -> None:
        """Lists a file or folder as left out."""
        self.left_out.append(ExcludedFile(name, size_of(path), why))


def contents_of(subject: ReportSubject, parts: frozenset[RedactedPart]) -> Contents:
    """The contents of a bundle of a run or a triage, without these parts.

    Raises:
        RunDirError: a run is damaged.
    """
    runs = [run for run in (subject.run, *subject.others) if run is not None]
    redaction = redaction_for(parts, (run.manifest for run in runs), subject.finding)
    contents = Contents(f"{subject.what}-{subject.name}")
    _verdict(contents, subject, redaction)
    _report(contents, subject, parts)
    if subject.triage is None:
        assert subject.run is not None
        _run(contents, subject.run, "", subject, redaction)
    else:
        for finding in (subject.finding, *subject.finding.also):
            _repro(contents, finding, subject, redaction)
        for run in runs:
            _run(contents, run, f"{triage_directory.RUNS}/{run.path.name}/", subject, redaction)
        repros = {_name_of_repro(finding.repro) for finding in (subject.finding, *subject.finding.also)}
        known = {triage_directory.NAME, triage_directory.RUNS, triage_directory.REPRO, "report", *repros}
        _rest(contents, subject.path, "", known)
    versions = {**subject.versions, "python": platform.python_version(), "system": platform.platform()}
    contents.add("versions.json", json.dumps(versions, indent=1) + "\n")
    contents.add(README, _readme(contents))
    return contents


def _readme(contents: Contents) -> str:
    """The text that says what its receiver types."""
    names = {item.name for item in contents.items}
    repros = sorted(name for name in names if name.endswith("/repro.py"))
    lines = [
        (str(report.REPORT), "the page, for any browser"),
        (
            f"aoti-debug show {contents.root}",
            "the same in a terminal, from the folder above; no torch is needed",
        ),
        *((f"python {name}", "runs this alone, in this folder; needs torch, not aoti-debug") for name in repros),
    ]
    width = max(len(command) for command, _ in lines)
    text = "".join(f"{command:<{width}}  {said}\n" for command, said in lines)
    return f"{text}\nThe package is not in here: the model cannot be run again from this.\n"


def _verdict(contents: Contents, subject: ReportSubject, redaction: Redaction) -> None:
    finding = redaction.redact_finding(subject.finding)
    finding = _as_there(finding, subject.path, redaction)
    if subject.triage is None:
        contents.add("verdict.json", json.dumps(findings.to_json(finding), indent=1) + "\n")
        return
    directory, run = subject.path, subject.run
    record = Record(
        finding=findings.map_repros(
            finding, lambda repro: "" if redaction.parts else str(directory / _name_of_repro(repro))
        ),
        steps=tuple(dataclasses.replace(step, text=redaction.redact(step.text)) for step in subject.steps),
        versions=subject.versions,
        command=subject.command,
        run="" if run is None else str(directory / triage_directory.RUNS / run.path.name),
    )
    contents.add(triage_directory.NAME, triage_directory.to_json(directory, record))


def _as_there(finding: Finding, directory: Path, redaction: Redaction) -> Finding:
    """The finding with the commands that are typed in the folder of the archive, without those for what is left out."""
    there = [command.replace(f"{directory.absolute()}/", "") for command in finding.next]
    kept = tuple(one for one in there if not (redaction.parts and "repro.py" in one))
    return replace(finding, next=kept, also=tuple(_as_there(one, directory, redaction) for one in finding.also))


def _report(contents: Contents, subject: ReportSubject, parts: frozenset[RedactedPart]) -> None:
    name = str(report.REPORT)
    reuse = not parts and 0 < untrusted_files.size(subject.path, name) <= untrusted_files.LARGEST_JSON
    contents.add(name, untrusted_files.read_bytes(subject.path, name) if reuse else report.html(subject, parts))


def _name_of_repro(repro: str) -> str:
    """The folder of a repro in the bundle."""
    name = Path(repro).name
    return name if name.startswith(BUILD_REPRO) else triage_directory.REPRO


def _repro(contents: Contents, finding: Finding, subject: ReportSubject, redaction: Redaction) -> None:
    """Only files within the triage directory are included: its record may name any path."""
    if not finding.repro:
        return
    folder = Path(finding.repro)
    name = f"{_name_of_repro(finding.repro)}/"
    if not folder.exists():
        contents.leave_out(name, folder, "it no longer exists")
    elif not folder.resolve().is_relative_to(subject.path.resolve()):
        contents.leave_out(name, folder, "it is outside the triage directory")
    elif redaction.removes_tensors:
        contents.leave_out(name, folder, f"{_HOLDS_VALUES}, in its script too")
    elif redaction.removes_source:
        contents.leave_out(name, folder, _HOLDS_SOURCE)
    elif folder.is_file():
        contents.add(f"{name}{folder.name}", folder)
    else:
        for file in untrusted_files.files_below(folder):
            if "__pycache__" not in file.parts:
                contents.add(f"{name}{file.relative_to(folder)}", file)


def _run(contents: Contents, run: RunDir, prefix: str, subject: ReportSubject, redaction: Redaction) -> None:
    info = dataclasses.replace(
        run.info, exit=dataclasses.replace(run.info.exit, detail=redaction.redact(run.info.exit.detail))
    )
    contents.add(f"{prefix}{run_json.NAME}", run_json.to_json(info))
    package = remove_source(run.manifest) if redaction.removes_source else run.manifest
    contents.add(f"{prefix}{run_directory.MANIFEST}", package.json_text)
    included = _tensors(contents, run, prefix, subject, redaction)
    if untrusted_files.size(run.path, run_directory.JOURNAL) > _LARGEST_JOURNAL:
        contents.leave_out(f"{prefix}{run_directory.JOURNAL}", run.path / run_directory.JOURNAL, "it is too large")
    elif untrusted_files.is_file(run.path, run_directory.JOURNAL):
        journal = untrusted_files.read_bytes(run.path, run_directory.JOURNAL, _LARGEST_JOURNAL)
        contents.add(f"{prefix}{run_directory.JOURNAL}", redact_journal(journal, redaction, included))
    crumbs = breadcrumbs.content(run.path)
    if crumbs is not None:
        contents.add(f"{prefix}{breadcrumbs.NAME}", crumbs)
    backtrace_file = run.path / crash_stacks.NAME
    if _is_regular_file(backtrace_file):
        if redaction.removes_source:
            contents.leave_out(f"{prefix}{crash_stacks.NAME}", backtrace_file, "it holds stacks")
        else:
            contents.add(f"{prefix}{crash_stacks.NAME}", backtrace_file)
    for name in LOGS:
        _log(contents, run.path / name, prefix + name, redaction)
    _comparison(contents, run, prefix, redaction)
    _summaries(contents, run, prefix, redaction)
    known = {
        run_json.NAME,
        stored_comparison.NAME,
        run_directory.MANIFEST,
        run_directory.JOURNAL,
        breadcrumbs.NAME,
        crash_stacks.NAME,
        "tensors",
        "report",
        *summaries.FILES,
        *LOGS,
    }
    _rest(contents, run.path, prefix, known)


def _comparison(contents: Contents, run: RunDir, prefix: str, redaction: Redaction) -> None:
    if not untrusted_files.is_file(run.path, stored_comparison.NAME):
        return
    path = run.path / stored_comparison.NAME
    if redaction.removes_tensors:
        contents.leave_out(f"{prefix}{stored_comparison.NAME}", path, _HOLDS_VALUES)
    elif redaction.removes_source:
        contents.leave_out(f"{prefix}{stored_comparison.NAME}", path, _HOLDS_SOURCE)
    else:
        contents.add(f"{prefix}{stored_comparison.NAME}", path)


def _summaries(contents: Contents, run: RunDir, prefix: str, redaction: Redaction) -> None:
    for name in summaries.FILES:
        if redaction.removes_tensors and _is_regular_file(run.path / name):
            contents.leave_out(f"{prefix}{name}", run.path / name, "it holds statistics of tensors")
        elif untrusted_files.is_file(run.path, name):
            contents.add(f"{prefix}{name}", run.path / name)


def _tensors(
    contents: Contents, run: RunDir, prefix: str, subject: ReportSubject, redaction: Redaction
) -> frozenset[str]:
    """Paths of the saved tensors that are included: those of the guilty launch, if they are not too large."""
    folder = run.path / "tensors"
    if not folder.is_dir():
        return frozenset()
    where = subject.finding.where
    guilty = None if where is None else run.find_launch(where.launch)
    saved = {} if guilty is None else {s.path: s for a in guilty.args for s in a.files.values() if s.path}
    present = [path for path in saved if not run.missing_file(saved[path])]
    if redaction.removes_tensors:
        contents.leave_out(f"{prefix}tensors/", folder, _HOLDS_VALUES)
        return frozenset()
    weights = {path for path in present if saved[path].status is SaveStatus.REFERRED}
    if sum(saved[path].bytes for path in present) > _LARGEST_TENSORS:
        present = [path for path in present if path not in weights]
    if sum(saved[path].bytes for path in present) > _LARGEST_TENSORS:
        present = []
    for path in present:
        contents.add(f"{prefix}{path}", run.path / path)
        if path in weights:
            content = b"".join(tensor_file_format.chunks(run.path / path))
            contents.add(f"{prefix}{weight_reference.beside(Path(path))}", content)
    _weights(contents, run, prefix, frozenset(present))
    rest = size_of(folder) - sum((run.path / path).stat().st_size for path in present)
    if rest > 0:
        why = "tensors of other launches" if present else _NO_TENSORS
        contents.left_out.append(ExcludedFile(f"{prefix}tensors/", rest, why))
    return frozenset(present)


def _weights(contents: Contents, run: RunDir, prefix: str, included: frozenset[str]) -> None:
    """Lists the weights that the run refers to, and that are not in the archive."""
    launches = run.launches if run.launches.is_measured else ()
    files = (saved for launch in launches for a in launch.args for saved in a.files.values())
    referred = {saved.path: saved for saved in files if saved.status is SaveStatus.REFERRED}
    inside = {saved.hash for path, saved in referred.items() if path in included}
    missing = {saved.hash: saved for saved in referred.values() if saved.hash not in inside}
    if missing:
        places = {_file_of_weight(run, saved) for saved in missing.values()} - {""}
        why = f"weights in {', '.join(sorted(places)) or 'another file'}: send it separately if you may share it"
        contents.left_out.append(ExcludedFile(f"{prefix}tensors/", sum(saved.bytes for saved in missing.values()), why))


def _file_of_weight(run: RunDir, saved: TensorFile) -> str:
    """The file that the run refers to for a weight; "" if it cannot be known."""
    try:
        return weight_reference.read(run.place_of(saved)).file
    except RunDirError:
        return ""


def _log(contents: Contents, path: Path, name: str, redaction: Redaction) -> None:
    if not _is_regular_file(path) or path.stat().st_size == 0:
        return
    if redaction.removes_tensors:
        contents.leave_out(name, path, _MAY_QUOTE_VALUES)
    elif redaction.removes_source:
        contents.leave_out(name, path, _MAY_QUOTE_SOURCE)
    elif path.stat().st_size <= _LARGEST_LOG:
        contents.add(name, path)
    else:
        with path.open("rb") as file:
            file.seek(-_LARGEST_LOG, 2)
            contents.add(name, file.read())
        contents.left_out.append(ExcludedFile(name, path.stat().st_size - _LARGEST_LOG, "its beginning"))


def _rest(contents: Contents, folder: Path, prefix: str, known: set[str]) -> None:
    for path in sorted(folder.iterdir()):
        if path.name not in known and not path.name.startswith("."):
            reason = _KNOWN_REASONS.get(path.name, "a separate run" if path.is_dir() else "not part of a bundle")
            contents.leave_out(f"{prefix}{path.name}", path, reason)


def _is_regular_file(path: Path) -> bool:
    """True if it is a file and no symbolic link: in a directory from elsewhere, a link may point to any file."""
    return path.is_file() and not path.is_symlink()


def size_of(path: Path) -> int:
    """Bytes of a file, or of the files below a folder."""
    if path.is_dir():
        return 0 if path.is_symlink() else sum(file.stat().st_size for file in untrusted_files.files_below(path))
    return path.stat().st_size if path.exists() else 0

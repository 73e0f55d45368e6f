"""The runtime under AddressSanitizer with UndefinedBehaviorSanitizer, and under ThreadSanitizer: no report."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from aoti_debug.instrument.builder.compiling.runtime_objects import shared_sources
from tests.kept import contents, kept
from tests.once import once
from tests.runtime_shims.runtime_library import SHIMS, TORCH, _run

HERE = Path(__file__).parent
SOURCES = HERE / "sanitized"
SANITIZERS = {
    "address": ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
    "thread": ("-fsanitize=thread", "-Wno-tsan"),  # it knows no fences; what they order is atomic, too
}
# -Og compiles in the time of -O0, and keeps local variables in registers, so that there are fewer accesses to look at.
CHEAP = ("-std=c++17", "-Og", "-g1", "-fPIC", "-ffp-contract=off", "-fno-gnu-unique", "-fvisibility=hidden")
OUTLINED = ("--param", "asan-instrumentation-with-call-threshold=0")  # half the time to compile
SETTINGS = {
    "ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "die_after_fork=0:second_deadlock_stack=1:exitcode=66",
}
# A flight recorder has a gigabyte by default, which takes the system a while. In less, launches soon take the memory of
# earlier ones, as well. A sixteenth is for the host: it grows once or twice.
FLIGHT, SMALL_FLIGHT = ({"FLIGHT": "8", "FLIGHT_BYTES": size} for size in ("320M", "32M"))
LEVELS = {
    "level 1": {"LEVEL": "1", "PHASE": "both"},
    "limits": {"LEVEL": "1", "MAX_BYTES": "300K", "MAX_FILES": "40", "JOURNAL_BYTES": "600K"},
    "level 2": {"LEVEL": "2", "GUARDS": "1"},
    "level 3": {"LEVEL": "3", **FLIGHT, "GUARDS": "1", "JOURNAL_BYTES": "1M"},
    "names": {"LEVEL": "3"},  # nothing is done with a launch but to record and name it
    "quiet": {"LEVEL": "3", **SMALL_FLIGHT, "GUARDS": "1", "PRINT": "none", "SUMMARIES": "1", "SUMMARIES_BYTES": "9K"},
}
CASES = (
    *(("address", "threads", level) for level in ("level 1", "level 3")),
    *(("address", "forks", level) for level in ("level 1", "level 2")),
    *(("address", "reloads", level) for level in ("limits", "level 3")),
    *(("address", "device", level) for level in ("level 2", "limits", "names")),
    *(("thread", "threads", level) for level in ("level 1", "level 2", "level 3", "names")),
    ("thread", "forks", "quiet"),  # it dies when the child of a process with threads starts threads
    *(("thread", "reloads", level) for level in ("limits", "level 3")),
    *(("thread", "device", level) for level in ("limits", "level 2")),
    *((sanitizer, "attach", "level 2") for sanitizer in ("address", "thread")),
)


def compile_host(sanitizer: str, folder: Path) -> Path:
    """A folder with `host`, `libshim.so` and `package.so`, linked from objects that are kept."""
    # One unit of all: the headers are what takes time.
    parts = shared_sources()
    unit = folder / "unit.cpp"
    unit.write_text("".join(f'#include "{path}"\n' for path in parts))
    flags = (*CHEAP, *SANITIZERS[sanitizer])
    headers = contents(*HERE.glob("*.h"), *SHIMS.rglob("*.h"))

    def compiled(source: Path, *options: str, includes: Sequence[Path] = ()) -> str:
        def make(path: Path) -> None:
            words = (*flags, *options, f"-I{SHIMS}", f"-I{TORCH / 'include'}")
            _run("g++", *words, "-c", str(source), "-o", str(path))

        texts = [*headers, *contents(*(includes or [source]))]
        return str(kept(f"{source.stem}.o", [*texts, *flags, *options], make))

    def link(name: str, *words: str) -> None:
        _run("g++", *flags, *words, "-o", str(folder / name))

    here = (f"-L{folder}", "-lshim", f"-Wl,-rpath,{folder}")
    runtime = compiled(unit, *(OUTLINED if sanitizer == "address" else ()), includes=parts)
    package = (runtime, compiled(HERE / "fake_device.cpp"), compiled(SOURCES / "package.cpp"))
    link("libshim.so", "-shared", compiled(SOURCES / "shim.cpp"), compiled(SHIMS / "tensors/dtype.cpp"))
    link("package.so", "-shared", "-Wl,-Bsymbolic-functions", *package, *here)
    link("host", compiled(SOURCES / "host.cpp"))
    return folder


def missing(sanitizer: str, folder: Path) -> str:
    """Why this machine cannot run programs with a sanitizer; "" if it can."""
    if shutil.which("g++") is None:
        return "no C++ compiler"
    source, program = folder / "empty.cpp", folder / "empty"
    source.write_text("int main() {}\n")
    command = ["g++", *SANITIZERS[sanitizer], str(source), "-o", str(program)]
    compiled = subprocess.run(command, capture_output=True, text=True)
    if compiled.returncode != 0:
        return f"g++ lacks the {sanitizer} sanitizer: {compiled.stderr.splitlines()[-1]}"
    ran = subprocess.run([program], capture_output=True, text=True)
    return f"the {sanitizer} sanitizer does not run here: {ran.stderr}" if ran.returncode != 0 else ""


@pytest.fixture(scope="session")
def host(compiler: None, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Compiles the host and the package for a sanitizer, once a session."""

    def compiled(sanitizer: str) -> Path:
        reason = once(tmp_path_factory, f"missing-{sanitizer}", lambda folder: missing(sanitizer, folder))
        if reason:
            pytest.skip(reason)
        return once(tmp_path_factory, f"sanitized-{sanitizer}", lambda folder: compile_host(sanitizer, folder))

    return compiled


@pytest.mark.parametrize(("sanitizer", "scenario", "level"), CASES)
def test_no_report(host: Callable[[str], Path], sanitizer: str, scenario: str, level: str, tmp_path: Path) -> None:
    folder = host(sanitizer)
    packages = [tmp_path / f"package{number}.so" for number in range(3)]
    for package in packages:
        shutil.copy(folder / "package.so", package)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AOTI_DEBUG_")}
    environment |= SETTINGS
    if scenario == "forks":  # a child forgets what its parent recorded, on purpose
        environment["ASAN_OPTIONS"] = SETTINGS["ASAN_OPTIONS"].replace("detect_leaks=1", "detect_leaks=0")
    environment |= {f"AOTI_DEBUG_{name}": value for name, value in LEVELS[level].items()}
    environment |= {
        "AOTI_DEBUG_DIR": str(tmp_path / "runs"),
        "AOTI_DEBUG_KEEP_FREE_BYTES": "0",
        "AOTI_DEBUG_BACKTRACE": "1",
    }
    done = subprocess.run(
        [folder / "host", scenario, *packages],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=(tmp_path / "stderr").open("w"),
        text=True,
        timeout=120,
    )
    said = (tmp_path / "stderr").read_text()
    reports = [line for line in said.splitlines() if "Sanitizer" in line or "runtime error:" in line]
    assert (done.returncode, done.stdout, reports) == (0, "done\n", []), said[-8000:]
    assert list((tmp_path / "runs").glob("2*/journal.bin"))
    if scenario == "attach":
        ends = [json.loads(path.read_text())["exit"]["kind"] for path in (tmp_path / "runs").glob("2*/run.json")]
        assert ends == ["clean"] * 7  # one before the first request, and one of each level but 0

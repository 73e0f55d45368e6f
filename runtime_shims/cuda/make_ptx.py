"""Writes statistics.ptx.gz: the kernels of this folder as text that every supported driver compiles when it loads it.

    python make_ptx.py [--nvcc NVCC]

The file is compressed. It is a sequence of PTX modules, each after a line `// module: NAME`: one for each element type,
so that a run pays for the dtypes that it meets, one for the gathering of strided tensors, one for guards around
buffers, one for what CUDA graphs hold. nvcc compiles all kernels at once, and each module gets its kernels and the
functions that they call. nvcc writes its own, newest version; the instructions are older, so the version and the target
are lowered to the oldest that have them all. Those that only newer devices have are behind `//sm_90 `: kernels.h makes
instructions of them where the device has them.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUTPUT = HERE / "statistics.ptx.gz"
KERNELS = "kernels.cu"
SOURCES = (
    *(KERNELS, "statistics.cu", "block_totals.h", "kernel_arguments.h", "statistics_math.h", "element_types.h"),
    *("interleaving.h", "../formats/content_hash.h"),
    *("guards.cu", "guard_jobs.h", "../formats/guard_zones.h"),
    *("graphs.cu", "graph_jobs.h", "partial_numbers.h", "../formats/watch_nodes.h", "../formats/statistic_value.h"),
    *("../formats/journal_format.h", "../formats/host_device.h"),
)
ELEMENT_TYPE = re.compile(r"_\((\w+), \d+\)")
STATISTICS = "aoti_debug_statistics"
OTHER_MODULES = {
    "Gather": [f"aoti_debug_gather_{size}" for size in (1, 2, 4, 8, 16)],
    "Guards": ["aoti_debug_fill_guarded", "aoti_debug_check_guards"],
    "Graphs": ["aoti_debug_begin_replay", "aoti_debug_watch"],
}

COMPILED_FOR = "compute_75"  # the oldest that nvcc 13 knows
ISA_VERSION = "6.0"
TARGET = "sm_70"
HEADER = (".version", ".target", ".address_size")
NEWER = {"griddepcontrol.wait;": "//sm_90 "}  # what makes a comment of an instruction
FLAGS = (
    "-std=c++17",
    "-ptx",
    f"-arch={COMPILED_FOR}",
    "-fmad=false",
)  # statistics_math.h says where a * b + c is fused


def modules() -> dict[str, list[str]]:
    """The kernels of each module as nvcc knows them, in the order of the file."""
    types = ELEMENT_TYPE.findall((HERE / "element_types.h").read_text())
    return {name: [f"{STATISTICS}_{name}"] for name in types} | OTHER_MODULES


def sources_hash() -> str:
    """SHA-256 of everything that the modules are compiled from."""
    digest = hashlib.sha256("\0".join((*FLAGS, ISA_VERSION, TARGET)).encode())
    for name in SOURCES:
        digest.update(b"\0" + (HERE / name).read_bytes())
    return digest.hexdigest()


def recorded_hash(ptx: str) -> str:
    """The hash that a statistics.ptx was made from.

    Raises:
        ValueError: the text carries none.
    """
    found = re.search(r"^// sources: sha256 ([0-9a-f]{64})$", ptx, re.MULTILINE)
    if found is None:
        raise ValueError("no line of the form `// sources: sha256 …`")
    return found.group(1)


def compiler_version(nvcc: str) -> str:
    """Such as "13.0.88"."""
    text = subprocess.run([nvcc, "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"V(\d+\.\d+\.\d+)", text)
    return found.group(1) if found else "of an unknown version"


def read() -> str:
    """Returns the text of the file."""
    return gzip.decompress(OUTPUT.read_bytes()).decode()


def write(ptx: str) -> None:
    """Writes the file, unless it has this text: other versions of zlib may compress it to other bytes."""
    if not OUTPUT.exists() or read() != ptx:
        OUTPUT.write_bytes(gzip.compress(ptx.encode(), mtime=0))


def split(ptx: str) -> dict[str, str]:
    """The text of each module of a statistics.ptx, by name."""
    _, *parts = re.split(r"^// module: (\w+)\n", ptx, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def statements(ptx: str) -> list[str]:
    """The statements of a module: its directives, declarations, variables and functions, whole lines each."""
    found, lines, depth = [], [], 0
    for line in ptx.splitlines(keepends=True):
        lines.append(line)
        code = line.partition("//")[0].strip()
        depth += code.count("{") - code.count("}")
        if depth == 0 and (code.startswith(HEADER) or code.endswith((";", "}"))):
            found.append("".join(lines))
            lines = []
    return [*found, *(["".join(lines)] if lines else [])]


def defined_name(statement: str) -> str:
    """The function or variable that a statement declares or defines; "" for a directive."""
    found = re.match(r"(?:\.visible )?\.(?:entry|func|shared|global|const)\b[^(\[;]*?([\w$]+)\s*[(\[;]", statement)
    return found.group(1) if found else ""


def make(nvcc: str) -> str:
    """The text of statistics.ptx.

    Raises:
        subprocess.CalledProcessError: nvcc failed.
    """
    parts = [f"// Written by make_ptx.py with nvcc {compiler_version(nvcc)}.\n// sources: sha256 {sources_hash()}\n"]
    whole = statements("".join(f"{line}\n" for line in _lowered(_compile(nvcc))))
    for name, kernels in modules().items():
        parts.append(f"// module: {name}\n")
        parts += [text.replace(f"{STATISTICS}_{name}", STATISTICS) for text in _needed(whole, kernels)]
    return "".join(parts)


def _compile(nvcc: str) -> str:
    with tempfile.TemporaryDirectory(prefix="make_ptx-") as work:
        output = Path(work) / "kernels.ptx"
        subprocess.run([nvcc, *FLAGS, f"-I{HERE.parent}", str(HERE / KERNELS), "-o", str(output)], check=True)
        return output.read_text()


def _needed(whole: list[str], kernels: list[str]) -> list[str]:
    """Those statements that these kernels need, in their order."""
    named: dict[str, set[str]] = {}
    for statement in whole:
        named.setdefault(defined_name(statement), set()).update(re.findall(r"[\w$]+", statement))
    needed, left = {""}, list(kernels)
    while left:
        name = left.pop()
        if name not in needed:
            needed.add(name)
            left += named[name] & named.keys()
    return [statement for statement in whole if defined_name(statement) in needed]


def _lowered(ptx: str) -> Iterator[str]:
    for line in ptx.splitlines():
        code = line.partition("//")[0].strip().replace("\t", " ")
        if code.startswith(".version"):
            yield f".version {ISA_VERSION}"
        elif code.startswith(".target"):
            yield f".target {TARGET}"
        elif code and "used_bytes_mask" not in code:  # a hint for tools, of a newer ISA
            yield NEWER.get(code, "") + code


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes statistics.ptx.gz.")
    parser.add_argument("--nvcc", default="nvcc")
    write(make(parser.parse_args().nvcc))


if __name__ == "__main__":
    main()

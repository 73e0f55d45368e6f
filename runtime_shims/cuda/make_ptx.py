"""Writes statistics.ptx: the kernels of this folder as text that every supported driver compiles when it loads it.

    python make_ptx.py [--nvcc NVCC]

The file is a sequence of PTX modules, each after a line `// module: NAME`: one for each element type, so that a run
pays for the dtypes that it meets, one for the gathering of strided tensors, one for guards around buffers, one for what
CUDA graphs hold. nvcc writes its own, newest version; the instructions are older, so the version and the target are
lowered to the oldest that have them all. Those that only newer devices have are behind `//sm_90 `: kernels.h makes
instructions of them where the device has them.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUTPUT = HERE / "statistics.ptx"
KERNELS = "statistics.cu"
GUARD_KERNELS = "guards.cu"
GRAPH_KERNELS = "graphs.cu"
SOURCES = (
    *(KERNELS, "block_totals.h", "kernel_arguments.h", "statistics_math.h", "element_types.h", "interleaving.h"),
    "../formats/content_hash.h",
    *(GUARD_KERNELS, "guard_jobs.h", "../formats/guard_zones.h"),
    *(GRAPH_KERNELS, "graph_jobs.h", "partial_numbers.h", "../formats/watch_nodes.h", "../formats/statistic_value.h"),
    *("../formats/journal_format.h", "../formats/host_device.h"),
)
ELEMENT_TYPE = re.compile(r"_\((\w+), \d+\)")
GATHER = "Gather"
GUARDS = "Guards"
GRAPHS = "Graphs"

COMPILED_FOR = "compute_75"  # the oldest that nvcc 13 knows
ISA_VERSION = "6.0"
TARGET = "sm_70"
NEWER = {"griddepcontrol.wait;": "//sm_90 "}  # what makes a comment of an instruction
FLAGS = (
    "-std=c++17",
    "-ptx",
    f"-arch={COMPILED_FOR}",
    "-fmad=false",
)  # statistics_math.h says where a * b + c is fused


def modules() -> list[str]:
    """The names of the modules, in the order of the file."""
    return [*ELEMENT_TYPE.findall((HERE / "element_types.h").read_text()), GATHER, GUARDS, GRAPHS]


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


def split(ptx: str) -> dict[str, str]:
    """The text of each module of a statistics.ptx, by name."""
    _, *parts = re.split(r"^// module: (\w+)\n", ptx, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def make(nvcc: str) -> str:
    """The text of statistics.ptx.

    Raises:
        subprocess.CalledProcessError: nvcc failed.
    """
    lines = [f"// Written by make_ptx.py with nvcc {compiler_version(nvcc)}.", f"// sources: sha256 {sources_hash()}"]
    for name in modules():
        lines += [f"// module: {name}", *_lowered(_compile(nvcc, name))]
    return "\n".join(lines) + "\n"


def _compile(nvcc: str, module: str) -> str:
    definition, source = f"-DAOTI_DEBUG_ELEMENT={module}", KERNELS
    if module == GATHER:
        definition = "-DAOTI_DEBUG_GATHER"
    elif module == GUARDS:
        definition, source = "-DAOTI_DEBUG_GUARDS", GUARD_KERNELS
    elif module == GRAPHS:
        definition, source = "-DAOTI_DEBUG_GRAPHS", GRAPH_KERNELS
    with tempfile.TemporaryDirectory(prefix="make_ptx-") as work:
        output = Path(work) / "module.ptx"
        subprocess.run(
            [nvcc, *FLAGS, f"-I{HERE.parent}", definition, str(HERE / source), "-o", str(output)], check=True
        )
        return output.read_text()


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
    parser = argparse.ArgumentParser(description="Writes statistics.ptx.")
    parser.add_argument("--nvcc", default="nvcc")
    OUTPUT.write_text(make(parser.parse_args().nvcc))


if __name__ == "__main__":
    main()

"""A C++ program that runs a package, and knows nothing of aoti_debug: cpp/host.cpp."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from tests.kept import contents, kept
from tests.paths import CPP


def compiled_host() -> Path:
    """The program, compiled once."""
    root, source = Path(torch.__file__).parent, CPP / "host.cpp"
    command = ["g++", "-O0", "-std=c++20", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
    include = [f"-I{root}/include", f"-I{root}/include/torch/csrc/api/include"]
    libraries = [f"-L{root}/lib", f"-Wl,-rpath,{root}/lib", "-ltorch", "-ltorch_cpu", "-lc10"]

    def make(program: Path) -> None:
        subprocess.run([*command, str(source), *include, "-o", str(program), *libraries], check=True)

    return kept("host", [*contents(source), *command, *libraries], make)


def call(
    host: Path, package: Path, inputs: Sequence[torch.Tensor], folder: Path, variables: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Runs a package once in the C++ program.

    Args:
        folder: for the inputs.
        variables: environment variables of the runtime.
    """
    paths = [folder / f"input{number}.pickle" for number in range(len(inputs))]
    for path, tensor in zip(paths, inputs, strict=True):
        path.write_bytes(torch._C._pickle_save(tensor))
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH" and "AOTI_DEBUG" not in name}
    return subprocess.run(
        [str(host), str(package), *map(str, paths)],
        env={**own, **variables},
        check=True,
        capture_output=True,
        text=True,
    )

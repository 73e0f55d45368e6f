from __future__ import annotations

from pathlib import Path

from tests.runtime_shims.runtime_library import SHIMS, TORCH, _run


def test_the_declarations_are_those_of_torch(compiler: None, tmp_path: Path) -> None:
    source = tmp_path / "both.cpp"
    headers = ("<torch/csrc/inductor/aoti_torch/c/shim.h>", '"tensors/torch_shim.h"')
    source.write_text("".join(f"#include {header}\n" for header in headers))
    _run("g++", "-std=c++17", "-fsyntax-only", f"-I{SHIMS}", f"-I{TORCH / 'include'}", str(source))

"""Exports cases in one process, which imports torch once: `python -m corpus.export FOLDER DEVICE [NATIVE.so] < NAMES`.

Leaves in FOLDER/<case>: model.pt2, inputs.pt where the run's inputs are not those of the export, and case.json with the
lines that are marked as the fault's origin. A case is complete once case.json is there.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import torch

from tests.corpus.case import Case, origin_lines


def export(case: Case, device: str, folder: Path) -> None:
    for module in case.imports:
        importlib.import_module(module)
    example = case.make(device)
    folder.mkdir(parents=True, exist_ok=True)
    with torch.no_grad():
        program = torch.export.export(
            example.module.eval(),
            example.args,
            dict(example.kwargs),
            dynamic_shapes=example.dynamic,
            strict=example.strict,
        )
    torch.export.save(program, folder / "model.pt2")
    if example.inputs is not None:
        torch.save(example.inputs, folder / "inputs.pt")
    origins = [[str(at.file), at.line, at.text] for at in origin_lines(example.module)]
    (folder / "case.json").write_text(json.dumps({"origins": origins, "inputs": example.inputs is not None}))


def main() -> None:
    folder, device, *native = sys.argv[1:]
    for library in native:
        torch.ops.load_library(library)
    from tests.corpus import cases

    known = {case.name: case for case in (*cases.faults(device), *cases.clean(device), cases.TOGETHER)}
    for name in sys.stdin.read().split():
        export(known[name], device, Path(folder) / name)
        print(name, flush=True)


if __name__ == "__main__":
    main()

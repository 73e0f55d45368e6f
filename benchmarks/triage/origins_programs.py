"""Exports and compiles the programs of origins.py, in a process of its own; and finds them on the disk.

usage: python -m benchmarks.triage.origins_programs FOLDER < NAMES OF CASES

The names are one a line; after a "*" the program is also compiled by torch.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.triage.planted_origins import OPERATORS, Case, Program, inputs_of, model_of, of_model
from benchmarks.triage.planted_origins_cases import CASES, PROGRAMS

BY_NAME: Mapping[str, Case] = {case.name: case for case in CASES}


@dataclass(frozen=True)
class Files:
    """Where a case's program lies; cases with the same numbers in the model share it."""

    folder: Path

    @property
    def program(self) -> Path:
        return self.folder / "program.pt2"

    @property
    def package(self) -> Path:
        """As torch compiles it."""
        return self.folder / "package.pt2"

    def instrumented(self, *, is_compiled: bool) -> Path:
        return self.folder / f"{'package' if is_compiled else 'program'}.instrumented.pt2"

    @property
    def names(self) -> Path:
        """JSON: how else an input, buffer or parameter may be called, with its own name."""
        return self.folder / "names.json"


def slug(text: str) -> str:
    """A text as a name of a file."""
    return re.sub(r"\W+", "_", text).strip("_")


def files_of(case: Case, folder: Path) -> Files:
    changed = of_model(case, PROGRAMS[case.program])
    words = [case.program, *(f"{e.tensor} {e.index} {e.value}" for e in changed)]
    return Files(folder / slug(" ".join(words)))


def export(case: Case, files: Files) -> torch.export.ExportedProgram:
    """Writes the exported program, with inputs that it takes."""
    program = PROGRAMS[case.program]
    files.folder.mkdir(parents=True, exist_ok=True)
    with torch.no_grad():
        exported = torch.export.export(
            model_of(program, of_model(case, program)),
            inputs_of(program, ()),
            dynamic_shapes=program.dynamic,
            strict=program.strict,
        )
    torch.export.save(exported, files.program)
    files.names.write_text(json.dumps(_names(exported, program)))
    return exported


def _names(exported: torch.export.ExportedProgram, program: Program) -> dict[str, str]:
    """The names that Inductor and its packages give what comes in, with those that the user gave."""
    names: dict[str, str] = {}
    users = iter(program.names)
    for number, spec in enumerate(exported.graph_signature.input_specs):
        name = spec.target or next(users)
        for other in (name, name.replace(".", "_"), spec.arg.name, f"arg{number}_1"):
            names.setdefault(other, name)
    return names


def compile_package(program: Program, files: Files) -> None:
    """Writes the package that torch makes of the exported program."""
    exported = torch.export.load(files.program)
    with torch.no_grad():
        torch._inductor.aoti_compile_and_package(
            exported, package_path=str(files.package), inductor_configs=dict(program.configs)
        )


def main() -> None:
    importlib.import_module(OPERATORS)
    folder = Path(sys.argv[1])
    for line in sys.stdin.read().splitlines():
        case = BY_NAME[line.removeprefix("*")]
        files = files_of(case, folder)
        if not files.names.exists():
            export(case, files)
        if line.startswith("*") and not files.package.exists():
            compile_package(PROGRAMS[case.program], files)
        print(line, flush=True)


if __name__ == "__main__":
    main()

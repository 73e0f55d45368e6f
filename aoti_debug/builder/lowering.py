"""The requests to the frontend: sources of what is built from, and inputs that are made to fit."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.builder.checked_options import CheckedOptions
from aoti_debug.builder.options import BuildOptions
from aoti_debug.frontend import compiled_package, exported_program
from aoti_debug.frontend.lowered import EmbeddedInputs, Lowered, inputs_in
from aoti_debug.frontend.worker import protocol
from aoti_debug.frontend.worker.protocol import Request, name_operators
from aoti_debug.machine.compiler import Torch
from aoti_debug.pt2.archive import Artifact

INPUTS_CHILD = "aoti_debug.frontend.worker.make_inputs"


def lower(checked: CheckedOptions, torch: Torch, work: Path) -> Lowered:
    """Makes the program or the package of a build ready to be instrumented.

    Args:
        work: a directory for all results.

    Raises:
        ArtifactError, ToolchainError, UsageError: as `exported_program.lower` and `compiled_package.adopt`.
    """
    program, asked = checked.program, checked.asked
    folder = work / "lowering"
    folder.mkdir()
    request = Request(
        program=str(program.path.resolve()) if isinstance(program, Artifact) else "",
        folder=str(folder),
        configs=name_operators(asked.inductor_configs),
        imports=asked.imports,
        libraries=asked.library_paths,
        inputs=str(asked.inputs.resolve()) if asked.inputs else "",
    )
    if not isinstance(program, Artifact):
        return exported_program.lower_program(program, request, torch, timeout=asked.timeout)
    if checked.compiled is not None:
        return compiled_package.adopt(checked.compiled, checked.model, request, torch, timeout=asked.timeout)
    return exported_program.lower(request, torch, timeout=asked.timeout)


def lower_exported(exported: Artifact, options: BuildOptions, torch: Torch, work: Path) -> Lowered:
    """Lowers the exported program that a compiled package came from. Raises as `lower`."""
    folder = work / "exported"
    folder.mkdir()
    request = Request(
        program=str(exported.path.resolve()),
        folder=str(folder),
        imports=options.imports,
        libraries=options.library_paths,
    )
    return exported_program.lower(request, torch, timeout=options.timeout)


def random_inputs(lowered: Lowered, manifest_json: str, seed: int, torch: Torch, timeout: float) -> EmbeddedInputs:
    """Makes inputs that fit a model.

    Raises:
        ArtifactError: nothing fits, or the package does not say what would.
        ToolchainError: the process that makes them crashed or hung.
    """
    folder = lowered.signature_file.parent
    (folder / protocol.MANIFEST).write_text(manifest_json, encoding="utf-8")
    request = Request(program="", folder=str(folder), random_inputs=seed)
    return inputs_in(folder, exported_program.ask(INPUTS_CHILD, request, torch, timeout))

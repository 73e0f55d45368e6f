"""Requests of a build to the frontend: the sources to instrument, and random inputs."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.base.machine.compiler import Torch
from aoti_debug.instrument.builder.checked_options import CheckedOptions
from aoti_debug.instrument.builder.options import BuildOptions
from aoti_debug.instrument.frontend import compiled_package, exported_program
from aoti_debug.instrument.frontend.lowered_model import EmbeddedInputs, LoweredModel, embedded_inputs
from aoti_debug.instrument.frontend.protocol import messages
from aoti_debug.instrument.frontend.protocol.messages import Request, name_operators
from aoti_debug.package.pt2.archive import Artifact

INPUTS_WORKER = "aoti_debug.instrument.frontend.worker.make_inputs"


def lower_or_unpack(checked: CheckedOptions, torch: Torch, work: Path) -> LoweredModel:
    """Lowers the exported program, or unpacks the compiled package, that is built from.

    Args:
        work: a directory for all results.

    Raises:
        ArtifactError, ToolchainError, UsageError: like `exported_program.lower` and `compiled_package.prepare_package`.
    """
    program, options = checked.program, checked.options
    folder = work / "lowering"
    folder.mkdir()
    request = Request(
        program=str(program.path.resolve()) if isinstance(program, Artifact) else "",
        folder=str(folder),
        configs=name_operators(options.inductor_configs),
        imports=options.imports,
        libraries=options.library_paths,
        inputs=str(options.inputs.resolve()) if options.inputs else "",
        left_out=options.left_out,
    )
    if not isinstance(program, Artifact):
        return exported_program.lower_program(program, request, torch, timeout=options.timeout)
    if checked.compiled is not None:
        return compiled_package.prepare_package(
            checked.compiled, checked.model, request, torch, timeout=options.timeout
        )
    return exported_program.lower(request, torch, timeout=options.timeout)


def lower_exported(exported: Artifact, options: BuildOptions, torch: Torch, work: Path) -> LoweredModel:
    """Lowers the exported program that a compiled package came from. Raises like `lower_or_unpack`."""
    folder = work / "exported"
    folder.mkdir()
    request = Request(
        program=str(exported.path.resolve()),
        folder=str(folder),
        imports=options.imports,
        libraries=options.library_paths,
        configs=name_operators(options.inductor_configs),
    )
    return exported_program.lower(request, torch, timeout=options.timeout)


def make_random_inputs(
    lowered: LoweredModel, manifest_json: str, seed: int, torch: Torch, timeout: float
) -> EmbeddedInputs:
    """Makes random inputs that the model accepts.

    Raises:
        ArtifactError: no inputs are acceptable, or the package does not describe its inputs.
        ToolchainError: the process that makes them crashed or hung.
    """
    folder = lowered.signature_file.parent
    (folder / messages.MANIFEST).write_text(manifest_json, encoding="utf-8")
    request = Request(program="", folder=str(folder), random_inputs=seed)
    return embedded_inputs(folder, exported_program.run_worker(INPUTS_WORKER, request, torch, timeout))

"""The input of instrumentation: a model's sources, signature and torch's data about it; the inputs to embed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from aoti_debug.base.errors import ArtifactError
from aoti_debug.base.frozen import dataclass
from aoti_debug.instrument.frontend.protocol import messages
from aoti_debug.instrument.frontend.protocol.messages import Answer, TritonConfig
from aoti_debug.instrument.frontend.sources import Sources
from aoti_debug.package.inputs import signature
from aoti_debug.package.inputs.signature import Dim, Leaf, ModelSignature
from aoti_debug.package.manifest import PackageOrigin
from aoti_debug.package.pt2.archive import Artifact
from aoti_debug.package.weights_file import WeightsFile


@dataclass(frozen=True)
class EmbeddedInputs:
    """The inputs to embed in a package.

    Attributes:
        file: None if there are none.
        missing_reason: why there are none; "" if there are some.
    """

    file: Path | None
    missing_reason: str


@dataclass(frozen=True)
class LoweredModel:
    """A lowered exported program, or an unpacked compiled package, ready to be instrumented.

    Attributes:
        archive: the compiled package, or Inductor's archive of an exported program; all but the model's files is copied
            from it to the new package.
        inputs: the inputs that the user gave, or the example inputs of the program.
        signature_file: JSON file of the model's signature.
        log: output of the worker process; the file does not exist if there was no such process.
        answer: the worker's answer.
        triton_configs: kernel name -> configuration, from the lowering that the kernels come from.
        model: name in the archive.
        source: kind of file that the model was read from.
        reference_file: JSON file of the reference; None if the model was not lowered here.
        exported_file: the same with only the graph of the exported program that was given for a package which is not
            what that is lowered to here; None if there is none.
        weights_file: the file that the weights are left in; None if the package will hold them.
        weights: the constants that are not in that file; None if the package will hold all.
    """

    sources: Sources
    archive: Artifact
    inputs: EmbeddedInputs
    signature_file: Path
    log: Path
    answer: Answer
    triton_configs: Mapping[str, TritonConfig]
    model: str
    source: PackageOrigin
    reference_file: Path | None = None
    exported_file: Path | None = None
    weights_file: WeightsFile | None = None
    weights: Path | None = None

    @cached_property
    def signature(self) -> ModelSignature:
        """The inputs that the model takes."""
        return signature.from_json(self.signature_file.read_text(encoding="utf-8"))


def embedded_inputs(folder: Path, answer: Answer) -> EmbeddedInputs:
    """The inputs that a worker wrote to its folder, or the reason why there are none."""
    file = folder / messages.INPUTS
    return EmbeddedInputs(file if file.exists() else None, answer.without_inputs)


def choose_inputs(package: LoweredModel, program: LoweredModel, exported: Path) -> EmbeddedInputs:
    """Returns the inputs given for a compiled package, or else the example inputs of its program if they fit.

    Args:
        program: the exported program that the package was compiled from.
        exported: file of the program, for messages.

    Raises:
        ArtifactError: the program cannot be the one that the package came from.
    """
    package_signature, program_signature = package.signature, program.signature
    if not may_be_compiled_from(package_signature, program_signature):
        raise ArtifactError(
            f"{package.archive.path} was not compiled from {exported}, "
            f"which takes:{program_signature.indented_lines()}",
            hint=f"pass the program that it was compiled from; the package takes:{package_signature.indented_lines()}",
        )
    if package.inputs.file is not None:
        return package.inputs
    if sizes_overlap(package_signature, program_signature):
        return program.inputs
    return EmbeddedInputs(None, f"those of {exported.name} do not fit")


def with_input_names(package: LoweredModel, program: LoweredModel) -> LoweredModel:
    """The package whose inputs have the names of its program, which `choose_inputs` has taken inputs of."""
    pairs = zip(package.signature.leaves, _tensors(program.signature), strict=True)
    named = replace(package.signature, leaves=tuple(replace(ours, name=theirs.name) for ours, theirs in pairs))
    file = package.signature_file.with_name("named_signature.json")
    file.write_text(signature.to_json(named), encoding="utf-8")
    return replace(package, signature_file=file)


def may_be_compiled_from(package: ModelSignature, program: ModelSignature) -> bool:
    """True if both signatures have the same number of inputs, and tensors of equal dtypes and ranks."""
    if package.count != program.count or len(package.leaves) != len(_tensors(program)):
        return False
    return all(
        _dtype_and_rank(ours) == _dtype_and_rank(theirs) for ours, theirs in _described_tensors(package, program)
    )


def sizes_overlap(package: ModelSignature, program: ModelSignature) -> bool:
    """True if the ranges of sizes overlap in every dimension of every tensor; both signatures must match."""
    pairs = _described_tensors(package, program)
    return all(_dims_overlap(*dims) for ours, theirs in pairs for dims in zip(ours.shape, theirs.shape, strict=True))


def _described_tensors(package: ModelSignature, program: ModelSignature) -> list[tuple[Leaf, Leaf]]:
    """Pairs of tensors of both, without those that the package does not describe."""
    pairs = zip(package.leaves, _tensors(program), strict=True)
    return [(ours, theirs) for ours, theirs in pairs if ours.is_tensor]


def _tensors(signature: ModelSignature) -> list[Leaf]:
    return [leaf for leaf in signature.leaves if leaf.is_tensor]


def _dtype_and_rank(leaf: Leaf) -> tuple[str, int]:
    return leaf.dtype, len(leaf.shape)


def _dims_overlap(first: Dim, second: Dim) -> bool:
    smallest = max(first.minimum, second.minimum)
    return first.admits(smallest) and second.admits(smallest)

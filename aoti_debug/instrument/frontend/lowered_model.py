"""The input of instrumentation: a model's sources, inputs and signature, and torch's data about it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.instrument.frontend.protocol import messages
from aoti_debug.instrument.frontend.protocol.messages import Answer, TritonConfig
from aoti_debug.instrument.frontend.sources import Sources
from aoti_debug.package.inputs import signature
from aoti_debug.package.inputs.signature import ModelSignature
from aoti_debug.package.manifest import PackageOrigin
from aoti_debug.package.pt2.archive import Artifact


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

    @cached_property
    def signature(self) -> ModelSignature:
        """The inputs that the model takes."""
        return signature.from_json(self.signature_file.read_text(encoding="utf-8"))


def embedded_inputs(folder: Path, answer: Answer) -> EmbeddedInputs:
    """The inputs that a worker wrote to its folder, or the reason why there are none."""
    file = folder / messages.INPUTS
    return EmbeddedInputs(file if file.exists() else None, answer.without_inputs)

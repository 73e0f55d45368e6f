"""What a package is built from: the sources of a model, and what torch told of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from aoti_debug.frontend.sources import Sources
from aoti_debug.frontend.worker import protocol
from aoti_debug.frontend.worker.protocol import Answer, TritonConfig
from aoti_debug.inputs import signature
from aoti_debug.inputs.signature import ModelSignature
from aoti_debug.manifest import PackageOrigin
from aoti_debug.pt2.archive import Artifact


@dataclass(frozen=True)
class EmbeddedInputs:
    """The inputs that go into a package.

    Attributes:
        file: None where there are none.
        missing: why there are none; "" where there are.
    """

    file: Path | None
    missing: str


@dataclass(frozen=True)
class Lowered:
    """A model made ready to be instrumented.

    Attributes:
        archive: the compiled package, or what Inductor wrote of an exported program; a package is a copy of it but for
            the model's files.
        inputs: those that were asked for, or that the program brings along.
        signature_file: the file with the model's signature.
        log: what the child printed; does not exist where there was no child.
        answer: of the process that lowered the model.
        triton_configs: kernel name -> configuration, of the lowering that the kernels come from.
        model: its name in the archive.
        source: what it was made from.
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

    @cached_property
    def signature(self) -> ModelSignature:
        """What the model takes."""
        return signature.from_json(self.signature_file.read_text(encoding="utf-8"))


def inputs_in(folder: Path, answer: Answer) -> EmbeddedInputs:
    """The inputs that a lowering left in its folder."""
    file = folder / protocol.INPUTS
    return EmbeddedInputs(file if file.exists() else None, answer.without_inputs)

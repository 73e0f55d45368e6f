"""What can be run: an instrumented package, or a compiled one without the source of its wrapper."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aoti_debug.manifest import MEMBER, Manifest
from aoti_debug.pt2 import archive
from aoti_debug.pt2.archive import Artifact, ArtifactKind
from aoti_debug.run.interposer.prepare import prepare
from aoti_debug.run.protocol import InterposedLibraries


@dataclass(frozen=True)
class RunTarget:
    """
    Attributes:
        text: the manifest as it goes to a run.
        interposed: None for an instrumented package.
    """

    manifest: Manifest
    text: bytes
    interposed: InterposedLibraries | None


def is_stripped(package: Artifact, model: str = "") -> bool:
    """Whether it is a compiled package that holds no source of a model's wrapper; of any, where none is named."""
    if package.kind is not ArtifactKind.PACKAGE:
        return False
    return not any(package.has_source(name) for name in ((model,) if model else package.models))


def subject(path: Path, model: str) -> RunTarget:
    """
    Args:
        model: which model of a compiled package with several; "" for the only one.

    Raises:
        ArtifactError: it cannot be run.
        UsageError: it holds several models, or none of that name.
        ToolchainError: what stands in front of its calls does not compile.
    """
    package = archive.inspect(path)
    if not is_stripped(package, model):
        archive.require_kind(package, ArtifactKind.INSTRUMENTED)
        return RunTarget(package.manifest(), package.read(MEMBER), None)
    made = prepare(package, archive.resolve_model(package, model))
    interposed = InterposedLibraries(str(made.front), str(made.recorder), made.manifest.model)
    return RunTarget(made.manifest, made.text.encode(), interposed)

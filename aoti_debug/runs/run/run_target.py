"""The packages that can be run: an instrumented package, or a compiled one without wrapper source."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.package.manifest import MEMBER, Manifest
from aoti_debug.package.pt2 import archive, trust
from aoti_debug.package.pt2.archive import Artifact, ArtifactKind
from aoti_debug.runs.run.interposer.prepare import prepare
from aoti_debug.runs.run.protocol import InterposedLibraries


@dataclass(frozen=True)
class RunTarget:
    """A model that can be run.

    Attributes:
        text: the manifest as it is written to the run directory.
        interposed: None for an instrumented package.
    """

    manifest: Manifest
    text: bytes
    interposed: InterposedLibraries | None


def is_stripped(package: Artifact, model: str = "") -> bool:
    """True if a compiled package has no wrapper source of the named model, or, without a name, of any model."""
    if package.kind is not ArtifactKind.PACKAGE:
        return False
    return not any(package.has_source(name) for name in ((model,) if model else package.models))


def run_target(path: Path, model: str, trusted: bool) -> RunTarget:
    """Reads a package, and prepares the interposing libraries of one without wrapper source.

    Args:
        model: the name of the model in a compiled package with several; "" for the only one.
        trusted: it may run even if it was not made on this account.

    Raises:
        ArtifactError: it cannot be run.
        UsageError: it holds several models, or none of that name; or it is not trusted.
        ToolchainError: the interposing libraries do not compile.
    """
    package = archive.inspect(path)
    if not is_stripped(package, model):
        archive.require_kind(package, ArtifactKind.INSTRUMENTED)
        trust.require(package, trusted)
        return RunTarget(package.manifest(), package.read(MEMBER), None)
    trust.require(package, trusted)
    interposition = prepare(package, archive.resolve_model(package, model))
    libraries = InterposedLibraries(str(interposition.front), str(interposition.recorder), interposition.manifest.model)
    return RunTarget(interposition.manifest, interposition.text.encode(), libraries)

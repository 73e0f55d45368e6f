"""The promised strides of the buffers, inputs and weights of a package."""

from __future__ import annotations

from collections.abc import Mapping

from aoti_debug.package.manifest import Manifest


def buffer_strides(manifest: Manifest) -> Mapping[str, tuple[str, ...]]:
    """The strides of buffers, inputs and weights, as expressions, by name."""
    strides = {promise.name: promise.strides for promise in manifest.promises}
    return strides | {constant.name: tuple(map(str, constant.strides)) for constant in manifest.constants}

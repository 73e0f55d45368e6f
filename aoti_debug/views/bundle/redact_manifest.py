"""Removes source from a manifest."""

from __future__ import annotations

from dataclasses import replace

from aoti_debug.package.manifest import Kernel, Manifest, Provenance, Site, Unrecognised


def remove_source(manifest: Manifest) -> Manifest:
    """The manifest without the texts of kernels, of the model and of the generated code.

    Names, files, line numbers, roles and layouts stay.
    """
    return replace(
        manifest,
        sites=tuple(_site(site) for site in manifest.sites),
        kernels=tuple(_kernel(kernel) for kernel in manifest.kernels),
        unrecognised=tuple(Unrecognised(call.function, call.line, "") for call in manifest.unrecognised),
        triton_helpers="",
    )


def _site(site: Site) -> Site:
    return replace(
        site,
        args=tuple(replace(arg, text="") for arg in site.args),
        operands=tuple(replace(operand, value="null") for operand in site.operands),
        provenance=_provenance(site.provenance),
    )


def _provenance(provenance: Provenance) -> Provenance:
    return replace(provenance, source=tuple(replace(frame, text="") for frame in provenance.source), stacks=())


def _kernel(kernel: Kernel) -> Kernel:
    return replace(kernel, source="")

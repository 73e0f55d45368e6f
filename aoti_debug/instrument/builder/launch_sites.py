"""The launch sites and kernels of a model's wrapper source, with their model source lines and module paths."""

from __future__ import annotations

from dataclasses import replace

from aoti_debug.base.machine.compiler import Torch
from aoti_debug.instrument.builder import join_provenance
from aoti_debug.instrument.frontend.lowered_model import LoweredModel
from aoti_debug.instrument.wrapper.analysis import SHIM_HEADERS, Analysis
from aoti_debug.instrument.wrapper.analysis import analyse as analyse_wrapper
from aoti_debug.instrument.wrapper.callees.shim_operators import declared_shims, shim_operators
from aoti_debug.instrument.wrapper.provenance import module_paths
from aoti_debug.package.reference import program


def analyse(lowered: LoweredModel, torch: Torch) -> Analysis:
    """Parses the wrapper source of a lowered model; module paths come from its reference, if it has one."""
    sources, answer = lowered.sources, lowered.answer
    include = torch.directory / "include"
    analysis = analyse_wrapper(
        sources.wrapper,
        kernels=sources.kernels,
        proxy=sources.extern_nodes,
        provenance=sources.provenance,
        headers=[path.read_text() for name in SHIM_HEADERS if (path := include / name).exists()],
        operators=shim_operators(answer.shim_operators) | declared_shims(answer.custom_shims),
        schemas={name: schema.text for name, schema in answer.schemas.items()},
        operator_stacks=answer.operator_stacks,
    )
    if lowered.reference_file is None:
        return analysis
    reference = program.from_json(lowered.reference_file.read_bytes())
    return replace(analysis, sites=module_paths.with_modules(analysis.sites, reference))


def add_model_lines(package: Analysis, lowered: Analysis) -> tuple[Analysis, int]:
    """Adds the model lines of an exported program to the analysis of a package that was compiled from it.

    Args:
        lowered: that of a new lowering of the exported program.

    Returns:
        The analysis, and the number of sites that got a model line.
    """
    joined = join_provenance.join(package.sites, package.kernels, lowered.sites, lowered.kernels)
    return replace(package, sites=joined.sites), joined.count

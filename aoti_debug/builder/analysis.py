"""Launch sites and kernels of lowered sources, with the model lines that are known."""

from __future__ import annotations

from dataclasses import replace

from aoti_debug import wrapper
from aoti_debug.builder import join_provenance
from aoti_debug.frontend.lowered import Lowered
from aoti_debug.machine.compiler import Torch
from aoti_debug.wrapper import Analysis


def analyse(lowered: Lowered, torch: Torch) -> Analysis:
    """Reads the wrapper of a model."""
    sources, answer = lowered.sources, lowered.answer
    include = torch.directory / "include"
    return wrapper.analyse(
        sources.wrapper,
        kernels=sources.kernels,
        proxy=sources.extern_nodes,
        provenance=sources.provenance,
        headers=[path.read_text() for name in wrapper.SHIM_HEADERS if (path := include / name).exists()],
        operators=wrapper.shim_operators(answer.shim_operators) | wrapper.declared_shims(answer.custom_shims),
        schemas=answer.schemas,
        operator_stacks=answer.operator_stacks,
    )


def with_model_lines(package: Analysis, program: Lowered, torch: Torch) -> tuple[Analysis, int]:
    """The analysis of a compiled package with the model lines of its program, and how many sites got some.

    Args:
        program: a fresh lowering.
    """
    fresh = analyse(program, torch)
    joined = join_provenance.join(package.sites, package.kernels, fresh.sites, fresh.kernels)
    return replace(package, sites=joined.sites), joined.count

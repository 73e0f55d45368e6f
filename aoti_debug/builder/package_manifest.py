"""The manifest of a package that is being built."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from aoti_debug import __version__, manifest
from aoti_debug.builder import compilation, kernel_details
from aoti_debug.builder.options import BuildOptions
from aoti_debug.builder.toolchain import Toolchain
from aoti_debug.frontend.lowered import Lowered
from aoti_debug.inputs.signature import Leaf
from aoti_debug.manifest import Kernel, KernelCompilation, KernelMatch, Manifest
from aoti_debug.wrapper import Analysis, promised_layouts


def describe(
    options: BuildOptions, lowered: Lowered, tools: Toolchain, analysis: Analysis, originals: Mapping[str, str]
) -> Manifest:
    """
    Args:
        originals: SHA-256 of the kernels that the package brought along, by name.
    """
    sources, answer = lowered.sources, lowered.answer
    kernels = _kernels(lowered, analysis, originals)
    leaves = lowered.signature.leaves
    return Manifest(
        format=manifest.FORMAT,
        tool_version=__version__,
        torch_version=answer.torch_version,
        device=sources.device,
        level=options.level,
        filters=options.patterns,
        sites=analysis.sites,
        kernels=kernels,
        unrecognised=analysis.unrecognised,
        compiler=KernelCompilation(
            command=tools.compiler.path,
            kernel_flags=compilation.kernel_flags(sources),
            include_dirs=sources.compile_flags.include_dirs,
            link_flags=compilation.link_flags(sources),
        ),
        imports=options.imports,
        libraries=options.library_paths,
        source_sha256=hashlib.sha256(sources.wrapper.encode()).hexdigest(),
        inputs=analysis.inputs,
        input_names=_input_names(leaves, len(analysis.inputs)),
        constants=analysis.constants,
        outputs=analysis.outputs,
        handed_out=analysis.handed_out,
        allocations=analysis.allocations,
        promises=promised_layouts.of_inputs(analysis.inputs, leaves) + answer.promises,
        without_promises=answer.without_promises,
        model=lowered.model,
        source=lowered.source,
        other_torch=sources.other_torch,
        without_weights=sources.without_weights if analysis.constants else "",
        sameness=KernelMatch(len(originals), ()) if originals else None,
        triton_helpers=kernel_details.triton_helpers(kernels, tools.torch.directory),
    )


def _kernels(lowered: Lowered, analysis: Analysis, originals: Mapping[str, str]) -> tuple[Kernel, ...]:
    found = kernel_details.with_configs(analysis.kernels, lowered.triton_configs, lowered.sources.directory)
    return tuple(replace(kernel, code_sha256=originals.get(kernel.name, kernel.code_sha256)) for kernel in found)


def _input_names(leaves: Sequence[Leaf], count: int) -> tuple[str, ...]:
    """What the exported program calls its tensors; empty where they are not the package's inputs one by one."""
    names = tuple(leaf.name for leaf in leaves if leaf.is_tensor)
    return names if len(names) == count else ()

"""Makes the manifest of an instrumented package."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from aoti_debug.base import dtypes
from aoti_debug.base.machine.compiler import Torch
from aoti_debug.base.version import __version__
from aoti_debug.instrument.builder import compare_kernels
from aoti_debug.instrument.builder.compiling import compile_library
from aoti_debug.instrument.builder.compiling.toolchain import Toolchain
from aoti_debug.instrument.builder.options import BuildOptions
from aoti_debug.instrument.frontend.lowered_model import LoweredModel
from aoti_debug.instrument.wrapper import model_variables, promised_layouts, provenance
from aoti_debug.instrument.wrapper.analysis import SHIM_HEADERS, Analysis
from aoti_debug.instrument.wrapper.analysis import analyse as analyse_wrapper
from aoti_debug.instrument.wrapper.launches.c_functions import declared_shims, shim_operators
from aoti_debug.package import manifest, program_graphs
from aoti_debug.package.argument_values import extent_elements
from aoti_debug.package.inputs.signature import ModelSignature
from aoti_debug.package.manifest import (
    Constant,
    Kernel,
    KernelCompilation,
    Manifest,
    OperatorSchema,
    PackageOrigin,
    Site,
)
from aoti_debug.package.pt2.archive import Artifact
from aoti_debug.package.pt2.program_weights import describe, stored_weights
from aoti_debug.package.weights_file import LARGE, REFERRED, KernelMatch, WeightsFile


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
    reference = program_graphs.from_json(lowered.reference_file.read_bytes())
    return replace(analysis, sites=provenance.with_modules(analysis.sites, reference))


def make_manifest(
    options: BuildOptions,
    lowered: LoweredModel,
    tools: Toolchain,
    analysis: Analysis,
    original_hashes: Mapping[str, str],
) -> Manifest:
    """Makes the manifest of the package that is built.

    Args:
        original_hashes: SHA-256 of the machine code of each kernel of the compiled package, by name.
    """
    sources, answer = lowered.sources, lowered.answer
    kernels = _kernels(lowered, analysis, original_hashes)
    leaves = lowered.signature.leaves
    large = _large_weights(lowered, analysis.constants)
    attributes = {constant.name: constant.fqn for constant in analysis.constants if constant.name in large}
    return Manifest(
        format=manifest.FORMAT,
        tool_version=__version__,
        torch_version=answer.torch_version,
        device=sources.device,
        level=options.level,
        filters=options.site_filter.kernels,
        module_filters=options.modules,
        line_filters=options.lines,
        sites=analysis.sites,
        kernels=kernels,
        unrecognised=analysis.unrecognised,
        compiler=KernelCompilation(
            command=tools.compiler.path,
            kernel_flags=compile_library.kernel_flags(sources),
            include_dirs=sources.compile_flags.include_dirs,
            link_flags=compile_library.link_flags(sources),
        ),
        imports=options.user_code.imports,
        libraries=options.user_code.library_paths,
        source_sha256=hashlib.sha256(sources.wrapper.encode()).hexdigest(),
        inputs=analysis.inputs,
        input_names=_input_names(lowered.signature, analysis.inputs),
        constants=analysis.constants,
        outputs=analysis.outputs,
        handed_out=analysis.handed_out,
        allocations=analysis.allocations,
        promises=promised_layouts.input_layouts(analysis.inputs, leaves) + answer.promises,
        without_promises=answer.without_promises,
        model=lowered.model,
        source=lowered.source,
        other_torch=sources.other_torch,
        without_weights=sources.without_weights if analysis.constants else "",
        sameness=KernelMatch(len(original_hashes), ()) if original_hashes else None,
        triton_helpers=compare_kernels.triton_helpers(kernels, tools.torch.directory),
        operators=called_operators(analysis.sites, answer.schemas),
        weights=lowered.weights_file,
        program=_program_file(options, lowered.source, attributes) if large else None,
        packed=model_variables.packed_weights(sources.wrapper, large) if large else None,
        stream_order=analysis.stream_order,
    )


def _large_weights(lowered: LoweredModel, constants: Iterable[Constant]) -> Mapping[str, int]:
    """The bytes of the large weights that the package holds, by name.

    None of them if all are so small that a run may have copies as well: it is the more complete.
    """
    if lowered.weights_file is not None or lowered.sources.without_weights:
        return {}
    known = ((constant, dtypes.of_name(constant.dtype)) for constant in constants if not constant.folded)
    sizes = {c.name: extent_elements(c.shape, c.strides) * dtype.item_bytes for c, dtype in known if dtype is not None}
    large = {name: size for name, size in sizes.items() if size > REFERRED}
    return large if sum(large.values()) > LARGE else {}


def _program_file(options: BuildOptions, source: PackageOrigin, large: Mapping[str, str]) -> WeightsFile | None:
    """The file that the package has copies of large weights from: the program's, or the compiled package.

    None if there is none, as of a program in memory.

    Args:
        large: the attributes of these weights, by name.
    """
    path = options.program.path if isinstance(options.program, Artifact) else options.program
    if not isinstance(path, (str, Path)):
        return None
    if source is not PackageOrigin.EXPORTED:
        return describe(Path(path), large)
    stored = stored_weights(Path(path))
    return describe(Path(path), {name: fqn for name, fqn in large.items() if fqn in stored})


def called_operators(sites: Iterable[Site], schemas: Mapping[str, OperatorSchema]) -> tuple[OperatorSchema, ...]:
    """The schemas of the operators that the sites call, by name; an operator that torch does not know has none.

    Args:
        schemas: by name: "mylib.op.default"
    """
    names = sorted({site.op.replace("::", ".") for site in sites})
    return tuple(schemas[name] for name in names if name in schemas)


def _kernels(lowered: LoweredModel, analysis: Analysis, original_hashes: Mapping[str, str]) -> tuple[Kernel, ...]:
    kernels = compare_kernels.complete_kernels(analysis.kernels, lowered.triton_configs, lowered.sources.directory)
    return tuple(
        replace(kernel, code_sha256=original_hashes.get(kernel.name, kernel.code_sha256)) for kernel in kernels
    )


def _input_names(signature: ModelSignature, variables: Sequence[str]) -> tuple[str, ...]:
    """The names of the tensors in the model's signature, or their variables; empty if these do not match one to one."""
    names = tuple(leaf.name for leaf in signature.leaves if leaf.is_tensor)
    if len(names) != len(variables):
        return ()
    return tuple(name or variable for name, variable in zip(names, variables, strict=True))

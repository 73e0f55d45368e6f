"""Lowers an exported program: `python -m aoti_debug.instrument.frontend.worker.lower REQUEST.json`.

Everything that the build needs from torch is written to the request's folder (see protocol/messages.py), so that the
parent process does not import torch.
"""

from __future__ import annotations

import faulthandler
import json
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from aoti_debug.base.errors import AotiDebugError
from aoti_debug.instrument.frontend.protocol import caller_settings, messages
from aoti_debug.instrument.frontend.protocol.build_failure import read_position
from aoti_debug.instrument.frontend.protocol.caller_settings import has_setting
from aoti_debug.instrument.frontend.protocol.messages import Answer, Failure, Request, TritonConfig
from aoti_debug.instrument.frontend.worker import autotuning, code_generation, instruction_sets, position_file, prints
from aoti_debug.instrument.frontend.worker.answer_request import (
    StepError,
    answer_or_failure,
    answer_request,
    load_operators,
    step,
)
from aoti_debug.instrument.frontend.worker.called_operators import find_overload, operator_stacks, shims_and_schemas
from aoti_debug.instrument.frontend.worker.packaged_files import KeptWeights, stored_names, without_weights
from aoti_debug.instrument.frontend.worker.parts_to_leave_out import candidates_noted, leaving_out
from aoti_debug.instrument.frontend.worker.position_file import node_at_work, overwritten_operands
from aoti_debug.instrument.frontend.worker.reference_graphs import BufferLayouts, record_graphs, record_layouts
from aoti_debug.instrument.wrapper import promised_layouts
from aoti_debug.package import program_graphs as reference_program
from aoti_debug.package.inputs import signature
from aoti_debug.package.inputs.input_files import Inputs, check, read, write
from aoti_debug.package.printing import print_operator
from aoti_debug.package.pt2 import load_program
from aoti_debug.package.pt2.program_weights import stored_weights
from aoti_debug.package.weights_file import LARGE

FORCED = {
    "trace.provenance_tracking_level": 1,
    "aot_inductor.debug_intermediate_value_printer": "0",
    "aot_inductor.precompile_headers": False,
    caller_settings.MULTI_ARCH: False,
}
NEEDED = ("aot_inductor.package_cpp_only", "aot_inductor.compile_wrapper_opt_level", *FORCED)
_EXAMPLES_HINT = "export it again and leave the example inputs in, or pass --inputs FILE"
_KERNELS_HINT = "launch it in an operator of torch.library.triton_op, or triage the script that compiles the program"
_REGISTER_HINT = "pass --import MODULE or --load-library PATH"


def triton_configs() -> dict[str, TritonConfig]:
    """Kernel name -> configuration, of every Triton kernel that this process compiled for a GPU package."""
    from torch._inductor.codecache import CudaKernelParamCache

    return {str(name): _config(params) for name, params in CudaKernelParamCache.cache.items()}


def _config(params: Mapping[str, Any]) -> TritonConfig:
    return TritonConfig(
        tuple((str(name), repr(value)) for name, value in params["config"].items()),
        int(params.get("global_scratch") or 0),
        int(params.get("profile_scratch") or 0),
    )


def run(request: Request, program: Any = None) -> Answer | Failure:
    """Lowers `program`, or the file that the request names, and writes the results to the request's folder."""
    return answer_or_failure(lambda times: _run(request, program, times))


def _run(request: Request, program: Any, times: dict[str, float]) -> Answer:
    folder = Path(request.folder)
    with step("torch", times):
        import torch

        missing = [key for key in NEEDED if not has_setting(key)]
        if missing:
            raise RuntimeError(f"torch {torch.__version__} has no setting {missing[0]}")
    load_operators(request, times)
    for key in request.configs:
        with step("config", times, key):
            if not has_setting(key):
                raise ValueError(f"torch {torch.__version__} has no such setting")
    settings_of_caller = _settings_of_caller(request, program)
    if program is None:
        with step("load", times, request.program, lambda: _load_hint(request.program)):
            program = load_program.load(request.program)
        with step("load", times, request.program, lambda: _KERNELS_HINT):
            require_kernels(program)
    with step("inputs", times, request.inputs):
        missing_inputs_reason = _write_inputs(program, request.inputs, folder)
    if program.example_inputs is None:
        raise StepError("load", request.program, _EXAMPLES_HINT) from ValueError("it was saved without example inputs")
    configs = dict(request.configs)
    if messages.OPERATOR_KEYS in configs:
        with step("config", times, messages.OPERATOR_KEYS, lambda: _REGISTER_HINT):
            configs[messages.OPERATOR_KEYS] = _resolve_operators(configs[messages.OPERATOR_KEYS])
    custom_shims = dict(request.configs.get(messages.OPERATOR_KEYS, {}))
    if names := prints.replace_prints(program):
        print_operator.register()
        custom_shims |= prints.shims(names)
        configs[messages.OPERATOR_KEYS] = {
            **configs.get(messages.OPERATOR_KEYS, {}),
            **{prints.register_lowering(name): list(*prints.shims([name]).values()) for name in names},
        }
        if has_setting("reorder_for_peak_memory"):
            configs.setdefault("reorder_for_peak_memory", False)  # it would move prints across branches and loops
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    stacks = operator_stacks(program)
    nodes = program.graph.nodes
    with (
        settings_of_caller,
        step("lower", times, hint=lambda: _failure_hint(program, sys.exc_info()[1], folder)),
        position_file.watched(folder, nodes) as noted,
        candidates_noted(noted),
        code_generation.noted(noted),
        record_layouts() as layouts,
        record_graphs(program) as graphs,
        without_weights() as kept,
        autotuning.counted(folder, Path(cache_dir())) as autotuned,
        autotuning.with_sources(),
    ):
        wrapper_opt = _lower(program, request, configs)
    with step("reference", times):
        (folder / messages.REFERENCE).write_text(reference_program.to_json(graphs.reference()))
    with step("weights", times):
        kept.move_files(folder)
        weight_names = _write_weights(program, kept, request) if request.weights_by_reference else {}
    promises, unparsed_lines = promised_layouts.parse(layouts.graphs)
    with step("operators", times):
        archive = folder / (messages.HASHED_ARCHIVE if request.hashed_kernels else messages.ARCHIVE)
        shims, schemas = shims_and_schemas(archive, custom_shims)
    return Answer(
        torch_version=torch.__version__,
        shim_operators=shims,
        schemas=schemas,
        wrapper_opt=wrapper_opt,
        without_inputs=missing_inputs_reason,
        times=times,
        triton_configs=triton_configs(),
        custom_shims=custom_shims,
        operator_stacks=stacks,
        promises=promises,
        without_promises=_missing_promises_reason(layouts, unparsed_lines),
        autotuning=autotuned.autotuning,
        weight_names=weight_names,
    )


def _failure_hint(program: Any, error: BaseException | None, folder: Path) -> str:
    """What is known of an exception that ended the lowering, beside the part that was at work."""
    return overwritten_operands(program, error) or ("" if read_position(folder) else node_at_work(error))


def _load_hint(path: str) -> str:
    """The likely reason why a program cannot be loaded: operators that are not registered, or another torch version."""
    import torch

    with zipfile.ZipFile(path) as archive:
        graphs = [
            json.loads(archive.read(name))
            for name in archive.namelist()
            if "/models/" in name and name.endswith(".json")
        ]
    missing = []
    for target in sorted({target for graph in graphs for target in _targets(graph)}):
        namespace, _, rest = target.removeprefix("torch.ops.").partition(".")
        name = rest.partition(".")[0]
        if not hasattr(getattr(torch.ops, namespace), name):
            missing.append(f"{namespace}::{name}")
    if missing:
        modules = load_program.registering_modules(missing)
        imports = " ".join(f"--import {module}" for module in modules)
        remedy = f"torch registers them in {', '.join(modules)}: pass {imports}" if modules else _REGISTER_HINT
        return f"these operators are not registered: {', '.join(missing)}; {remedy}"
    writers = {str(graph.get("torch_version", "")) for graph in graphs} - {"", torch.__version__}
    if writers:
        return f"torch {' and '.join(writers)} wrote it; this is torch {torch.__version__}"
    return ""


def _targets(value: Any) -> Iterator[str]:
    """Yields every `torch.ops.…` that a serialized graph calls, at any depth."""
    if isinstance(value, dict):
        target = value.get("target")
        if isinstance(target, str) and target.startswith("torch.ops.") and "higher_order" not in target:
            yield target
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _targets(item)


def _write_inputs(program: Any, path: str, folder: Path) -> str:
    """Writes the signature and the inputs to embed; returns the reason if there are none, otherwise ""."""
    model_signature = signature.describe(program)
    (folder / messages.SIGNATURE).write_text(signature.to_json(model_signature))
    if path:
        inputs = read(path, model_signature)
        if program.example_inputs is None:
            program.example_inputs = (inputs.args, dict(inputs.kwargs))
    elif program.example_inputs is None:
        return "the program has no example inputs"
    else:
        args, kwargs = program.example_inputs
        inputs = Inputs(tuple(args), kwargs)
    try:
        check(inputs, model_signature, path or "the program's example inputs")
        write(inputs, folder / messages.INPUTS)
    except AotiDebugError as error:
        if path:
            raise
        return str(error)
    return ""


def require_kernels(program: Any) -> None:
    """Requires the Triton kernels that a program launches without an operator: torch saves their numbers alone.

    Raises:
        LookupError: this process does not know one of them.
    """
    for module in program.graph_module.modules():
        for node in getattr(getattr(module, "graph", None), "nodes", ()):
            number = node.kwargs.get("kernel_idx")
            if number is None or not str(node.target).startswith("triton_kernel_wrapper"):
                continue
            from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

            if number not in kernel_side_table.id_to_kernel:
                raise LookupError("it launches a Triton kernel directly in forward, which torch.export.save leaves out")


def _missing_promises_reason(layouts: BufferLayouts, unparsed_lines: Sequence[str]) -> str:
    if layouts.failure or not layouts.graphs:
        return f"this torch does not report the layouts of buffers: {layouts.failure or 'nothing was scheduled'}"
    if unparsed_lines:
        return f"this torch reports the layouts of buffers in another form: {unparsed_lines[0]}"
    return ""


def _resolve_operators(named: Mapping[str, Any]) -> dict[Any, Any]:
    """Replaces operator names, the keys of a setting, by operators.

    Raises:
        LookupError: an operator is not registered.
    """
    operators = {name: find_overload(name) for name in named}
    if missing := [name for name, operator in operators.items() if operator is None]:
        raise LookupError(f"these operators are not registered: {', '.join(missing)}")
    return {operators[name]: value for name, value in named.items()}


def _settings_of_caller(request: Request, program: Any) -> AbstractContextManager[None]:
    """Applies the settings of the process that asks, if this is another one.

    That of a file says nothing of gradients: they are off, as Inductor freezes no weights otherwise, without a word.
    """
    import torch

    if request.caller is not None:
        return caller_settings.applied(request.caller)
    return torch.no_grad() if program is None else nullcontext()


_WEIGHTS_APART = {
    "aot_inductor.package_constants_in_so": False,
    "aot_inductor.package_constants_on_disk_format": "pickle_weights",
}
_APPENDED_WEIGHTS = "aot_inductor.force_mmap_weights"


def _write_weights(program: Any, kept: KeptWeights, request: Request) -> dict[str, str]:
    """Writes the constants that the program's file does not hold; returns the names of the others in it.

    Raises:
        ValueError: a constant has no strides, and cannot be written.
    """
    import torch

    stored = stored_weights(Path(request.program))
    is_on_gpu = any(tensor.is_cuda for tensor in kept.tensors.values())
    placed = {name: tensor for name, tensor in kept.tensors.items() if tensor.is_cuda == is_on_gpu}
    names = {name: held for name, held in stored_names(program, placed).items() if held in stored}
    others = {name: tensor for name, tensor in kept.tensors.items() if name not in names}
    for name, tensor in others.items():
        if tensor.is_mkldnn:
            raise ValueError(f"oneDNN has packed {name}")
    torch.save(
        {name: tensor.detach().clone() for name, tensor in others.items()}, Path(request.folder) / messages.WEIGHTS
    )
    return names


def _lower(program: Any, request: Request, settings: Mapping[str, Any]) -> str:
    import torch
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    configs = {**settings, **FORCED}
    if request.weights_by_reference or request.hashed_kernels:
        configs |= _WEIGHTS_APART
    elif sum(tensor.nbytes for tensor in program.state_dict.values()) > LARGE and has_setting(_APPENDED_WEIGHTS):
        configs[_APPENDED_WEIGHTS] = True  # a file of its own, which is not linked
    if request.hashed_kernels:
        name = messages.HASHED_ARCHIVE
        configs["aot_inductor.compile_wrapper_opt_level"] = "O0"  # this library is not used
    else:
        name = messages.ARCHIVE
        configs["aot_inductor.package_cpp_only"] = True
    with instruction_sets.remembered(Path(cache_dir())), leaving_out(request.left_out):
        torch._inductor.aoti_compile_and_package(
            program, package_path=str(Path(request.folder) / name), inductor_configs=configs
        )
    level = torch._inductor.config.aot_inductor.compile_wrapper_opt_level
    return str(request.configs.get("aot_inductor.compile_wrapper_opt_level", level))


def main() -> None:
    """Answers the request named on the command line, and ends the process.

    Its Python stack is written to a file beside the request if it crashes, or on SIGUSR1: where it hangs.
    """
    stack = Path(sys.argv[1]).with_name(messages.STACK).open("w")
    faulthandler.enable(stack, all_threads=False)
    faulthandler.register(messages.STACK_SIGNAL, stack, all_threads=False)
    answer_request(run)


if __name__ == "__main__":
    main()

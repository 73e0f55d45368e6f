"""The process that saves the tensors of an FX repro and runs its script once.

`python -m aoti_debug.compare.fx_repro.worker REQUEST ANSWER`: both are files (aoti_debug.compare.protocol.request).
"""

from __future__ import annotations

import contextlib
import io
import runpy
import sys
from dataclasses import replace
from pathlib import Path

from aoti_debug.base.errors import RunDirError
from aoti_debug.base.machine import user_code
from aoti_debug.base.machine.compiler import installed_versions
from aoti_debug.base.machine.files import json_data
from aoti_debug.compare.evaluate.functions import NotEvaluableError, is_random
from aoti_debug.compare.fx_repro.script_text import SCRIPT, TENSORS, describe
from aoti_debug.compare.protocol.request import Saved, SaveRequest
from aoti_debug.compare.worker.recorded_tensors import load_value
from aoti_debug.compare.worker.region_values import region_inputs
from aoti_debug.package import program_graphs
from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.program_graphs import NodeKind
from aoti_debug.package.pt2 import archive


def main() -> int:
    """Answers the request."""
    request_path, answer_path = map(Path, sys.argv[1:])
    request = json_data.parse(SaveRequest, request_path.read_bytes())
    try:
        answer = _saved(request)
    except (NotEvaluableError, RunDirError) as error:
        answer = Saved(refusal=str(error))
    answer_path.write_text(json_data.to_text(answer))  # an operator may end the process
    if not answer.refusal:
        answer_path.write_text(json_data.to_text(_run(answer, request)))
    return 0


def _saved(request: SaveRequest) -> Saved:
    """Saves the tensors.

    Raises:
        NotEvaluableError: an input was not recorded as a whole, or an operator draws random numbers.
        RunDirError: a tensor cannot be read.
    """
    import torch

    user_code.load(request.imports, request.libraries)
    region = request.region
    reference = program_graphs.from_json(archive.inspect(request.package).read(program_graphs.MEMBER))
    graph = reference.graph(region.graph, region.function)
    assert graph is not None
    for node in (graph.by_name[name] for name in region.nodes):
        if node.kind is NodeKind.CALL and is_random(node.target, node.args, node.kwargs):
            raise NotEvaluableError(f"{node.target} draws random numbers, and would draw other ones")
    symbols = Symbols(known=region.symbols)
    given = region_inputs(graph, region, symbols, request.device, None)
    if given.other is not None:
        raise NotEvaluableError(f"only parts of {' and '.join(given.parts)} were recorded")
    inputs = {
        name: given.known[item.value].resolve_conj().resolve_neg()
        for name, item in zip(request.inputs, region.inputs, strict=True)
    }
    outputs = {}
    for name, item in zip(request.outputs, region.outputs, strict=False):  # a launch that failed has none recorded
        with contextlib.suppress(NotEvaluableError):  # the script says that it was not recorded as a whole
            outputs[name] = load_value(graph, item, symbols, request.device)
    torch.save({"inputs": inputs, "outputs": outputs}, Path(request.folder) / TENSORS)
    described = {name: describe(value) for name, value in inputs.items()}
    return Saved(inputs=described, versions=_versions(request.device))


def _versions(device: str) -> dict[str, str]:
    import torch

    versions = installed_versions("torch", "triton")
    if device.startswith("cuda"):
        versions |= {"GPU": torch.cuda.get_device_name(device), "CUDA": str(torch.version.cuda)}
    return versions


def _run(saved: Saved, request: SaveRequest) -> Saved:
    """Runs the script as a user would, and adds what it prints."""
    output = io.StringIO()
    sys.argv = [SCRIPT]
    code = 0
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            runpy.run_path(str(Path(request.folder) / SCRIPT), run_name="__main__")
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except Exception as error:  # noqa: BLE001 - whatever an operator raises is what the script ends with
            print(f"{type(error).__name__}: {error}")
            code = 1
    return replace(saved, lines=tuple(output.getvalue().splitlines()), code=code)


if __name__ == "__main__":
    sys.exit(main())

"""Random inputs to embed in a package: `python -m aoti_debug.instrument.frontend.worker.make_inputs REQUEST.json`."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.instrument.frontend.protocol import messages
from aoti_debug.instrument.frontend.protocol.messages import Answer, Failure, Request
from aoti_debug.instrument.frontend.worker.answer_request import answer_or_failure, answer_request, step
from aoti_debug.package import manifest
from aoti_debug.package.inputs import input_files, random_inputs, signature


def run(request: Request) -> Answer | Failure:
    """Answers a request whose folder holds the signature and the manifest."""
    return answer_or_failure(lambda times: _run(request, times))


def _run(request: Request, times: dict[str, float]) -> Answer:
    folder = Path(request.folder)
    with step("torch", times):
        import torch
    with step("inputs", times):
        model_signature = signature.from_json((folder / messages.SIGNATURE).read_text(encoding="utf-8"))
        package_manifest = manifest.from_json((folder / messages.MANIFEST).read_bytes())
        inputs = random_inputs.make(model_signature, package_manifest, request.random_inputs or 0)
        input_files.write(inputs, folder / messages.INPUTS)
    return Answer(torch.__version__, shim_operators=(), schemas={}, wrapper_opt="", without_inputs="", times=times)


def main() -> None:
    """Answers the request named on the command line, and ends the process."""
    answer_request(run)


if __name__ == "__main__":
    main()

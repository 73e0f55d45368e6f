"""The frame of a process that answers one request (protocol.py): its steps, and what becomes of one that fails."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from aoti_debug.frontend.worker import protocol
from aoti_debug.frontend.worker.protocol import Answer, Failure, Request
from aoti_debug.machine.error_data import ErrorData


class StepError(Exception):
    """Carries what a Failure says; the cause is chained."""

    def __init__(self, step: str, subject: str, hint: str) -> None:
        super().__init__(step)
        self.step = step
        self.subject = subject
        self.hint = hint


@contextlib.contextmanager
def step(name: str, times: dict[str, float], subject: str = "", hint: Callable[[], str] = str) -> Iterator[None]:
    """One step, whose time is added to `times`.

    Raises:
        StepError: from whatever is raised in it.
    """
    began = time.monotonic()
    try:
        yield
    except Exception as error:
        raise StepError(name, subject, hint()) from error
    finally:
        times[name] = times.get(name, 0.0) + time.monotonic() - began


def register(request: Request, times: dict[str, float]) -> None:
    """Imports the modules and loads the libraries that hold the model's operators."""
    import torch

    for module in request.imports:
        with step("import", times, module):
            importlib.import_module(module)
    for library in request.libraries:
        with step("library", times, library):
            torch.ops.load_library(library)


def answered(work: Callable[[dict[str, float]], Answer]) -> Answer | Failure:
    """What `work` answers, given the times of its steps to fill; a step that fails is an answer, too."""
    try:
        return work({})
    except StepError as error:
        cause = error.__cause__ or error
        traceback.print_exception(cause)
        told = ErrorData.of(cause)
        return Failure(error.step, error.subject, told.type, told.message, error.hint or told.hint)


def main(run: Callable[[Request], Answer | Failure]) -> None:
    """Answers the request of the command line and ends at once: tearing torch down would only cost time."""
    request = protocol.read_request(Path(sys.argv[1]))
    protocol.write_answer(Path(request.folder), run(request))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)

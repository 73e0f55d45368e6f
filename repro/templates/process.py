"""Runs the launch, here or in a child process that may die of it, and says how that compares with the record."""

from __future__ import annotations

import argparse
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import torch

from .compare import difference, kind
from .memory import Argument, Result, Storage, arguments_in_memory, load

AS_RECORDED, DIFFERS, FAULT, NO_FAULT = 0, 10, 11, 12
HANG_SECONDS = 120  # a launch that never ended when it was recorded is given this long

Launch = Callable[..., "dict[str, torch.Tensor] | None"]


def main(
    launch: Launch,
    *,
    title: str,
    folder: Path,
    arguments: Sequence[Argument],
    storages: Sequence[Storage],
    results: Sequence[Result] = (),
    prepare: Callable[[], None] | None = None,
    fault: str = "",
    random: str = "",
) -> NoReturn:
    """Replays the launch and exits: 0 as recorded, 10 differs, 11 the recorded fault came, 12 it did not come.

    Args:
        launch: takes the arguments by name and returns the tensors that it allocated, by name.
        prepare: what must be done before the launch, a compilation for one.
        fault: what the recorded launch ended in; "" if it ended well.
        random: why its values cannot be compared; "" if they can.
    """
    parser = argparse.ArgumentParser(description=f"Replays {title} alone and compares it with what was recorded.")
    parser.add_argument("--here", action="store_true", help="run the launch in this process even if it may kill it")
    parser.add_argument("--report", type=int, metavar="FD", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if fault and not options.here and options.report is None:
        sys.exit(_in_child(title, fault))

    cuda = sorted({s.device for s in storages if s.device.startswith("cuda")})
    if cuda and not torch.cuda.is_available():
        raise SystemExit(f"{title} ran on {', '.join(cuda)}; torch finds no CUDA device here")
    if prepare is not None:
        prepare()
    tensors = arguments_in_memory(arguments, storages, folder / "tensors")
    if options.report is not None:
        _report(options.report, "begin")
    try:
        with torch.no_grad():
            made = launch(**tensors) or {}
        for device in cuda:
            torch.cuda.synchronize(device)
    except Exception as error:
        if options.report is None:
            if not fault:
                raise
            traceback.print_exception(error)
            sys.exit(FAULT)
        _report(options.report, f"{type(error).__name__}: {error}".splitlines()[0])
        os._exit(FAULT)
    if options.report is not None:
        _report(options.report, "end")
        sys.exit(AS_RECORDED)
    if fault:
        print(f"{title}: it ended well; the recorded fault did not come ({fault})")
        sys.exit(NO_FAULT)
    sys.exit(_verdict(title, tensors | made, arguments, results, folder / "tensors", random))


def _verdict(
    title: str,
    tensors: dict[str, torch.Tensor],
    arguments: Sequence[Argument],
    results: Sequence[Result],
    folder: Path,
    random: str,
) -> int:
    if random:
        print(f"{title}: {random}: not compared")
        return AS_RECORDED
    written: list[Argument | Result] = [*(a for a in arguments if a.written), *results]
    lines = {}
    for output in written:
        text = difference(tensors[output.name], load(folder / f"after_{output.name}.safetensors", output))
        if not text and isinstance(output, Result) and _strides(tensors[output.name]) != _strides(output):
            text = f"has strides {tuple(tensors[output.name].stride())}, recorded {output.stride}"
        lines[output.name] = text
    bad = [name for name, text in lines.items() if text]
    print(f"{title}: " + (f"DIFFERS in {', '.join(bad)}" if bad else "as recorded"))
    width = max((len(name) for name in lines), default=0)
    for name, text in lines.items():
        print(f"  {name:{width}}  {kind(tensors[name])}  {text or 'equal bit for bit'}")
    return DIFFERS if bad else AS_RECORDED


def _strides(tensor: torch.Tensor | Result) -> list[int]:
    """The strides that address memory: those of dimensions of size 1 and of empty tensors do not."""
    stride = tensor.stride() if isinstance(tensor, torch.Tensor) else tensor.stride
    if 0 in tensor.shape:
        return []
    return [step for size, step in zip(tensor.shape, stride, strict=True) if size > 1]


def _in_child(title: str, fault: str) -> int:
    reader, writer = os.pipe()
    isolated = ["-I"] if sys.flags.isolated else []
    command = [sys.executable, *isolated, os.path.abspath(sys.argv[0]), "--report", str(writer)]
    with subprocess.Popen(command, pass_fds=[writer]) as child:
        os.close(writer)
        said, hangs = _listen(reader)
        if hangs:
            child.kill()
    os.close(reader)
    end = f"no end within {HANG_SECONDS} s" if hangs else _ending(child.returncode)
    print(f"recorded: {fault}")
    if said[0] != "begin":
        print(f"{title}: the replay failed before the launch ({end})")
        return 1
    if said[1] == "end":
        print(f"{title}: it ended well; the recorded fault did not come")
        return NO_FAULT
    print(f"here:     {said[1] or end}")
    print(f"{title}: fault reproduced")
    return FAULT


def _listen(reader: int) -> tuple[list[str], bool]:
    """What the child reports until it ends, and whether it hangs: HANG_SECONDS have passed since the launch began."""
    heard = b""
    deadline: float | None = None
    while True:
        left = None if deadline is None else max(deadline - time.monotonic(), 0)
        if not select.select([reader], [], [], left)[0]:
            return heard.decode(errors="replace").split("\0"), True
        data = os.read(reader, 4096)
        if not data:
            return heard.decode(errors="replace").split("\0"), False
        heard += data
        if deadline is None and b"\0" in heard:
            deadline = time.monotonic() + HANG_SECONDS


def _ending(code: int) -> str:
    with suppress(ValueError):
        if code < 0:
            return signal.Signals(-code).name
    return f"exit code {code}"


def _report(descriptor: int, text: str) -> None:
    os.write(descriptor, text.encode() + b"\0")

"""The use of a package by a loader, and the inputs of its model's calls, in files that outlive the process of a script.

The tensors of a call are copied before it, byte for byte, into a file that is mapped into memory: its content outlives
a crash. A model has a few such files, which its calls use in turn. torch sees nothing of the copies on the CPU.
"""

from __future__ import annotations

import itertools
import os
import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from aoti_debug.app.execute.call_file import CallFile, KeptCall, KeptEnd, bytes_of, call_in, key_of
from aoti_debug.app.execute.kept_weights import GivenWeights
from aoti_debug.base.machine import torch_settings

if TYPE_CHECKING:
    import torch

_Result = TypeVar("_Result")
FOLDER = "calls"  # of a run directory
NOT_FINITE = "not_finite.bin"  # the file of the first call whose results were not finite
_HISTORY = 4  # calls that have returned and whose inputs are still there
_LARGEST = 1 << 30  # bytes of a call that are kept, unless all calls are to be kept
_SHARE = 0.05  # of the time of the calls that copies may take, unless all calls are to be kept
_INTERRUPTED = 4  # times the least time of a copy: what it takes beyond was not its own
_MEASURED = 0.01  # seconds of copies after which their share is looked at


class PackageUse:
    """The package of one loader, and what is done around the loader's work: nothing, unless a subclass does it.

    Attributes:
        path: of the package that is loaded.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def loaded(self, loader: Any) -> None:
        """Receives the loader when it has loaded the package."""

    def change(self, work: Callable[[], _Result]) -> _Result:
        """Loads the package, or changes its weights."""
        return work()

    def weights_changed(self, method: str, tensors: Mapping[str, Any], *, inactive: bool, in_place: bool) -> None:
        """Receives the weights that a method gave the loader, in either buffer; `in_place`: the model copies none."""

    def call(self, run: Callable[..., _Result], inputs: Any, *arguments: Any, **keywords: Any) -> _Result:
        """Calls the model, with its inputs in a list."""
        __tracebackhide__ = True  # pytest shows the caller
        return run(inputs, *arguments, **keywords)


def kept_calls(run: Path, process: int, package: str, order: int) -> list[KeptCall]:
    """The calls of a model that were kept; the one whose results were not finite comes last.

    Args:
        package: the stem of the instrumented package's file.
        order: of the model among those of this package that the process has called.
    """
    folder = _folder(run, process, package, order)
    files = sorted(folder.glob("*.bin"), key=lambda file: (file.name == NOT_FINITE, file))
    return [call for file in files if (call := call_in(file)) is not None]


def processes(run: Path) -> list[int]:
    """The processes of which calls were kept."""
    folders = (folder for folder in (run / FOLDER).glob("*") if folder.is_dir())
    return sorted(int(folder.name) for folder in folders if folder.name.isdecimal())


def kept_settings(run: Path, process: int) -> dict[str, Any] | None:
    """The settings of torch that a process had when it first called a model; None if they are not known."""
    return torch_settings.kept(run / FOLDER, process)


def delete(run: Path) -> None:
    """Deletes the inputs that were kept in a run directory, which may be one of another run then."""
    shutil.rmtree(run / FOLDER, ignore_errors=True)
    for key in [key for key in _orders if key[0] == run]:
        del _orders[key]


def _folder(run: Path, process: int, package: str, order: int) -> Path:
    return run / FOLDER / str(process) / package / str(order)


class KeptInputs(PackageUse):
    """Keeps the inputs of the calls of one loaded model. Any thread may call it.

    Args:
        path: of the package that is loaded.
        run: the run directory.
        package: the stem of the package's name in the run directory.
        keeps_all: also of calls on a GPU, whatever that takes, and to the end those of the first call with results
            that are not finite.
    """

    def __init__(self, path: str, run: Path, package: str, *, keeps_all: bool) -> None:
        super().__init__(path)
        self._run = run
        self._package = package
        self._keeps_all = keeps_all
        self._weights = GivenWeights(run / FOLDER / f"weights-{os.getpid()}-{id(self)}", keeps_all=keeps_all)
        self._start()

    def weights_changed(self, method: str, tensors: Mapping[str, Any], *, inactive: bool, in_place: bool) -> None:
        """Keeps them."""
        self._weights.changed(method, tensors, inactive=inactive, in_place=in_place)

    def _start(self) -> None:
        """Begins anew in a process that was forked: its calls are numbered from 0, and its files are its own."""
        self._lock = threading.Lock()
        self._folder: Path | None = None
        self._numbers = itertools.count()
        self._files: list[CallFile] = []  # that no call uses, the one that was used last at the end
        self._names = itertools.count()
        self._seconds_of_copies = self._seconds_of_calls = 0.0
        self._has_not_finite = False
        self._is_ended = False
        self._forks = _forks

    def call(self, run: Callable[..., _Result], inputs: Any, *arguments: Any, **keywords: Any) -> _Result:
        """Calls the model, after its inputs were copied."""
        __tracebackhide__ = True  # pytest shows the caller
        if self._forks != _forks:
            self._start()
        number = next(self._numbers)
        if number == 0:
            torch_settings.keep(self._run / FOLDER)
        file = None if self._is_ended else self._kept(number, inputs)
        began = time.perf_counter() if file is None else file.filled
        try:
            results = run(inputs, *arguments, **keywords)
        except BaseException as error:
            if file is not None:
                file.raised(error)  # and no other call uses it
            raise
        self._seconds_of_calls += time.perf_counter() - began
        if file is not None:
            file.end(KeptEnd.RETURNED)
            if self._keeps_all and not self._has_not_finite and not _are_finite(results):
                self._has_not_finite = True
                file.rename(NOT_FINITE)
            else:
                self._files.append(file)
        return results

    def _kept(self, number: int, inputs: Sequence[torch.Tensor]) -> CallFile | None:
        """The file that the inputs of a call were copied into; None where they were not."""
        try:
            key = key_of(inputs)
            file = self._file(key)
            if file is None:
                return None
        except Exception:  # noqa: BLE001 - of tensors without memory, or a full disk; the script goes on
            self._end()
            return None
        try:
            began = time.perf_counter()
            self._weights.tell(file.folder, number)
            file.fill(number, inputs)
            file.filled = time.perf_counter()
            file.least = min(file.least, file.filled - began)
            self._seconds_of_copies += min(file.filled - began, _INTERRUPTED * file.least)
        except Exception:  # noqa: BLE001 - of a device that has failed: what was kept before tells why
            file.close()
            self._is_ended = True
            return None
        return file

    def _file(self, key: tuple[Any, ...]) -> CallFile | None:
        """A file that no call uses, with room for tensors of these layouts; None where they are not to be copied.

        A copy would break the capture of a CUDA graph; or wait for a device, or take a good part of the time.
        """
        is_of_cpu = False not in [entry[0] for entry in key[0]]
        if not is_of_cpu and _is_captured():
            return None
        takes_little = self._seconds_of_copies < max(_MEASURED, _SHARE * self._seconds_of_calls)
        if not self._keeps_all and not (is_of_cpu and takes_little):
            self._end()
            return None
        with self._lock:
            if self._folder is None:
                self._folder = self._new_folder()
            file = self._files.pop(0) if len(self._files) >= _HISTORY else None
        if file is not None and file.key == key:
            return file
        if file is not None:
            file.close()
        if not self._keeps_all and bytes_of(key) > _LARGEST:
            self._end()
            return None
        return CallFile(self._folder / f"{next(self._names)}.bin" if file is None else file.path, key)

    def _new_folder(self) -> Path:
        """The folder of this model. Its number is that of the run of the package that the model's first call begins."""
        process = os.getpid()
        folder = _folder(self._run, process, self._package, next(_orders[self._run, process, self._package]))
        folder.mkdir(parents=True)
        return folder

    def _end(self) -> None:
        """Keeps nothing any more."""
        with self._lock:
            self._is_ended = True
            for file in self._files:
                file.close()
            self._files = []


def _count_fork() -> None:
    global _forks
    _forks += 1


_forks = 0  # that this process comes from
os.register_at_fork(after_in_child=_count_fork)
_orders: defaultdict[tuple[Path, int, str], Iterator[int]] = defaultdict(itertools.count)


def _is_captured() -> bool:
    """True while a CUDA graph is captured, and on a device that has failed, which the call itself tells the script."""
    import torch

    try:
        return bool(torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())
    except RuntimeError:
        return True


def _are_finite(results: Any) -> bool:
    """False if a result holds NaN or an infinity; True where that cannot be asked, as of a device that has failed."""
    floating = (result for result in results if result.is_floating_point() or result.is_complex())
    try:
        return all(bool(result.detach().isfinite().all()) for result in floating)
    except Exception:  # noqa: BLE001 - a failed device, or a dtype without such an operator
        return True

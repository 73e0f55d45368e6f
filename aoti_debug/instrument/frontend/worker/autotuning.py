"""The Triton kernels of a lowering: where their configurations come from, and their sources in the wrapper."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aoti_debug.instrument.frontend.protocol import messages
from aoti_debug.instrument.frontend.protocol.messages import Autotuning
from aoti_debug.instrument.frontend.worker.position_file import replaced

_SUFFIX = ".best_config"


class AutotunedKernels:
    """The kernels of a lowering.

    Attributes:
        autotuning: set at the end.
    """

    def __init__(self) -> None:
        self.autotuning = Autotuning()


@contextmanager
def counted(folder: Path, cache: Path) -> Iterator[AutotunedKernels]:
    """Counts the kernels that are lowered inside the `with`.

    Args:
        folder: of the request, which has the list of the files from the user's cache.
        cache: Inductor's, which has no sources of kernels yet.
    """
    users = {cache / name for name in json.loads((folder / messages.AUTOTUNED).read_text())}
    before = set(cache.glob(f"??/*{_SUFFIX}"))
    counting = AutotunedKernels()
    yield counting
    files = [file for source in cache.glob("??/*.py") if (file := _best_config(source)) is not None and file.exists()]
    counting.autotuning = Autotuning(
        users=sum(file in users for file in files),
        earlier=sum(file in before - users for file in files),
        measured=sum(file not in before for file in files),
    )


def _best_config(source: Path) -> Path | None:
    """The file that Inductor keeps the configuration of a kernel in; None if this torch keeps none."""
    from torch._inductor.runtime.autotune_cache import AutotuneCache

    configs_hash = ""  # is in the file, not in its name
    found = AutotuneCache.create({"autotune_remote_cache": False}, str(source), configs_hash)
    return None if found is None or found.local_cache is None else Path(found.local_cache[1])


@contextmanager
def with_sources() -> Iterator[None]:
    """Wrappers that are generated inside the `with` hold the sources of their Triton kernels, each in a comment.

    Inductor leaves them out where the model runs once to compile its kernels (`triton.autotune_at_compile_time=False`):
    it then writes two texts at once, and only that of the first run has them.
    """
    from torch._inductor.codegen import cpp_wrapper_gpu

    def wrap(original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def _write_wrapper_signature(self: Any, prefix: Any, *args: Any, **kwargs: Any) -> None:
            original(self, prefix, *args, **kwargs)
            package = getattr(prefix, "aot", None)
            source = self.kernel_name_to_body.get(self.kernel_name, "")
            if package is not None and source and "*/" not in source:
                package.splice(f"/*\n{source}\n*/")

        return _write_wrapper_signature

    with replaced(cpp_wrapper_gpu.DeferredTritonCallWrapper, "_write_wrapper_signature", wrap):
        yield

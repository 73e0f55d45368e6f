from __future__ import annotations

import json
from pathlib import Path

from torch._inductor.runtime.autotune_cache import AutotuneCache

from aoti_debug.instrument.frontend.protocol import messages
from aoti_debug.instrument.frontend.protocol.messages import Autotuning
from aoti_debug.instrument.frontend.worker import autotuning


def configuration(source: Path) -> Path:
    """The file of a kernel's configuration, by torch."""
    made = AutotuneCache.create({"autotune_remote_cache": False}, str(source), "any")
    assert made is not None
    assert made.local_cache is not None
    return Path(made.local_cache[1])


def test_kernels_are_counted_by_where_their_configuration_is_from(tmp_path: Path) -> None:
    cache = tmp_path / "inductor"
    sources = [
        cache / folder / f"{name}.py"
        for folder, name in [("ab", "users"), ("ab", "earlier"), ("cd", "new"), ("cd", "untuned")]
    ]
    for source in sources:
        source.parent.mkdir(parents=True, exist_ok=True)
    users, earlier, new, _ = map(configuration, sources)
    users.write_text("{}")
    earlier.write_text("{}")
    (cache / "ab/of_no_kernel.best_config").write_text("{}")
    names = [str(users.relative_to(cache)), "ab/of_no_kernel.best_config"]
    (tmp_path / messages.AUTOTUNED).write_text(json.dumps(names))
    with autotuning.counted(tmp_path, cache) as kernels:
        for source in sources:
            source.write_text("a kernel")
        new.write_text("{}")
    assert kernels.autotuning == Autotuning(users=1, earlier=1, measured=1)


def test_without_kernels(tmp_path: Path) -> None:
    (tmp_path / messages.AUTOTUNED).write_text("[]")
    with autotuning.counted(tmp_path, tmp_path) as kernels:
        pass
    assert kernels.autotuning == Autotuning()

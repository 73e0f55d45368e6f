from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from torch._inductor.runtime.autotune_cache import AutotuneCache

from aoti_debug.instrument.frontend.protocol import messages
from aoti_debug.instrument.frontend.protocol.messages import Autotuning
from aoti_debug.instrument.frontend.worker import autotuning
from tests.instrument.wrapper import texts


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


def test_a_wrapper_gets_the_sources_that_inductor_leaves_out() -> None:
    """As torch generated it, without and with them."""
    without, with_sources = (texts.text(f"torch_2.14.1_first_run{end}") for end in ("", "_with_sources"))
    comments = re.compile(r"^ */\*\n.*?^ *\*/\n", re.MULTILINE | re.DOTALL)
    assert len(comments.findall(with_sources)) == 5
    assert comments.sub("", with_sources) == without


@pytest.mark.parametrize(
    ("source", "is_package", "written"),
    [("s", True, ["/*\ns\n*/"]), ("s", False, []), ("", True, []), ("rb'*/'", True, [])],
)
def test_only_the_text_of_a_package_gets_sources(
    monkeypatch: pytest.MonkeyPatch, source: str, is_package: bool, written: list[str]
) -> None:
    pytest.importorskip("triton")
    from torch._inductor.codegen import cpp_wrapper_gpu

    owner = cpp_wrapper_gpu.DeferredTritonCallWrapper
    original = []
    monkeypatch.setattr(owner, "_write_wrapper_signature", lambda *args: original.append(args[1:]), raising=False)
    package = SimpleNamespace(text=[])
    package.splice = package.text.append
    prefix = SimpleNamespace(aot=package) if is_package else SimpleNamespace()
    function = SimpleNamespace(kernel_name="k", kernel_name_to_body={"k": source})
    with autotuning.with_sources():
        owner._write_wrapper_signature(function, prefix, "names")
    owner._write_wrapper_signature(function, prefix, "names")
    assert original == [(prefix, "names")] * 2
    assert package.text == written

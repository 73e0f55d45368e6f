"""Notes the candidates that are compiled and timed while a program is lowered, and leaves some of them out."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from aoti_debug.instrument.frontend.protocol.build_failure import BuildStage, Position
from aoti_debug.instrument.frontend.protocol.inductor_parts import TunedChoice
from aoti_debug.instrument.frontend.worker.patched_method import replaced
from aoti_debug.instrument.frontend.worker.position_file import Positions


@contextlib.contextmanager
def noted(positions: Positions) -> Iterator[None]:
    """Notes the candidates of matrix products and of Triton kernels that this process compiles or times."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner
    from torch._inductor.select_algorithm import AlgorithmSelectorCache

    def time_choice(original: Any) -> Any:
        if not isinstance(original, classmethod):  # another torch times them in another way
            return original

        @functools.wraps(original.__func__)
        def benchmark_choice(cls: Any, choice: Any, *args: Any, **kwargs: Any) -> Any:
            with positions.at(_position(BuildStage.AUTOTUNING, choice_of(choice))):
                return original.__func__(cls, choice, *args, **kwargs)

        return classmethod(benchmark_choice)

    def compile_config(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def compile_config(self: Any, cfg: Any, *args: Any, **kwargs: Any) -> Any:
            with positions.at(_position(BuildStage.TRITON, config_of(self.fn.__name__, cfg))):
                return original(self, cfg, *args, **kwargs)

        return compile_config

    def time_config(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def bench(self: Any, launcher: Any, *args: Any, **kwargs: Any) -> Any:
            with positions.at(_position(BuildStage.AUTOTUNING, config_of(self.fn.__name__, launcher.config))):
                return original(self, launcher, *args, **kwargs)

        return bench

    with (
        replaced(AlgorithmSelectorCache, "benchmark_choice", time_choice),
        replaced(CachingAutotuner, "_precompile_config", compile_config),
        replaced(CachingAutotuner, "bench", time_config),
    ):
        yield


@contextlib.contextmanager
def leaving_out(candidates: Sequence[TunedChoice]) -> Iterator[None]:
    """Inside the `with`, these are not compiled or timed; where no other candidate is left, they are."""
    if not candidates:
        yield
        return
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner
    from torch._inductor.select_algorithm import AlgorithmSelectorCache

    def select(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def select(self: Any, name: str, choices: list[Any], *args: Any, **kwargs: Any) -> Any:
            return original(self, name, remaining(choices, choice_of, candidates), *args, **kwargs)

        return select

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def __init__(self: Any, fn: Any, triton_meta: Any, configs: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            kept = remaining(configs, lambda config: config_of(fn.__name__, config), candidates)
            original(self, fn, triton_meta, kept, *args, **kwargs)

        return __init__

    with replaced(AlgorithmSelectorCache, "__call__", select), replaced(CachingAutotuner, "__init__", make):
        yield


def remaining(
    items: Sequence[Any], candidate_of: Callable[[Any], TunedChoice], without: Sequence[TunedChoice]
) -> list[Any]:
    """The items other than some candidates; all of them if none were left."""
    kept = [item for item in items if candidate_of(item) not in without]
    return kept or list(items)


def choice_of(choice: Any) -> TunedChoice:
    """The candidate that a torch._inductor.ir.ChoiceCaller is."""
    return TunedChoice(str(choice.name), str(getattr(choice, "description", "") or ""))


def config_of(kernel: str, config: Any) -> TunedChoice:
    """The candidate that a triton.Config of a kernel is: "XBLOCK: 128, num_warps: 4, num_stages: 1"."""
    values = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
    return TunedChoice(kernel, ", ".join(f"{name}: {value}" for name, value in values.items()))


def _position(stage: BuildStage, candidate: TunedChoice) -> Position:
    return Position(stage, candidate.name, candidate=candidate.configuration)

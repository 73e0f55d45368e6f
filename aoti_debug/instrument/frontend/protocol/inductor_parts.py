"""Parts of Inductor that a program is lowered with, and without: for finding the one that is wrong."""

from __future__ import annotations

from aoti_debug.base.lazy.dataclass import dataclass


@dataclass(frozen=True)
class Applied:
    """The parts of Inductor that a program was lowered with, each once, in order.

    Attributes:
        passes: names of graph passes that can be left out with the setting `disabled_passes`.
        decompositions, lowerings: operators that were decomposed, or lowered, "aten.silu.default", and that can be
            called as they are.
    """

    passes: tuple[str, ...] = ()
    decompositions: tuple[str, ...] = ()
    lowerings: tuple[str, ...] = ()


@dataclass(frozen=True)
class TunedChoice:
    """A candidate of autotuning.

    Attributes:
        name: of the kernel or the template, "triton_poi_fused_0", "cpp_CppMicroGemmFP32Vec_0".
        configuration: "XBLOCK: 128, num_warps: 4, num_stages: 1"; "" where the name says all.
    """

    name: str
    configuration: str


@dataclass(frozen=True)
class LeftOut:
    """Operators that are called as they are, and candidates that are not tried.

    Attributes:
        decompositions, lowerings: those that are not decomposed, and those that are not lowered.
        candidates: those that are neither compiled nor timed.
        log: a file for what is applied, an `Applied` as JSON; "" for none.
    """

    decompositions: tuple[str, ...] = ()
    lowerings: tuple[str, ...] = ()
    candidates: tuple[TunedChoice, ...] = ()
    log: str = ""

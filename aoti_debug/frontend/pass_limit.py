"""A limit to how often a part of Inductor is applied: the task of torch's compiler bisector, for one lowering."""

from __future__ import annotations

from dataclasses import dataclass

SUBSYSTEMS = ("pre_grad_passes", "joint_graph_passes", "post_grad_passes", "lowerings")


@dataclass(frozen=True)
class PassLimit:
    """A limit.

    Attributes:
        subsystem: one of SUBSYSTEMS, as torch._inductor.compiler_bisector names them.
        most: applications beyond this number are left out: a pass does nothing, an operator is called as it is.
        without: names of applications that are left out, too: of passes, or of nodes of the lowered graph.
        log: a file that gets a line for each application, counted ones and left out ones.
    """

    subsystem: str
    most: int
    log: str
    without: tuple[str, ...] = ()

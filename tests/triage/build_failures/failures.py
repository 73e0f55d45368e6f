"""Failures of builds that a test makes up, of a chain of operators."""

from __future__ import annotations

from dataclasses import replace

from aoti_debug.instrument.frontend.protocol.build_failure import (
    BuildFailure,
    BuildStage,
    Compilation,
    Ending,
    Position,
)
from aoti_debug.package.manifest import ModelLine
from tests.compare import chains

REFERENCE = chains.reference(("aten.relu.default", "aten.erf.default"))
LINES = (
    ModelLine("/home/u/model.py", 1, "forward", "y = x.relu()"),
    ModelLine("/home/u/model.py", 2, "forward", "erf(y)"),
)
LOWERING = BuildFailure(
    Position(BuildStage.LOWERING, "aten.erf.default", "node_1"),
    Ending.EXCEPTION,
    "RuntimeError: no such layout",
    ("/site-packages/torch/a.py:1 in f", "/home/u/ops.py:4 in broken"),
    REFERENCE,
)
PASS = BuildFailure(
    Position(BuildStage.PASS, "my_pass"),
    Ending.TIMEOUT,
    "no end within 30 s",
    ("/home/u/p.py:5 in endless",),
    REFERENCE,
)
KERNEL = BuildFailure(
    Position(BuildStage.CPP, "cpp_fused_erf_1", "node_1"),
    Ending.EXCEPTION,
    "internal compiler error: Segmentation fault",
    reference=REFERENCE,
    operators=("aten.relu.default", "aten.erf.default"),
    compilation=Compilation("void f();\n", ("g++", "-O3", "-DA=1")),
)
CANDIDATE = BuildFailure(
    Position(BuildStage.AUTOTUNING, "triton_mm_3", "node_1", candidate="BLOCK_M=128"), Ending.DEATH, "SIGSEGV"
)
(GRAPH,) = REFERENCE.graphs
NUMBERED = tuple(replace(node, line=at - 1) for at, node in enumerate(GRAPH.nodes))
CODE = BuildFailure(
    Position(BuildStage.CODE, nodes=("node_1", "node_0")),
    Ending.EXCEPTION,
    "RuntimeError: no such code",
    ("/site-packages/torch/a.py:1 in f",),
    replace(REFERENCE, graphs=(replace(GRAPH, nodes=NUMBERED),), lines=LINES),
    operators=("aten.erf.default", "aten.relu.default"),
)

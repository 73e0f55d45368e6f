"""The scripts of failed builds; golden files show them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from aoti_debug.compare.fx_repro.module_text import module_text
from aoti_debug.compare.fx_repro.script_text import Surroundings
from aoti_debug.triage.build_failures import proof_script
from aoti_debug.triage.build_failures.script_text import ModuleTensors, compiler_text, loading_text, script_text
from tests.triage.build_failures import failures

GOLDEN = Path(__file__).parent / "golden"
HEADER = ("The lowering of aten.erf.default alone", 'It is node "node_1".')
AROUND = Surroundings({"max_autotune": True}, ("/home/u/model",), ("my_ops",), ("/home/u/ops.so",))
GRAPH = failures.REFERENCE.graphs[0]
MODULE = module_text(failures.REFERENCE, GRAPH, proof_script.region_of(GRAPH, ["node_1"]))
TEXTS = {
    "lowering": lambda: script_text(HEADER, MODULE, ModuleTensors({"node_0": "torch.randn([4])"}), AROUND),
    "weights": lambda: script_text(
        HEADER, MODULE, ModuleTensors({}, {"node_0": "torch.randn([4])"}, "cuda"), Surroundings()
    ),
    "program": lambda: loading_text(HEADER, "/home/u/model.pt2", AROUND),
    "compiler": lambda: compiler_text(HEADER, ("g++", "-O3", '-DA="x"'), "kernel.cpp"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_whole_script(name: str, golden: Callable[[Path, str], None]) -> None:
    text = TEXTS[name]()
    compile(text, name, "exec")
    golden(GOLDEN / f"{name}.py.txt", text)

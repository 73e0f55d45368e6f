"""The modules that register operators, and the part of a script that does."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from aoti_debug.app.execute import operator_modules
from aoti_debug.app.execute.operator_modules import OperatorModules, operators_of

SCRIPT = textwrap.dedent("""\
    import sys
    import torch

    LIMIT = 3
    model = torch.load("large.pt")

    def check(x):
        model = x
        if x.shape[0] < LIMIT:
            raise ValueError(model)

    @torch.library.custom_op("mine::checked", mutates_args=())
    def checked(x: torch.Tensor) -> torch.Tensor:
        check(x)
        return x * 2

    @checked.register_fake
    def _(x):
        return torch.empty_like(x)

    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.ops.mine.checked(x)

    x = torch.ones(4)
    if __name__ == "__main__":
        torch.library.define("mine::other", "() -> ()")
    print(model(x))
""")


def test_the_operators_of_a_script_in_their_lines() -> None:
    kept = operators_of(SCRIPT).splitlines()
    lines = SCRIPT.splitlines()
    assert [line for line in kept if line] == [*lines[:2], lines[3], *(line for line in lines[6:19] if line)]
    assert all(line in ("", lines[number]) for number, line in enumerate(kept))
    assert operators_of("import torch\nprint(torch.ones(3))\n") == ""


@pytest.mark.parametrize(
    "statement",
    [
        "lib = torch.library.Library('a', 'DEF')",
        "torch.ops.load_library('a.so')",
        "if torch.cuda.is_available():\n    torch.library.define('a::b', '() -> ()')",
        "torch.export.register_dataclass(Batch)",
    ],
)
def test_statements_that_register(statement: str) -> None:
    assert statement in operators_of(f"import torch\n{statement}\nrun()\n")


def test_modules_that_register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[Any] = []
    torch = ModuleType("torch")
    vars(torch).update(
        _C=SimpleNamespace(_dispatch_library=registered.append),
        utils=SimpleNamespace(_pytree=SimpleNamespace()),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    modules = OperatorModules()
    modules.watch()
    callers = {"torch.library": torch, "my_ops": None, "__main__": None}
    for name in callers:
        exec("_C._dispatch_library(caller)", {"__name__": name, "_C": torch._C, "caller": name})
    assert registered == list(callers)

    script = tmp_path / "serve-it.py"
    script.write_text(SCRIPT)
    main = ModuleType("__main__")
    main.__file__ = str(script)
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setitem(sys.modules, "serve_it_operators", ModuleType("another"))
    names = modules.imports(tmp_path / "made")
    assert names[-2:] == ("my_ops", "serve_it_operators")
    assert (tmp_path / "made/serve_it_operators.py").read_text() == operators_of(SCRIPT)
    assert operator_modules._MAIN[0] not in names

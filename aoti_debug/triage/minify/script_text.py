"""The script that shows a finding with torch alone, and what it checks by the kind of the finding. Pure text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.fx_repro.module_text import CLASS, ModuleText
from aoti_debug.compare.fx_repro.script_text import Surroundings, standard_modules, torch_modules, user_statements
from aoti_debug.repro import literals
from aoti_debug.runs.diagnosis.findings import Finding


class ScriptCheck(str, Enum):
    """The expectation of a script."""

    SAME = "the compiled graph computes what eager computes"
    NAN = "no NaN comes of numbers"
    INFINITY = "no infinity comes of finite numbers"
    ENDS = "the compiled graph returns"
    BUILDS = "the graph compiles"
    PROMISED = "eager returns what the exported program promises"


_BY_KIND: dict[str, tuple[ScriptCheck, ...]] = {
    "build_failure": (ScriptCheck.BUILDS,),
    "wrong_value": (ScriptCheck.SAME,),
    "differs": (ScriptCheck.SAME,),
    "refused_by_eager": (),  # every check begins with what eager computes
    "fault": (ScriptCheck.ENDS,),
    "hang": (ScriptCheck.ENDS,),
    "contract": (ScriptCheck.PROMISED, ScriptCheck.ENDS, ScriptCheck.SAME),
    "race": (ScriptCheck.SAME,),
    "threads": (ScriptCheck.SAME, ScriptCheck.ENDS),
    "overrun": (ScriptCheck.ENDS, ScriptCheck.SAME),
    "uninitialised": (ScriptCheck.SAME,),
}


def checks_of(finding: Finding) -> tuple[ScriptCheck, ...]:
    """The checks that may show a finding, the likeliest first."""
    if finding.kind.value == "nonfinite":
        return (
            (ScriptCheck.NAN, ScriptCheck.INFINITY)
            if "NaN" in finding.what
            else (ScriptCheck.INFINITY, ScriptCheck.NAN)
        )
    return _BY_KIND[finding.kind.value]


SCRIPT = "repro.py"
_MODULE = "Launch().eval()"  # in the templates
IN_EAGER = f"{_MODULE}(*make_inputs())  # eager returns"
OBSERVED = "observed: "  # how the line of a script that shows its finding begins

_OF_TENSORS = """
def observed(compiled):
    for name, tensor in zip({outputs}, compiled(*make_inputs())):
        if count := int({function}(tensor.double()).sum()):
            return f"{{count}} of {{tensor.numel()}} elements of {{name}} are {what}"
"""
_OBSERVED = {
    ScriptCheck.SAME: """
def double():
    try:
        return Launch().eval().double()(*(x.double() if x.is_floating_point() else x for x in make_inputs()))
    except Exception:  # an operator takes no float64
        return Launch().eval()(*make_inputs())
def observed(compiled):
    for name, one, other, exact in zip({outputs}, compiled(*make_inputs()), Launch().eval()(*make_inputs()), double()):
        ulp = torch.finfo(other.dtype).eps if other.is_floating_point() or other.is_complex() else 0
        rounding = max([0, *(other.to(torch.cdouble) - exact).abs().nan_to_num(0, 0, 0).flatten().tolist()])  # of eager
        try:
            torch.testing.assert_close(one, other, rtol=4 * ulp, atol=1e-5 + 8 * rounding, equal_nan=True)
        except AssertionError as error:
            return f"{{name}}: {{' '.join(str(error).split())}}"
""",
    ScriptCheck.PROMISED: """
def observed(program):
    for name, node, tensor in zip({outputs}, program.graph.output_node().args[0], Launch().eval()(*make_inputs())):
        one, other = ((t.dtype, list(t.shape), t.stride(), t.device.type) for t in (tensor, node.meta["val"]))
        if one != other:
            return f"{{name}}: {{one}}, promised {{other}}"
""",
    ScriptCheck.ENDS: """
def observed(package):
    try:
        child = subprocess.run([sys.executable, __file__, package], capture_output=True, text=True, timeout={seconds:g})
    except subprocess.TimeoutExpired:
        return "no end within {seconds:g} s"
    if child.returncode < 0:
        return signal.Signals(-child.returncode).name
    return child.stderr.strip().rpartition("\\n")[2] or "an error" if child.returncode else ""
""",
    ScriptCheck.BUILDS: """
def observed(program):
    try:
        child = subprocess.run([sys.executable, __file__, "build"], capture_output=True, text=True, timeout={seconds:g})
    except subprocess.TimeoutExpired:
        return "no end within {seconds:g} s"
    if child.returncode < 0:
        return signal.Signals(-child.returncode).name
    lines = child.stderr.strip().splitlines() or ["an error"]
    last = next((x for x in reversed(lines) if "Error: " in x), lines[-1])
    return last.lstrip(" )") if child.returncode else ""
""",
    ScriptCheck.NAN: _OF_TENSORS,
    ScriptCheck.INFINITY: _OF_TENSORS,
}
_MAIN = """
if __name__ == "__main__":
{before}    program = torch.export.export(Launch().eval(), make_inputs())
{compile}{look}    print("as expected")
"""
_COMPILE = "    package = torch._inductor.aoti_compile_and_package(program{settings})\n"
_LOAD = "    compiled = torch._inductor.aoti_load_package(package)\n"
_ONCE = """    if text := observed({subject}):
        sys.exit(f"observed: {{text}}; expected: {expected}")
"""
_OFTEN = """    if seen := [text for _ in range({runs}) if (text := observed({subject}))]:
        sys.exit(f"observed: {{seen[0]}}, in {{len(seen)}} of {runs} runs; expected: {expected}")
"""
_CHILD = """    if sys.argv[1:]:
        torch._inductor.aoti_load_package(sys.argv[1])(*make_inputs())
        sys.exit(torch.cuda.synchronize() if torch.cuda.is_available() else 0)
"""
_BUILDER = """    if sys.argv[1:]:
        settings = {settings}
        torch._inductor.aoti_compile_and_package(program, inductor_configs=settings)
        sys.exit(0)
"""
_ONLY_SOURCES = {"aot_inductor.package_cpp_only": True}  # nothing is compiled
_EXPECTED = {
    ScriptCheck.SAME: "what eager computes",
    ScriptCheck.NAN: "numbers, as the inputs are",
    ScriptCheck.INFINITY: "finite numbers, as the inputs are",
    ScriptCheck.ENDS: "that it returns",
    ScriptCheck.BUILDS: "that it compiles",
    ScriptCheck.PROMISED: "what was promised",
}
_MODULES = {ScriptCheck.ENDS: ("signal", "subprocess"), ScriptCheck.BUILDS: ("signal", "subprocess")}
_OF_PROGRAM = (ScriptCheck.PROMISED, ScriptCheck.BUILDS)


@dataclass(frozen=True)
class ScriptSetup(Surroundings):
    """The things of the user that a script needs to show a finding.

    Attributes:
        seconds: after which a call hangs.
        device: of the module, "cpu" or "cuda".
    """

    seconds: float = 60.0
    device: str = "cpu"


def script_text(
    title: str,
    module: ModuleText,
    inputs: Mapping[str, str],
    check: ScriptCheck,
    setting: ScriptSetup,
    runs: int = 1,
    first: Sequence[str] = (),
) -> str:
    """The text of a script: exit code 1 and one line on stderr if it shows the finding, 0 if not.

    Args:
        title: what it is, one line.
        inputs: an expression of each input, by its name in the module.
        runs: how often it looks; of a finding that does not show itself every time.
        first: statements before the export.
    """
    names = {"sys", *_MODULES.get(check, ()), *standard_modules(module.imports)}
    names |= {"base64"} if any("base64." in expression for expression in inputs.values()) else set()
    reads_files = any("Path(" in expression for expression in inputs.values())
    lines = [f'"""{_docstring(title)}"""', f"import {', '.join(sorted(names))}"]
    lines += ["from pathlib import Path"] if reads_files else []
    lines += ["import torch", *(f"import {name}" for name in torch_modules(module.imports))]
    lines += user_statements(setting)
    lines += ["torch.set_grad_enabled(False)", "", module.source.replace("\n\n", "\n").rstrip(), ""]
    lines += _make_inputs(inputs)
    device = "" if setting.device == "cpu" else f".to({literals.text(setting.device)})"
    code = _observed(module, check, setting) + _main(check, setting, runs, first)
    return "\n".join(lines) + code.replace(_MODULE, f"{CLASS}().eval(){device}")


def _make_inputs(inputs: Mapping[str, str]) -> Sequence[str]:
    if not inputs:
        return ["def make_inputs():", "    return ()", ""]
    seed = ["    torch.manual_seed(0)"] if any("rand" in text for text in inputs.values()) else []
    *others, (name, text) = inputs.items()
    lines = [*(f"{text},  # {name}" for name, text in others), f"{text}{')' if others else ',)'}  # {name}"]
    indented = [f"{' ' * 12 if number else '    return ('}{line}" for number, line in enumerate(lines)]
    return ["def make_inputs():", *seed, *indented, ""]


def _observed(module: ModuleText, check: ScriptCheck, setting: ScriptSetup) -> str:
    outputs = f"[{', '.join(map(literals.text, module.outputs))}]"
    function, what = ("torch.isnan", "NaN") if check is ScriptCheck.NAN else ("torch.isinf", "infinite")
    return _OBSERVED[check].format(outputs=outputs, function=function, what=what, seconds=setting.seconds)


def _main(check: ScriptCheck, setting: ScriptSetup, runs: int, first: Sequence[str]) -> str:
    settings = f", inductor_configs={dict(setting.configs)!r}" if setting.configs else ""
    compiled = "" if check in _OF_PROGRAM else _COMPILE.format(settings=settings)
    compiled += "" if check in (*_OF_PROGRAM, ScriptCheck.ENDS) else _LOAD
    if check is ScriptCheck.BUILDS:
        compiled = _BUILDER.format(settings=repr({**setting.configs, **_ONLY_SOURCES}))
    before = (_CHILD if check is ScriptCheck.ENDS else "") + "".join(f"    {statement}\n" for statement in first)
    subject = "program" if check in _OF_PROGRAM else "package" if check is ScriptCheck.ENDS else "compiled"
    look = (_ONCE if runs == 1 else _OFTEN).format(subject=subject, runs=runs, expected=_EXPECTED[check])
    return _MAIN.format(before=before, compile=compiled, look=look)


def _docstring(title: str) -> str:
    return title.replace("\\", "\\\\").replace('"', "'")

"""The text of an issue for PyTorch's tracker, `repro --issue`, with its script, which needs torch alone."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from aoti_debug.compare.fx_repro.module_text import CLASS, ModuleText
from aoti_debug.compare.fx_repro.script_text import input_text, standard_modules, torch_modules
from aoti_debug.compare.protocol.request import InputTensor
from aoti_debug.repro import literals

_FOLDERS = re.compile(r"(?:~|\.{0,2})(?:/[^/\s'\",:()]+)+/")
_ISSUE = """### Describe the bug

This graph is the part of a model that one launch of its AOTInductor package computes. The script compiles it alone, and
compares it with eager.

```python
{script}```

**Observed**: {observed}

**Expected**: what eager computes.
{attached}
### Versions

{versions}
"""
_ATTACHED = """
Inputs of the script are random, but for small ones. Those of the failing call: tensors.pt (attached).
"""
_CHECK = """

if __name__ == "__main__":
    model, inputs = {name}().to({device}).eval(), make_inputs()
    with torch.no_grad():
        package = torch._inductor.aoti_compile_and_package(torch.export.export(model, inputs))
        compiled = torch._inductor.aoti_load_package(package)(*inputs)
        for actual, expected in zip(compiled, model(*inputs), strict=True):
            torch.testing.assert_close(actual, expected, equal_nan=True)
"""


def issue_text(
    module: ModuleText,
    inputs: Mapping[str, InputTensor],
    versions: Mapping[str, str],
    device: str,
    observed: Sequence[str],
) -> str:
    """The text of issue.md. Of paths only the names of files are left, and of model lines only their numbers.

    Args:
        module: with comments for the public.
        observed: the fault of the launch, or how what eager computes differs from what was recorded; () if it does not.
    """
    script = issue_script(module, inputs, device)
    are_recorded = all(tensor.data or not math.prod(tensor.shape) for tensor in inputs.values())
    attached = "" if are_recorded else _ATTACHED
    lines = [f"- {name} {version}" for name, version in versions.items()]
    said = _FOLDERS.sub("", "; ".join(observed)) or "nothing wrong in this recording: say here what is"
    return _ISSUE.format(
        script=script,
        observed=said,
        attached=attached,
        versions="\n".join(lines),
    )


def issue_script(module: ModuleText, inputs: Mapping[str, InputTensor], device: str) -> str:
    """The script of the issue: it compares the compiled graph with eager, and needs nothing but torch."""
    imports = [f"import {name}" for name in sorted(standard_modules(module.imports))]
    later = [f"import {name}" for name in torch_modules(module.imports)]
    has_data = any(tensor.data for tensor in inputs.values())
    made = [f"        {input_text(tensor, device)},  # {name}" for name, tensor in inputs.items()]
    lines = [*(["import base64"] if has_data else []), *imports, *([""] if imports or has_data else [])]
    lines += ["import torch", *later, "", "", module.source]
    lines += ["", "def make_inputs():", "    torch.manual_seed(0)", "    return (", *made, "    )", ""]
    return "\n".join(lines) + _CHECK.format(name=CLASS, device=literals.text(device))

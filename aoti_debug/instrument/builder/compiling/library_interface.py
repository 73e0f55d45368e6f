"""Takes the C functions of a model's library out of its wrapper, to be compiled once for all models.

Inductor writes the same functions, which a host calls, into every wrapper: half of the time that one compiles. The
base class of a model, which is the same in every library as well, is compiled with them.
"""

from __future__ import annotations

import re

from aoti_debug.base.lazy.dataclass import dataclass

_BASE = "class torch::aot_inductor::AOTInductorModelBase<torch::aot_inductor::AOTInductorModel>;\n"
BASE_DECLARATION, BASE_DEFINITION = f"extern template {_BASE}", f"template {_BASE}"
_FUNCTIONS = re.compile(
    r"^(?:namespace \{\n(?:(?!\} // namespace).*\n)*\} // namespace\n+)?"
    r'extern "C" \{\n(?:(?!\} // extern|extern "C" \{).*\n)*\} // extern "C"\n',
    re.MULTILINE,
)
_CONTAINER = re.compile(r"^#include <torch/csrc/inductor/aoti_runtime/model_container\.h>$", re.MULTILINE)
_MODEL = "#include <torch/csrc/inductor/aoti_runtime/model.h>"
_NAME = re.compile(r"^AOTIRuntimeError (\w+)\(", re.MULTILINE)


@dataclass(frozen=True)
class SplitWrapper:
    """A wrapper as two translation units.

    Attributes:
        interface: the C functions, with what precedes them in the wrapper.
        model: all but the C functions and the container that they call; its lines keep their numbers.
    """

    interface: str
    model: str


def split(wrapper: str) -> SplitWrapper | None:
    """Splits a wrapper, instrumented or not; None where it has other functions than those of a library's interface."""
    found = _FUNCTIONS.search(wrapper)
    if found is None:
        return None
    functions, rest = found.group(), wrapper[found.end() :]
    names = _NAME.findall(functions)
    if "AOTInductorModelContainerRun" not in names or re.search(rf"\b(?:{'|'.join(names)})\b", rest):
        return None
    model = wrapper[: found.start()] + "\n" * functions.count("\n") + rest
    if "ModelContainer" not in rest:
        model = _CONTAINER.sub(_MODEL, model)
    return SplitWrapper(wrapper[: found.end()], model)

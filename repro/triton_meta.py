"""The types, constants, divisibility and options that Triton specialised a kernel for."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from aoti_debug.base.errors import UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.package.manifest import Kernel
from aoti_debug.repro.triton_source import kernel_of

DIVISIBILITY = ["tt.divisibility", 16]


@dataclass(frozen=True)
class Specialisation:
    """The values that a kernel was compiled for.

    Attributes:
        signature: parameter -> Triton's name of its type, "constexpr" for one that is compiled in; in order.
        constants: the values of those, as Python source.
        divisible: parameters whose address or value is taken for a multiple of 16.
        num_stages: None where the package does not say its configuration; constants are missing then, too.
        options: further options of the compilation, as Python source.
    """

    signature: Mapping[str, str]
    constants: Mapping[str, str]
    divisible: tuple[str, ...]
    num_stages: int | None
    options: Mapping[str, str]


def specialisation(kernel: Kernel) -> Specialisation:
    """Reads them from the kernel's source and configuration.

    Raises:
        UsageError: the source does not say what it was compiled for, or says it in a way that is not known.
    """
    function = kernel_of(ast.parse(kernel.source))
    metas = {
        keyword.arg: _items(keyword.value)
        for decorator in function.decorator_list
        if isinstance(decorator, ast.Call)
        for keyword in decorator.keywords
        if keyword.arg in ("triton_meta", "inductor_meta") and isinstance(keyword.value, ast.Dict)
    }
    if "triton_meta" not in metas:
        raise UsageError(f"the source of {kernel.name} does not say for which types it was compiled")
    meta, inductor = metas["triton_meta"], metas.get("inductor_meta", {})
    signature = {name: str(ast.literal_eval(kind)) for name, kind in _items(meta["signature"]).items()}
    config = dict(kernel.config)
    constants = {name: ast.unparse(value) for name, value in _items(meta["constants"]).items()}
    arguments = [a.arg for a in function.args.args]
    constants |= {name: value for name, value in config.items() if name in arguments}
    return Specialisation(
        signature=signature,
        constants=constants,
        divisible=_divisible(meta["configs"], list(signature), kernel.name),
        num_stages=int(config["num_stages"]) if "num_stages" in config else None,
        options=_options(meta, inductor),
    )


def _items(node: ast.expr) -> dict[str, ast.expr]:
    """The entries of a dictionary's source whose keys are strings.

    Raises:
        UsageError: it is no dictionary.
    """
    if not isinstance(node, ast.Dict):
        raise UsageError(f"the kernel's source does not list what it was compiled for: {ast.unparse(node)}")
    return {
        str(key.value): value
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }


def _divisible(configs: ast.expr, names: list[str], kernel: str) -> tuple[str, ...]:
    """From `[{(0,): [['tt.divisibility', 16]], …}]`."""
    attributes = ast.literal_eval(configs)[0]
    if any(len(index) != 1 or values not in ([], [DIVISIBILITY]) for index, values in attributes.items()):
        raise UsageError(f"{kernel} was compiled with assumptions that are not known: {attributes}")
    return tuple(names[index] for (index,), values in attributes.items() if values)


def _options(meta: Mapping[str, ast.expr], inductor: Mapping[str, ast.expr]) -> dict[str, str]:
    """The options as Inductor passes them to triton.compile."""
    asserts = inductor.get("assert_indirect_indexing")
    options = {
        "debug": "True" if asserts is None else ast.unparse(asserts),
        "sanitize_overflow": "False",
        "enable_fp_fusion": "True",  # Triton's default where Inductor does not say it; later versions have another
    }
    for name in ("enable_fp_fusion", "launch_pdl", "launch_cooperative_grid"):
        if name in meta:
            options[name] = ast.unparse(meta[name])
    if "backend_options" in meta:  # that a launch of the user's kernel is given, as kernel[grid](..., launch_pdl=True)
        options |= {name: ast.unparse(value) for name, value in _items(meta["backend_options"]).items()}
    if "disable_ftz" in meta and ast.literal_eval(meta["disable_ftz"]):
        options["enable_reflect_ftz"] = "False"
    return options

"""Imports a file of PyTorch's AOTInductor tests, and hands over the models that its tests would check.

The modules that the file imports from its folder have stand-ins here, whose helpers compile nothing themselves; only
test_control_flow.py is read from there, if it is beside the file.
"""

from __future__ import annotations

import functools
import importlib.util
import shutil
import sys
import unittest
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from aoti_debug.instrument.frontend.protocol import caller_settings

TEMPLATE = "AOTInductorTestsTemplate"
_MODULE = "test_aot_inductor"
_COMPILE_AND_PACKAGE = torch._inductor.aoti_compile_and_package


@dataclass(frozen=True, eq=False)
class Case:
    """A model that a test compiles.

    Attributes:
        model: a module or a function; None if there is an exported program.
        inputs: of each call; the model is exported with the first.
        options: settings of Inductor.
        dynamic_shapes: as torch.export takes them.
        exported: the program, if the test has exported it.
    """

    model: Any
    inputs: Sequence[tuple[Any, ...]]
    options: Mapping[str, Any] = field(default_factory=dict)
    dynamic_shapes: Any = None
    exported: Any = None

    def key(self) -> tuple[object, ...]:
        """Equal for the same model with inputs of the same shapes and the same settings, those of torch as well."""
        leaves = pytree.tree_leaves(list(self.inputs))
        shapes = [(leaf.shape, leaf.dtype) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        given = repr((shapes, dict(self.options), self.dynamic_shapes))
        return id(self.model), id(self.exported), given, caller_settings.key()


@dataclass(frozen=True)
class Compiled:
    """What torch has made of a model.

    Attributes:
        package: the file.
        outputs: of the calls.
    """

    package: Path
    outputs: Sequence[Any]


Take = Callable[[Case], Compiled]


class TorchTests:
    """The tests of a file, for a device.

    Attributes:
        names: in the order of the file.
    """

    def __init__(self, file: Path, device: str) -> None:
        """Imports the file.

        Raises:
            ImportError: it, or what it needs of this torch, is not there; or it has no AOTInductor tests.
        """
        self._device = device
        self._take: Take | None = None
        self._skipped: set[str] = set()
        module = self._imported(file)
        template = getattr(module, TEMPLATE, None)
        if template is None:
            raise ImportError(f"{file} has no class {TEMPLATE}")
        self.names = [name for name in vars(template) if name.startswith("test_") and callable(getattr(template, name))]
        self._class = self._made(template)

    def run(self, name: str, take: Take) -> None:
        """Runs a test; `take` gets its models, and says what torch makes of them or raises what torch raises.

        Raises:
            unittest.SkipTest: the test is not for this device, or needs more than models.
            Exception: what the test, or `take`, raises.
        """
        if name in self._skipped:
            raise unittest.SkipTest("PyTorch skips it")
        self._take = take
        replaced = mock.patch.object(torch._inductor, "aoti_compile_and_package", self._compile_and_package)
        try:
            with torch.no_grad(), replaced:
                getattr(self._class(name), name)()
        finally:
            self._take = None

    def _imported(self, file: Path) -> ModuleType:
        stand_ins = {
            "test_aot_inductor_utils": self._utils(),
            "test_torchinductor": self._torchinductor(),
            "test_control_flow": _control_flow(file.with_name("test_control_flow.py")),
        }
        spec = importlib.util.spec_from_file_location(_MODULE, file)
        if spec is None or spec.loader is None or not file.is_file():
            raise ImportError(f"{file} is no Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules.update(stand_ins)  # they stay: Dynamo looks models up there
        sys.modules[_MODULE] = module
        spec.loader.exec_module(module)
        return module

    def _made(self, template: type) -> Any:
        from torch._inductor.test_case import TestCase

        helpers = {
            "device": self._device,
            "device_type": self._device,
            "allow_stack_allocation": False,
            "use_minimal_arrayref_interface": False,
            "abi_compatible": True,
            "check_model": self._check_model,
            "check_model_with_multiple_inputs": self._check_model_with_multiple_inputs,
            "code_check_count": lambda *_, **__: None,
        }
        return type("AOTInductorTests", (template, TestCase), {n: _static(value) for n, value in helpers.items()})

    def _taken(self, case: Case) -> Compiled:
        assert self._take is not None, "a model outside of a test"
        with mock.patch.object(torch._inductor, "aoti_compile_and_package", _COMPILE_AND_PACKAGE):  # a build calls it
            return self._take(case)

    def _check_model(
        self,
        model: Any,
        example_inputs: tuple[Any, ...],
        options: Mapping[str, Any] | None = None,
        dynamic_shapes: Any = None,
        **keywords: Any,
    ) -> None:
        inputs = (tuple(example_inputs),)
        case = Case(model, inputs, options or {}, dynamic_shapes)
        self._taken(self._placed(case, moves_model=keywords.get("move_model_to_device", True)))

    def _check_model_with_multiple_inputs(
        self,
        model: Any,
        list_example_inputs: Sequence[tuple[Any, ...]],
        options: Mapping[str, Any] | None = None,
        dynamic_shapes: Any = None,
        **_: Any,
    ) -> None:
        inputs = tuple(map(tuple, list_example_inputs))
        self._taken(self._placed(Case(model, inputs, options or {}, dynamic_shapes), moves_model=True))

    def _placed(self, case: Case, *, moves_model: bool) -> Case:
        """The case on the device: its model, and inputs that are all on the CPU."""
        model = case.model.to(self._device) if moves_model and isinstance(case.model, nn.Module) else case.model
        tensors = [leaf for leaf in pytree.tree_leaves(list(case.inputs)) if isinstance(leaf, Tensor)]
        inputs = case.inputs
        if self._device != "cpu" and all(tensor.device.type == "cpu" for tensor in tensors):
            inputs = pytree.tree_map_only(Tensor, lambda tensor: tensor.to(self._device), list(inputs))
        return Case(model, inputs, case.options, case.dynamic_shapes)

    def _compile_and_package(self, exported_program: Any, *_: Any, **keywords: Any) -> str:
        """Stands in for torch._inductor.aoti_compile_and_package."""
        options, file = keywords.get("inductor_configs") or {}, keywords.get("package_path")
        if exported_program.example_inputs is None or exported_program.example_inputs[1]:
            raise unittest.SkipTest("a program that was exported with keywords, or without inputs")
        inputs = (tuple(exported_program.example_inputs[0]),)
        package = self._taken(Case(None, inputs, options, exported=exported_program)).package
        return str(package if file is None else shutil.copyfile(package, file))

    def _utils(self) -> ModuleType:
        """Stands in for test_aot_inductor_utils."""

        def compiled(*given: Any, **keywords: Any) -> Compiled:
            model, inputs, *rest = given[1:] if isinstance(given[0], str) else given  # a device was first, once
            names = ("inductor_configs", "options", "dynamic_shapes")
            unknown = set(keywords) - {*names, "model", "example_inputs", "disable_constraint_solver"}
            if unknown:
                raise unittest.SkipTest(f"{', '.join(sorted(unknown))} is not known here")
            options = (rest[0] if rest else None) or keywords.get("inductor_configs") or keywords.get("options") or {}
            shapes = rest[1] if len(rest) > 1 else keywords.get("dynamic_shapes")
            calls = inputs if isinstance(inputs, list) else [inputs]
            return self._taken(Case(model, tuple(map(tuple, calls)), options, shapes))

        def normal(call: Callable[[Compiled], Any]) -> Callable[..., Any]:
            def helper(*given: Any, **keywords: Any) -> Any:
                named = [keywords.pop(name) for name in ("model", "example_inputs") if name in keywords]
                return call(compiled(*given, *named, **keywords))

            return staticmethod(helper)

        def load(*given: Any, **_: Any) -> Any:
            return torch._inductor.aoti_load_package(str(given[-1]))

        def no_runner(*_: Any, **__: Any) -> Any:
            raise unittest.SkipTest("it drives the runner of a library")

        module = ModuleType("test_aot_inductor_utils")
        helpers: dict[str, Any] = dict.fromkeys(("compile", "legacy_compile"), normal(lambda made: str(made.package)))
        helpers |= dict.fromkeys(("run", "legacy_run"), normal(lambda made: made.outputs[0]))
        helpers |= {"run_multiple": normal(lambda made: list(made.outputs))}
        helpers |= dict.fromkeys(("load", "legacy_load", "load_package"), staticmethod(load))
        helpers |= dict.fromkeys(("load_runner", "legacy_load_runner"), staticmethod(no_runner))
        vars(module)["AOTIRunnerUtil"] = type("AOTIRunnerUtil", (), helpers)
        for name in ("check_model", "check_model_with_multiple_inputs", "code_check_count"):
            setattr(module, name, None)  # the class of the tests has them
        return module

    def _torchinductor(self) -> ModuleType:
        """Stands in for test_torchinductor."""

        @dataclass
        class TestFailure:
            suffixes: tuple[str, ...]
            is_skip: bool = False

        def copy_tests(
            _: type, __: type, suffix: str, failures: Mapping[str, TestFailure] | None = None, *___: Any
        ) -> None:
            if suffix == self._device:
                skipped = {name for name, failure in (failures or {}).items() if failure.is_skip}
                self._skipped |= skipped

        module = ModuleType("test_torchinductor")
        no_multigpu = torch.cuda.device_count() < 2
        requires_multigpu = functools.partial(unittest.skipIf, no_multigpu, "requires several GPUs")
        vars(module).update(copy_tests=copy_tests, TestFailure=TestFailure, requires_multigpu=requires_multigpu)
        return module


class _Absent:
    """A name of a module that is not there: who uses it skips the test."""

    def __init__(self, said: str) -> None:
        self._said = said

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise unittest.SkipTest(self._said)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise unittest.SkipTest(self._said)


def _control_flow(file: Path) -> ModuleType:
    module = ModuleType("test_control_flow")
    if file.is_file():
        spec = importlib.util.spec_from_file_location("test_control_flow", file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    absent = _Absent(f"{file.name} is not beside the tests")
    vars(module)["__getattr__"] = lambda _: absent
    return module


def _static(value: Any) -> Any:
    return staticmethod(value) if callable(value) else value

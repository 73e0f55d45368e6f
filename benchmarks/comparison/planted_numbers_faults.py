"""The faults of planted_numbers.py: passes, lowerings and generated code that are wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

JOINT, POST = "joint_custom_pre_pass", "post_grad_custom_post_pass"
Edit = Callable[[Any], None]


@dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes:
        model: the one that it is planted in.
    """

    model: str
    plant: Callable[[], None]


def _pass(setting: str, edit: Edit) -> Callable[[], None]:
    """A pass of the user's over the whole graph."""

    def plant() -> None:
        import torch._inductor.config

        def once(graph: Any) -> None:
            if not any(node.meta.get("planted") for node in graph.nodes):
                edit(graph)

        setattr(torch._inductor.config, setting, once)

    return plant


def _post(edit: Edit) -> Callable[[], None]:
    return _pass(POST, edit)


def _find(graph: Any, target: str, number: int = 0) -> Any:
    found = [node for node in graph.nodes if str(node.target) == target]
    if number >= len(found):
        raise RuntimeError(f"no {target}: {[str(node.target) for node in graph.nodes]}")
    return found[number]


def _results(change: Callable[[list[Any], Any], list[Any]]) -> Edit:
    """Changes what the graph returns."""

    def edit(graph: Any) -> None:
        output = graph.output_node()
        output.args = (type(output.args[0])(change(list(output.args[0]), graph)),)

    return edit


def _operator(name: str) -> Any:
    import torch

    namespace, packet, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)


def _wrong_result(index: int, *calls: tuple[Any, ...]) -> Edit:
    """Calls operators, one after the other, on one of the results: (name, further arguments)."""

    def change(results: list[Any], graph: Any) -> list[Any]:
        results[index] = _called(graph, graph.output_node(), results[index], calls)
        return results

    return _results(change)


def _called(graph: Any, before: Any, node: Any, calls: tuple[tuple[Any, ...], ...]) -> Any:
    import torch

    with graph.inserting_before(before):
        for name, *arguments in calls:
            value = node.meta["val"] if isinstance(node, torch.fx.Node) else node
            node = graph.call_function(_operator(name), (node, *arguments))
            with value.fake_mode:
                node.meta["val"] = node.target(value, *arguments)
            node.meta["planted"] = True
    return node


def _instead(target: str, *calls: tuple[Any, ...], number: int = 0) -> Edit:
    """Calls operators on the result of a node, for all that read it."""

    def edit(graph: Any) -> None:
        node = _find(graph, target, number)
        readers = list(node.users)
        wrong = _called(graph, node.next, node, calls)
        for reader in readers:
            reader.replace_input_with(node, wrong)

    return edit


def _elements(shape: tuple[int, ...], place: tuple[Any, ...], factor: float) -> Callable[[], None]:
    """Multiplies some elements of the first result."""

    def edit(graph: Any) -> None:
        import torch

        output = graph.output_node()
        node = output.args[0][0]
        value = node.meta["val"]
        with graph.inserting_before(output):
            mask = None
            for dim, (size, wanted) in enumerate(zip(shape, place, strict=True)):
                if wanted is None:
                    continue
                numbers = graph.call_function(
                    torch.ops.prims.iota.default,
                    (size,),
                    {"start": 0, "step": 1, "dtype": torch.int64, "device": value.device, "requires_grad": False},
                )
                at = graph.call_function(_operator("aten.eq.Scalar"), (numbers, wanted))
                sizes = [size if d == dim else 1 for d in range(len(shape))]
                at = graph.call_function(_operator("aten.reshape.default"), (at, sizes))
                mask = at if mask is None else graph.call_function(_operator("aten.logical_and.default"), (mask, at))
            changed = graph.call_function(_operator("aten.mul.Tensor"), (node, factor))
            result = graph.call_function(_operator("aten.where.self"), (mask, changed, node))
        for new in graph.nodes:
            if "val" not in new.meta and new.op == "call_function":
                args = torch.fx.map_arg(new.args, lambda n: n.meta["val"])
                with value.fake_mode:
                    new.meta["val"] = new.target(*args, **new.kwargs)
                new.meta["planted"] = True
        output.args = (type(output.args[0])([result, *output.args[0][1:]]),)

    return _post(edit)


def _swap_results(results: list[Any], _: Any) -> list[Any]:
    return [results[1], results[0], *results[2:]]


def _bypassed(target: str, number: int = 0) -> Edit:
    def edit(graph: Any) -> None:
        node = _find(graph, target, number)
        node.replace_all_uses_with(node.args[0])
        graph.erase_node(node)

    return edit


def _target(old: str, new: str) -> Edit:
    return lambda graph: setattr(_find(graph, old), "target", _operator(new))


def _erased(target: str) -> Edit:
    """Leaves out the first call of an operator that overwrites its argument."""

    def edit(graph: Any) -> None:
        graph.erase_node(_find(graph, target))

    return edit


def _swapped_branches(graph: Any) -> None:
    for node in graph.nodes:
        if "cond" in str(node.target) and node.op == "call_function":
            node.args = (node.args[0], node.args[2], node.args[1], *node.args[3:])


def _argument(target: str, position: int, value: Any, number: int = 0) -> Edit:
    def edit(graph: Any) -> None:
        node = _find(graph, target, number)
        args = list(node.args)
        args[position] = value
        node.args = tuple(args)

    return edit


def _swapped_weights(graph: Any) -> None:
    """The first two weights of one shape, for all that read them."""
    weights = [node for node in graph.nodes if node.op in ("get_attr", "placeholder") and node.users]
    pairs = [
        (a, b)
        for n, a in enumerate(weights)
        for b in weights[n + 1 :]
        if a.meta["val"].shape == b.meta["val"].shape and a.meta["val"].dim() == 2
    ]
    first, second = pairs[0]
    users = list(first.users), list(second.users)
    for user in users[0]:
        user.replace_input_with(first, second)
    for user in users[1]:
        user.replace_input_with(second, first)


def _constants(change: Callable[[Any], None]) -> Callable[[], None]:
    """Changes the constants of a lowered graph, just before they are written."""

    def plant() -> None:
        from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu

        right = CppWrapperCpu.codegen_model_constructor

        def wrong(self: Any) -> None:
            from torch._inductor.virtualized import V

            change(V.graph)
            right(self)

        CppWrapperCpu.codegen_model_constructor = wrong

    return plant


def _swap_constants(graph: Any) -> None:
    names = [name for name, value in graph.constants.items() if value.dim() == 2]
    first, second = names[:2]
    graph.constants[first], graph.constants[second] = graph.constants[second], graph.constants[first]


def _round_constants(graph: Any) -> None:
    import torch

    for name, value in graph.constants.items():
        graph.constants[name] = value.to(torch.bfloat16).to(value.dtype)


def _shift_constant(graph: Any) -> None:
    name = next(name for name, value in graph.constants.items() if value.dim() == 2)
    changed = graph.constants[name].detach().clone()
    changed[-1, -1] += 0.5
    graph.constants[name] = changed


def _returned(change: Callable[[list[str]], list[str]]) -> Callable[[], None]:
    """Changes the buffers that the wrapper returns."""

    def plant() -> None:
        from torch._inductor.codegen.cpp_wrapper_cpu import CppWrapperCpu

        right = CppWrapperCpu.generate_return
        CppWrapperCpu.generate_return = lambda self, refs: right(self, change(list(refs)))

    return plant


def _lowering(name: str, make: Callable[[Any], Any]) -> Callable[[], None]:
    """Replaces the lowering of an operator by one that is made from it."""

    def plant() -> None:
        from torch._inductor import lowering

        target = _operator(name)
        lowering.lowerings[target] = make(lowering.lowerings[target])

    return plant


def _lowered(name: str) -> Any:
    from torch._inductor.lowering import lowerings

    return lowerings[_operator(name)]


def _partial_sums(right: Any) -> Any:
    """Partial sums of 64 elements are rounded as bfloat16 does, to quarters."""

    def wrong(x: Any, dims: Any, *_: Any, **__: Any) -> Any:
        multiply, (rows, columns) = _lowered("aten.mul.Tensor"), x.get_size()
        parts = right(_lowered("aten.reshape.default")(x, [rows, columns // 64, 64]), [2])
        return right(multiply(_lowered("aten.round.default")(multiply(parts, 4.0)), 0.25), [1])

    return wrong


def _one_row(right: Any) -> Any:
    """The row after it for one index."""

    def wrong(table: Any, index: Any, *args: Any, **kwargs: Any) -> Any:
        is_one = _lowered("aten.eq.Tensor")(index, 417)
        other = _lowered("aten.add.Tensor")(index, 1)
        return right(table, _lowered("aten.where.self")(is_one, other, index), *args, **kwargs)

    return wrong


def _same_seed(right: Any) -> Any:
    return lambda seeds, _: right(seeds, 0)


def _fewer_iterations(graph: Any) -> None:
    """One iteration less."""
    module = graph.owning_module
    for name, body in module.named_modules():
        if "cond" in name:
            for node in body.graph.nodes:
                if str(node.target).startswith("aten.lt"):
                    node.args = (node.args[0], 6)
            body.recompile()


def _symint(results: list[Any], graph: Any) -> list[Any]:
    import operator

    import torch

    for n, result in enumerate(results):
        if isinstance(result, torch.fx.Node) and isinstance(result.meta.get("val"), torch.SymInt):
            with graph.inserting_before(graph.output_node()):
                wrong = graph.call_function(operator.add, (result, 1))
                wrong.meta["val"] = result.meta["val"] + 1
            results[n] = wrong
            return results
    raise RuntimeError("no symbolic size is returned")


def _no_accumulation(graph: Any) -> None:
    node = next(node for node in graph.nodes if "index_put" in str(node.target) or "index_add" in str(node.target))
    if "index_put" in str(node.target):
        node.args = (*node.args[:3], False)
    else:
        raise RuntimeError(str(node.target))


def _finite_mask(graph: Any) -> None:
    import math

    for node in graph.nodes:
        if any(isinstance(value, float) and math.isinf(value) for value in node.args):
            node.args = tuple(-2.0 if isinstance(v, float) and math.isinf(v) else v for v in node.args)
            return
    raise RuntimeError("no infinity")


def _half_sum(graph: Any) -> None:
    """A sum near 2048 is rounded as float16 does, to even numbers."""
    node = _find(graph, "aten.sum.dim_IntList")
    readers = list(node.users)
    calls = (("aten.mul.Tensor", 0.5), ("aten.round.default",), ("aten.mul.Tensor", 2.0))
    wrong = _called(graph, node.next, node, calls)
    for reader in readers:
        reader.replace_input_with(node, wrong)


FAULTS: dict[str, Fault] = {
    # what is returned
    "outputs swapped by a pass": Fault("pair", _post(_results(_swap_results))),
    "outputs swapped by the wrapper": Fault("pair", _returned(lambda refs: [refs[1], refs[0]])),
    "one output returned twice": Fault("pair", _returned(lambda refs: [refs[0], refs[0]])),
    "outputs swapped beside random numbers": Fault("random", _returned(lambda refs: [refs[1], refs[0], refs[2]])),
    "an output transposed": Fault("square", _post(_wrong_result(0, ("aten.permute.default", [1, 0])))),
    "an output of another dtype": Fault(
        "pair", _post(_wrong_result(0, ("prims.convert_element_type.default", __import__("torch").float64)))
    ),
    "an output without its last row": Fault("pair", _post(_wrong_result(0, ("aten.slice.Tensor", 0, 0, 63)))),
    "an output in another shape": Fault("pair", _post(_wrong_result(0, ("aten.reshape.default", [32, 128])))),
    "a size that is one too large": Fault("dynamic", _post(_results(_symint))),
    "an output that should be zero": Fault("outputs", _post(_wrong_result(6, ("aten.add.Tensor", 1e-3)))),
    "a scalar": Fault("outputs", _post(_wrong_result(5, ("aten.mul.Tensor", 1.001)))),
    "an output that nothing reads": Fault("outputs", _post(_wrong_result(7, ("aten.mul.Tensor", 1.0002)))),
    # single elements
    "the last element of many": Fault("many", _elements((256, 512), (255, 511), 1.01)),
    "one column of many": Fault("many", _elements((256, 512), (None, 300), 1.001)),
    "small numbers beside large ones": Fault("columns", _elements((256, 64), (None, 7), 1.01)),
    "one element in bfloat16": Fault("half sum", _elements((128, 64), (5, 9), 1.5)),
    "a row for one index": Fault("table", _lowering("aten.embedding.default", _one_row)),
    # integers
    "integers beside bfloat16": Fault("half sum", _post(_wrong_result(1, ("aten.add.Tensor", 1)))),
    "booleans beside bfloat16": Fault("half sum", _post(_wrong_result(2, ("aten.logical_not.default",)))),
    "an index beside bfloat16": Fault("half sum", _post(_wrong_result(4, ("aten.sub.Tensor", 1)))),
    "float32 beside bfloat16": Fault("half sum", _post(_wrong_result(3, ("aten.mul.Tensor", 1.01)))),
    "division to zero": Fault("integers", _pass(JOINT, _instead("aten.div.Tensor_mode", ("aten.abs.default",)))),
    "bytes that do not wrap": Fault("bytes", _post(_wrong_result(0, ("aten.clamp_max.default", 254)))),
    "a conjugate left out": Fault("complex", _pass(JOINT, _bypassed("aten._conj.default"))),
    "indices of the least": Fault(
        "chosen", _lowering("aten.argmax.default", lambda _: _lowered("aten.argmin.default"))
    ),
    "indices in another order": Fault("chosen", _post(_wrong_result(1, ("prims.rev.default", [1])))),
    "indices of a sort": Fault("chosen", _post(_wrong_result(3, ("prims.rev.default", [1])))),
    # arithmetic
    "half precision in a sum, by a pass": Fault("sum", _pass(JOINT, _half_sum)),
    "half precision in a sum, by a lowering": Fault("sum", _lowering("aten.sum.dim_IntList", _partial_sums)),
    "a sum by one part in a thousand": Fault("sum", _post(_wrong_result(0, ("aten.mul.Tensor", 1.001)))),
    "a sum by two parts in a hundred thousand": Fault("sum", _post(_wrong_result(0, ("aten.mul.Tensor", 1.00002)))),
    "duplicates are not added": Fault("scatter", _pass(POST, _no_accumulation)),
    "a finite mask": Fault("masked", _pass(JOINT, _finite_mask)),
    "signs of zeros that torch 2.13 loses": Fault("signs of zeros", lambda: None),
    # weights
    "weights swapped by a pass": Fault("shared", _post(_swapped_weights)),
    "weights swapped in the package": Fault("shared", _constants(_swap_constants)),
    "weights swapped in the package, of a kernel": Fault("scaled", _constants(_swap_constants)),
    "weights rounded in the package": Fault("scaled", _constants(_round_constants)),
    "one weight wrong in the package": Fault("shared, bfloat16", _constants(_shift_constant)),
    # states
    "wrong from the second call on": Fault("state", _post(_wrong_result(2, ("aten.mul.Tensor", 1.0001)))),
    "a clone that torch 2.13 leaves out": Fault("state, cloned", lambda: None),
    "a state that stays": Fault("state", _post(_erased("aten.copy_.default"))),
    "a state that stays, and that nothing reads": Fault("counted", _post(_erased("aten.copy_.default"))),
    "NaN in a state": Fault(
        "counted", _pass(JOINT, _instead("aten.mean.dim", ("aten.sub.Scalar", 1e9), ("aten.log.default",)))
    ),
    "an input that stays": Fault("overwriting", _post(_erased("aten.copy_.default"))),
    "a limit that only the third call reaches": Fault("state", _post(_argument("aten.gt.Scalar", 1, 3))),
    # branches, loops
    "the other branch": Fault("branch", _post(_swapped_branches)),
    "an iteration too few": Fault("loop", _post(_fewer_iterations)),
    # beside random numbers
    "sigmoid beside random numbers": Fault("random", _post(_target("aten.tanh.default", "aten.sigmoid.default"))),
    "sigmoid before dropout": Fault("drop", _post(_target("aten.tanh.default", "aten.sigmoid.default"))),
    "one seed for two draws": Fault("random", _lowering("prims.inductor_lookup_seed.default", _same_seed)),
    "dropout keeps too many": Fault("drop", _post(_argument("aten.gt.Scalar", 1, 0.125, number=0))),
    "an LSTM in training": Fault("recurrent", _post(_wrong_result(0, ("aten.mul.Tensor", 1.01)))),
}

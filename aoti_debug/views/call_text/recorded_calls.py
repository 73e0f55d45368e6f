"""The launches of a run as calls, with the operators that a fused kernel holds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from aoti_debug.base.abi import Phase
from aoti_debug.base.frozen import dataclass
from aoti_debug.package.argument_values import Absent, Number, Tensor
from aoti_debug.package.manifest import Form, Manifest, OperatorSchema, Parameter, Role, Site
from aoti_debug.package.origins import own_nodes
from aoti_debug.package.program_graphs import Graph, Node, NodeKind, Reference, TensorType, nodes_in
from aoti_debug.runs.rundir.argument_statistics import Measurer
from aoti_debug.runs.rundir.formats.journal_records import LaunchKey
from aoti_debug.runs.rundir.launch import Argument, Launch, LaunchStatus
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.views.call_text.calls import Call, CallTensor, common_known_module, list_text

_DEFAULT = re.compile(r"(?P<name>\w+)=(?P<value>\[[^\]]*\]|[^,)\s]+)")
_WRITTEN = (Role.OUT,)


def operator_name(op: str) -> str:
    """The operator as eager calls it: "aten::addmm" of "aten.addmm.out", "aten::sort.stable" of "aten.sort.stable".

    An out variant has the name of the one that returns its results.
    """
    namespace, _, rest = op.replace("::", ".").partition(".")
    name, _, overload = rest.partition(".")
    overload = "" if overload in ("default", "out") else overload.removesuffix("_out")
    return f"{namespace}::{name}{'.' if overload else ''}{overload}"


def argument_texts(
    site: Site, schema: OperatorSchema | None, arguments: Sequence[Argument], tensor: Callable[[Argument], str]
) -> tuple[str, ...]:
    """The text of the arguments that an operator reads; such as have their default at the end are left out.

    Args:
        tensor: the text of a tensor.
    """
    given: dict[str, list[Argument]] = {}
    for argument in arguments:
        if argument.role not in _WRITTEN and argument.spec.form is not Form.OPAQUE:
            given.setdefault((argument.spec.param or argument.name).partition("[")[0], []).append(argument)
    if schema is None or given.keys().isdisjoint(parameter.name for parameter in schema.parameters):
        return tuple(_keyword(name, values, tensor) for name, values in given.items())
    constants = {operand.name: _constant(operand.value) for operand in site.operands}
    defaults = {match["name"]: match["value"] for match in _DEFAULT.finditer(schema.text.partition("->")[0])}
    positional: list[str] = []
    keywords: list[str] = []
    pending: list[str] = []  # positional arguments with their default, which count if another follows them
    for parameter in (p for p in schema.parameters if not p.out):
        text = _parameter(parameter, given, constants, tensor)
        default = defaults.get(parameter.name)
        is_default = text is None or (default is not None and _same(text, default))
        if parameter.keyword_only:
            keywords += [] if is_default else [f"{parameter.name}={text}"]
        elif is_default and default is not None:
            pending.append(text or default)
        else:
            positional += [*pending, text or "None"]
            pending = []
    return (*positional, *keywords)


def _parameter(
    parameter: Parameter,
    given: Mapping[str, Sequence[Argument]],
    constants: Mapping[str, str],
    tensor: Callable[[Argument], str],
) -> str | None:
    """The text of one argument; None if the call does not record it."""
    values = given.get(parameter.name)
    if not values:
        return constants.get(parameter.name)
    texts = [_text(value, tensor) for value in values]
    if parameter.type == "bool" and texts[0] in ("0", "1"):
        return str(texts[0] == "1")
    return list_text(texts) if _is_list(values) else texts[0]


def _keyword(name: str, values: Sequence[Argument], tensor: Callable[[Argument], str]) -> str:
    texts = [_text(value, tensor) for value in values]
    text = list_text(texts) if _is_list(values) else texts[0]
    return text if values[0].tensor is not None else f"{name}={text}"


def _is_list(values: Sequence[Argument]) -> bool:
    return len(values) > 1 or values[0].spec.param.endswith("]")


def _text(argument: Argument, tensor: Callable[[Argument], str]) -> str:
    if argument.layout is not None:
        return tensor(argument)
    value = argument.before if isinstance(argument.before, Number) else argument.after
    if isinstance(value, Number):
        return str(value.value)
    return repr(argument.spec.text.strip('"')) if value is Absent.TEXT else "None"


def _constant(value: str) -> str:
    """The value of an operand as torch.export writes it: {"as_float": 1.5} is 1.5."""
    data: Any = json.loads(value)
    if isinstance(data, Mapping) and len(data) == 1:
        (tag, data), *_ = data.items()
        data = None if tag == "as_none" else data
    return repr(data)


def _same(text: str, default: str) -> bool:
    """True if a value is the default, also if one is an integer and the other a float."""
    if text == default:
        return True
    try:
        return float(text) == float(default)
    except ValueError:
        return False


def number_texts(arguments: Sequence[Argument]) -> Iterator[str]:
    """The numbers that a kernel gets: "xnumel=4096"."""
    for argument in arguments:
        if isinstance(argument.before, Number) and argument.spec.form is not Form.OPAQUE:
            yield f"{argument.name}={argument.before.value}"


class TensorNumbers:
    """Numbers in the order in which tensors are first named."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._written: dict[tuple[int, int], int] = {}  # (address, elements) -> number
        self._next = 0

    def __contains__(self, name: str) -> bool:
        return name in self._numbers

    def id(self, name: str) -> str:
        """The number of a variable; a new one if it has none yet."""
        if name not in self._numbers:
            self._numbers[name] = self._next
            self._next += 1
        return f"${self._numbers[name]}"

    def read(self, name: str, address: int, numel: int) -> str:
        """The number of a variable that is read: that of the tensor written there, of which it may be a view."""
        number = self._written.get((address, numel))
        return self.id(name) if name in self._numbers or number is None else f"${number}"

    def written(self, name: str, address: int, numel: int) -> str:
        """The number of a variable that is written."""
        id_ = self.id(name)
        self._written[address, numel] = self._numbers[name]
        return id_


_READS = (Role.IN, Role.INOUT, Role.UNKNOWN)


@dataclass(frozen=True)
class _SiteOperators:
    """The operators of a launch site, in their order, and the variables that hold their values."""

    graph: Graph
    nodes: tuple[Node, ...]
    variables: tuple[str, ...]


class FusedOperators:
    """Tells the operators of launch sites.

    Args:
        reference: None if the package holds no graph.
    """

    def __init__(self, manifest: Manifest, reference: Reference | None) -> None:
        self._manifest = manifest
        self._reference = reference
        self._weights = {constant.fqn or constant.name: constant.name for constant in manifest.constants}
        self._operators: dict[int, _SiteOperators | None] = {}  # by site
        self._variables: dict[tuple[str, str], dict[str, str]] = {}  # node -> variable, by name and function of a graph
        self._worded: dict[tuple[int, tuple[str, ...]], tuple[Call, ...]] = {}  # by site and ids of its variables

    def of_site(self, site: Site, numbers: TensorNumbers) -> tuple[Call, ...]:
        """The operators of a site in the order of the graph; () if they are not known.

        Args:
            numbers: of the tensors that launches have named so far.
        """
        if site.id not in self._operators:
            self._operators[site.id] = self._of_graph(site)
        found = self._operators[site.id]
        if found is None:
            return ()
        ids = tuple(numbers.id(name) if name in numbers else "" for name in found.variables)
        if (site.id, ids) not in self._worded:
            words = _Words(found.graph, self._variables_of(found.graph), numbers)
            tells_module = len(site.provenance.modules) > 1
            self._worded[site.id, ids] = tuple(words.call(node, tells_module=tells_module) for node in found.nodes)
        return self._worded[site.id, ids]

    def _of_graph(self, site: Site) -> _SiteOperators | None:
        graph = None if self._reference is None else self._reference.graph(site.subgraph, site.function)
        if graph is None:
            return None
        names = graph.sorted(name for name in own_nodes(site, self._manifest.sites) if name in graph.by_name)
        called = (graph.by_name[name] for name in names)
        nodes = tuple(node for node in called if node.kind is NodeKind.CALL and not node.is_member)
        named = {name for node in nodes for name in (node.name, *nodes_in([node.args, node.kwargs]))}
        variables = self._variables_of(graph)
        return _SiteOperators(graph, nodes, tuple(sorted({variables[name] for name in named})))

    def _variables_of(self, graph: Graph) -> Mapping[str, str]:
        """The variable that holds the value of each node, if one does."""
        key = (graph.name, graph.function)
        if key not in self._variables:
            buffers = {node: buffer for buffer, node in graph.held.items()}
            self._variables[key] = {node.name: self._variable(graph, node, buffers) for node in graph.nodes}
        return self._variables[key]

    def _variable(self, graph: Graph, node: Node, buffers: Mapping[str, str]) -> str:
        weight = self._weights.get(node.target, "") if node.kind is NodeKind.WEIGHT else ""
        return weight or buffers.get(node.name, f"{graph.name}_{node.name}" if graph.name else node.name)


class _Words:
    """The text of the nodes of a graph."""

    def __init__(self, graph: Graph, variables: Mapping[str, str], numbers: TensorNumbers) -> None:
        self._graph = graph
        self._variables = variables
        self._numbers = numbers

    def call(self, node: Node, *, tells_module: bool) -> Call:
        arguments = [self._text(item) for item in node.args]
        arguments += [f"{name}={self._text(item)}" for name, item in node.kwargs.items()]
        several = len(node.types) > 1
        outputs = tuple(
            self._tensor(node.name, f"%{node.name}{f'[{index}]' if several else ''}", type_)
            for index, type_ in enumerate(node.types)
            if type_ is not None
        )
        target = node.target
        name = operator_name(target) if target.count(".") == 2 else target
        note = node.module if tells_module else ""  # of a kernel whose operators come from several ones
        return Call(name, tuple(arguments), tuple(map(str, outputs)), node.module, outputs, note)

    def _text(self, value: Any) -> str:
        if isinstance(value, list | tuple):
            return list_text([self._text(item) for item in value])
        if not isinstance(value, Mapping):
            return repr(value)
        ((kind, content),) = value.items()
        if kind == "node":
            return self._node(content)
        if isinstance(content, Mapping):
            return f"{{{', '.join(f'{name}: {self._text(item)}' for name, item in content.items())}}}"
        return self._text(content) if isinstance(content, list | tuple) else str(content)

    def _node(self, name: str) -> str:
        node = self._graph.by_name[name]
        if node.is_member:
            origin, index = node.args[0]["node"], node.args[1]
            return str(self._tensor(name, f"%{origin}[{index}]", node.types[0] if node.types else None))
        if not node.types:
            return node.size or f"%{name}"
        return str(self._tensor(name, f"%{name}", node.types[0]))

    def _tensor(self, name: str, otherwise: str, type_: TensorType | None) -> CallTensor:
        """A tensor under the number of the variable that holds it, if a launch has named that."""
        variable = self._variables[name]
        id_ = self._numbers.id(variable) if variable in self._numbers else otherwise
        return CallTensor(id_, "", ()) if type_ is None else CallTensor(id_, type_.dtype, type_.shape)


class RecordedCalls:
    """Words the launches of one call of the model, in their order.

    Args:
        reference: the graph of the package; None if it holds none.
        hashes: the text of tensors contains the hashes of their bytes.
        measurer: measures the tensors for conditions; None if none are asked for.
    """

    def __init__(self, run: RunDir, reference: Reference | None, measurer: Measurer | None, *, hashes: bool) -> None:
        self._run = run
        self._hashes = hashes
        self._measurer = measurer
        self._fused = FusedOperators(run.manifest, reference)
        known = {path for site in run.manifest.sites for path in site.provenance.modules}
        self._modules = {site.id: common_known_module(site.provenance.modules, known) for site in run.manifest.sites}

    def calls(self, launches: Iterable[Launch], wanted: Collection[LaunchKey]) -> Iterator[Call]:
        """Yields a call for each wanted launch; the others only number their tensors.

        Args:
            launches: all of one call of the model.
        """
        numbers = TensorNumbers()
        for launch in launches:
            if launch.key in wanted:
                yield self._call(launch, numbers)
            else:
                for phase, arguments in _phased(*_tensors(launch)):
                    for argument in arguments:
                        _number(argument, phase, numbers)

    def _call(self, launch: Launch, numbers: TensorNumbers) -> Call:
        site = launch.site
        read, written = _tensors(launch)
        tensors = {
            (a.slot, phase): self._tensor(a, phase, numbers) for phase, args in _phased(read, written) for a in args
        }
        if site.op:
            schema = self._run.manifest.operator(site.op)
            arguments = argument_texts(
                site, schema, launch.args, lambda a: str(tensors.get((a.slot, Phase.BEFORE)) or "None")
            )
        else:
            arguments = (*(str(tensors[a.slot, Phase.BEFORE]) for a in read), *number_texts(launch.args))
        operators = () if site.op else self._fused.of_site(site, numbers)
        note = launch.id if launch.status is LaunchStatus.RETURNED else f"{launch.id}, {launch.status.value}"
        note += f", replay {launch.replay}" if launch.replay is not None else ""
        return Call(
            operator=operator_name(site.op) if site.op else site.kernel,
            arguments=arguments,
            outputs=tuple(dict.fromkeys(str(tensors[a.slot, Phase.AFTER]) for a in written)),
            module=self._modules[site.id],
            tensors=tuple(tensors.values()),
            note=note,
            operators=operators,
        )

    def _tensor(self, argument: Argument, phase: Phase, numbers: TensorNumbers) -> CallTensor:
        layout = argument.layout
        assert layout is not None
        recorded, saved = argument.stats.get(phase), argument.files.get(phase)
        hash_ = ""
        if self._hashes and recorded is not None and recorded.hash is not None:
            hash_ = f"{recorded.hash:016x}"
        elif self._hashes and saved is not None and saved.path:
            hash_ = f"{saved.hash[0]:016x}"
        statistics = None if self._measurer is None else self._measurer.measure(argument, phase).statistics
        id_ = _number(argument, phase, numbers)
        return CallTensor(id_, layout.dtype, tuple(map(str, layout.shape)), hash_, statistics)


def _tensors(launch: Launch) -> tuple[list[Argument], list[Argument]]:
    """The tensors that a launch reads, and those that it writes."""
    tensors = [argument for argument in launch.args if argument.layout is not None]
    return [a for a in tensors if a.role in _READS], [a for a in tensors if a.written]


def _number(argument: Argument, phase: Phase, numbers: TensorNumbers) -> str:
    value = argument.before if phase is Phase.BEFORE else argument.after
    if not isinstance(value, Tensor):
        return numbers.id(argument.name)
    name_tensor = numbers.read if phase is Phase.BEFORE else numbers.written
    return name_tensor(argument.name, value.data_ptr, value.layout.numel)


def _phased(read: list[Argument], written: list[Argument]) -> tuple[tuple[Phase, list[Argument]], ...]:
    return (Phase.BEFORE, read), (Phase.AFTER, written)

"""Builds a program with other settings or decompositions until a sample has the same bits alone and among others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

from aoti_debug.base import wording
from aoti_debug.base.errors import AotiDebugError, TargetError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.processes.child_process import sharing_search_path
from aoti_debug.base.machine.steps import StepListener, Steps
from aoti_debug.compare.bisect import build_changes
from aoti_debug.compare.bisect.build_changes import SettingChange
from aoti_debug.compare.invariance.invariance import InvarianceOptions, invariance
from aoti_debug.compare.invariance.varying_launches import Invariance
from aoti_debug.instrument.frontend.protocol.caller_settings import has_setting
from aoti_debug.package.manifest import Site
from aoti_debug.package.origins import is_users_kernel
from aoti_debug.package.program_graphs import operator_name
from aoti_debug.runs.run.timed_pairs import PAIRS, PairedTimes, TimedPackages, time_calls

_FOLDER = "remedies"
_MOST = 6  # builds of one program
_PRODUCTS = frozenset({"addmm", "mm", "bmm", "baddbmm", "linear", "_addmm_activation", "_linear_pointwise"})
_CONVOLUTIONS = frozenset({"convolution", "_convolution_pointwise"})
_ATTENTION = frozenset(
    f"_scaled_dot_product_{kind}"
    for kind in ("efficient_attention", "flash_attention", "flash_attention_for_cpu", "cudnn_attention")
)
_HEADER = '''"""Decompositions that may give a sample the same bits alone and among others: a module for --import."""

import torch
import torch._inductor.lowering  # its fallbacks are registered before decompositions of the same operators
from torch._inductor.decomposition import decompositions
from torch.fx.experimental.symbolic_shapes import statically_known_true

aten = torch.ops.aten
'''
_PADDED = '''

def padded(operator, place, rows):
    """Calls an operator with more rows of zeros in the argument at a place, and drops their results."""
    inside = []

    def decomposition(*args, **kwargs):
        if inside or (place and args[0].dim() > 1):
            return NotImplemented  # the operator itself, or rows of its own in another argument
        x = args[place]
        more = torch.cat([x, x.new_zeros(rows, *x.shape[1:])])
        inside.append(operator)
        try:
            result = operator(*args[:place], more, *args[place + 1 :], **kwargs)
        finally:
            inside.pop()
        return result[: x.shape[0]]

    decompositions[operator] = decomposition
'''
_GENERATED = '''

def product(x, y):
    """A matrix product as a sum, which becomes a generated kernel."""
    return (x.unsqueeze(-1) * y.unsqueeze(-3)).sum(-2)


def added(bias, x, y, *, beta=1, alpha=1):
    return beta * bias + alpha * product(x, y)


decompositions[aten.mm.default] = decompositions[aten.bmm.default] = product
decompositions[aten.addmm.default] = decompositions[aten.baddbmm.default] = added
'''
_ATTENTION_CODE = '''
efficient = aten._scaled_dot_product_efficient_attention.default


def decomposed_attention(operator):
    """Has attention computed as products and a softmax, with the strides that the operator's result has."""
    names = [argument.name for argument in operator._schema.arguments]

    def decomposition(*args, **kwargs):
        given = {**dict(zip(names, args)), **kwargs}
        if given.get("dropout_p") or given.get("compute_log_sumexp"):
            return NotImplemented
        query, key = given["query"], given["key"]
        output = aten._scaled_dot_product_attention_math.default(
            query,
            key,
            given["value"],
            attn_mask=given.get("attn_mask", given.get("attn_bias")),
            is_causal=given.get("is_causal", False),
            scale=given.get("scale"),
            enable_gqa=query.size(1) != key.size(1),
        )[0]
        is_by_rows = operator is efficient or statically_known_true(query.stride(1) < query.stride(2))
        output = output.transpose(1, 2).contiguous().transpose(1, 2) if is_by_rows else output.contiguous()
        sizes = {"max_q": query.size(2), "max_k": key.size(2)}  # its other results are of training
        return output, *(sizes.get(result.name) for result in operator._schema.returns[1:])

    decompositions[operator] = decomposition


for operator in (
    efficient,
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_flash_attention_for_cpu.default,
    aten._scaled_dot_product_cudnn_attention.default,
):
    decomposed_attention(operator)
'''


@dataclass(frozen=True)
class Remedy:
    """A change of the build with which a sample may have the same bits alone and among others.

    Attributes:
        settings: of Inductor.
        code: parts of a module for `--import`, which register decompositions; () for none.
        what: what these do, "convolutions with 1 more row of zeros".
    """

    settings: tuple[SettingChange, ...] = ()
    code: tuple[str, ...] = ()
    what: str = ""

    def write(self, folder: Path, number: int) -> str:
        """Writes the module and returns its name; "" without code."""
        if not self.code:
            return ""
        folder.mkdir(exist_ok=True)
        name = f"keep_bits_{number}"
        (folder / f"{name}.py").write_text("".join((_HEADER, *self.code)))
        return name


def _joined(parts: Sequence[Remedy]) -> Remedy:
    return Remedy(
        settings=tuple(itertools.chain.from_iterable(part.settings for part in parts)),
        code=tuple(dict.fromkeys(itertools.chain.from_iterable(part.code for part in parts))),
        what=", ".join(part.what for part in parts if part.what),
    )


def _settings(what: str, **values: Any) -> Remedy:
    return Remedy(tuple(SettingChange(key.replace("__", "."), value, what) for key, value in values.items()))


_TEMPLATE = {
    "cpu": _settings(
        "matrix products by a template", freezing=True, max_autotune_gemm=True, max_autotune_gemm_backends="CPP"
    ),
    "cuda": _settings("matrix products by a template", max_autotune_gemm=True, max_autotune_gemm_backends="TRITON"),
}
_OF_PRODUCTS = (
    Remedy(
        code=(
            _PADDED,
            "\n\npadded(aten.addmm.default, 1, 11)\n",
            "padded(aten.mm.default, 0, 11)\n",
        ),
        what="matrix products with 11 more rows of zeros",
    ),
    Remedy(code=(_GENERATED,), what="matrix products as sums in generated kernels"),
)
_OF_CONVOLUTIONS = {
    "cpu": (),
    "cuda": (_settings("convolutions by a template", max_autotune=True, max_autotune_conv_backends="TRITON"),),
}
_PADDED_CONVOLUTION = Remedy(
    code=(_PADDED, "\n\npadded(aten.convolution.default, 0, 1)\n"), what="convolutions with 1 more sample of zeros"
)
_OF_ATTENTION = Remedy(code=(_GENERATED, _ATTENTION_CODE), what="attention and matrix products in generated kernels")
_ATTENTION_BY_TEMPLATE = Remedy(_TEMPLATE["cuda"].settings, (_ATTENTION_CODE,), "attention as products by a template")
_OF_KERNELS = {
    "cpu": (_settings("the vector width", cpp__simdlen=1),),
    "cuda": (
        _settings("configurations that do not depend on the batch", batch_invariant=True),
        _settings("splitting of reductions", split_reductions=False),
        _settings("sums in eager's order", numerics="strict"),
    ),
}


@dataclass(frozen=True)
class RemedyTrial:
    """A build with a remedy, and what became of the sample.

    Attributes:
        found: the sample's bits in that build; None if it could not be built or run.
        failure: why it could not; "" if it could.
        price: how long calls of the largest batch take with it; None if it does not seem to work, or was not timed.
        module: the file with the code of the remedy; None without.
    """

    remedy: Remedy
    found: Invariance | None
    failure: str = ""
    price: PairedTimes | None = None
    module: Path | None = None

    @property
    def works(self) -> bool:
        """True if the sample has the same bits in every run."""
        return self.found is not None and self.seems_to_work and self.found.is_complete

    @property
    def seems_to_work(self) -> bool:
        """True if the sample has the same bits in every run as far as it is known."""
        return self.found is not None and not self.found.is_finding

    @property
    def lines(self) -> tuple[str, ...]:
        """The options to paste; the folder of the module has to be in PYTHONPATH."""
        imports = () if self.module is None else (f"--import {self.module.stem}",)
        return (*build_changes.lines_of(self.remedy.settings), *imports)

    @property
    def said(self) -> str:
        """The verdict on the build, or its failure."""
        return self.failure if self.found is None else self.found.verdict


def candidates(begins: Sequence[Site], device: str) -> Iterator[Remedy]:
    """Remedies that may make launches invariant: they replace them by others, fix their configuration, or fill them up.

    Args:
        begins: the sites of launches in which the sample's bits begin to differ.
        device: "cpu" or "cuda".
    """
    choices = [found for kind in dict.fromkeys(map(_kind, begins)) if (found := _remedies(kind, device))]
    for parts in itertools.product(*choices) if choices else ():
        yield _joined(parts)


def untried(begins: Sequence[Site], device: str) -> tuple[str, ...]:
    """The operators among launches for which no remedy is known."""
    return tuple(dict.fromkeys(site.op or site.kernel for site in begins if not _remedies(_kind(site), device)))


class _Kind(Enum):
    """The kind of a launch, which says what is tried."""

    PRODUCT = "product"
    CONVOLUTION = "convolution"
    ATTENTION = "attention"
    GENERATED = "generated"
    OTHER = "other"


def _kind(site: Site) -> _Kind:
    if is_users_kernel(site.provenance.post_grad_nodes):
        return _Kind.OTHER  # no setting of Inductor changes it
    if not site.op:
        return _Kind.GENERATED
    name = operator_name(site.op)
    of_names = {_Kind.PRODUCT: _PRODUCTS, _Kind.CONVOLUTION: _CONVOLUTIONS, _Kind.ATTENTION: _ATTENTION}
    return next((kind for kind, names in of_names.items() if name in names), _Kind.OTHER)


def _remedies(kind: _Kind, device: str) -> tuple[Remedy, ...]:
    match kind:
        case _Kind.PRODUCT:
            return (_TEMPLATE[device], *_OF_PRODUCTS)
        case _Kind.CONVOLUTION:
            return (*_OF_CONVOLUTIONS[device], _PADDED_CONVOLUTION)
        case _Kind.ATTENTION:
            return (_ATTENTION_BY_TEMPLATE, _OF_ATTENTION) if device == "cuda" else (_OF_ATTENTION,)
        case _Kind.GENERATED:
            return _OF_KERNELS[device]
        case _Kind.OTHER:
            return ()


def try_remedies(
    found: Invariance, options: InvarianceOptions, listener: StepListener | None = None
) -> tuple[RemedyTrial, ...]:
    """Builds the program with one candidate after the other until one seems to work; each is run as the program was.

    Args:
        found: the sample's bits in the program as it is.
        options: of the runs; the model is an exported program.

    Raises:
        UsageError: the directory cannot be made.
    """
    trials: list[RemedyTrial] = []
    folder = found.directory / _FOLDER
    remedies = filter(_is_there, candidates(found.begin_sites, found.alone.run.manifest.device))
    for number, remedy in enumerate(itertools.islice(remedies, _MOST), 1):
        trial = _tried(remedy, number, folder, options, listener)
        trials.append(trial)
        if trial.seems_to_work and trial.found is not None:
            packages, inputs = (found.package, trial.found.package), [found.runs[-1].run.inputs] * 2
            with sharing_search_path(folder):  # its package asks for the module
                price = _price(packages, inputs, options, trial.found.directory, Steps(listener))
            trials[-1] = replace(trial, price=price)
            break
    return tuple(trials)


def _is_there(remedy: Remedy) -> bool:
    """True if this torch has the settings of a remedy."""
    return all(has_setting(change.key) for change in remedy.settings)


def _tried(
    remedy: Remedy, number: int, folder: Path, options: InvarianceOptions, listener: StepListener | None
) -> RemedyTrial:
    name = remedy.write(folder, number)
    code = options.user_code
    chosen = replace(
        options,
        inductor_configs=build_changes.applied(remedy.settings, build_changes.Build(options.inductor_configs)).configs,
        out=folder,
        user_code=replace(code, imports=(*code.imports, name)) if name else code,
    )
    module = folder / f"{name}.py" if name else None
    try:
        with sharing_search_path(folder):
            return RemedyTrial(remedy, invariance(chosen, listener), module=module)
    except AotiDebugError as error:
        return RemedyTrial(remedy, None, wording.first_line(str(error)), module=module)


def padding_price(
    found: Invariance, options: InvarianceOptions, listener: StepListener | None = None
) -> PairedTimes | None:
    """Times of a call of a size that is enough, beside the smallest size; None if none is, or it has no time."""
    if not found.enough:
        return None
    least = min(found.enough, key=lambda run: run.surroundings.size)
    inputs = [found.alone.run.inputs, least.run.inputs]
    return _price((found.package, found.package), inputs, options, found.directory, Steps(listener))


def _price(
    packages: tuple[Path, Path],
    inputs: Sequence[Path | None],
    options: InvarianceOptions,
    folder: Path,
    steps: Steps,
) -> PairedTimes | None:
    """Times of two packages in pairs; None if they cannot be called again."""
    files = tuple(path for path in inputs if path is not None)
    if len(files) < len(packages):
        return None
    asked = TimedPackages(tuple(map(str, packages)), PAIRS, None, options.user_code, files)
    with steps.step("time calls in pairs") as note:
        try:
            before, after = time_calls(asked, folder)
        except TargetError as error:
            note.text = wording.first_line(str(error))
            return None
        note.text = wording.pluralize(len(before), "pair")
    return PairedTimes.of(before, after)

"""Programs after public reports of operators of one's own, sizes, threads, weights that are replaced, and hosts."""

from __future__ import annotations

import concurrent.futures
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from benchmarks.triage.public_reports import operators
from benchmarks.triage.public_reports.report import CLEAN, Example, Report
from benchmarks.triage.public_reports.undefined import BLAMES_TORCH


class Joined(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        rows, columns = a.shape[0], b.shape[0]
        x = operators.summed(a.repeat(2, 1), b.repeat(2, 1))
        return x, x.new_full((rows * 2, columns * 2), 0.5).cumsum(1)


class Chunks(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        whole = torch.ones(2, 24)
        operators.chunked_into(whole, [x, y])
        return (whole * whole).sum(1) + whole[0, 3]


class Optional(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x.exp()
        operators.counted_into(y, None)
        return y * 2


class Backwards(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        rows = torch.arange(1, -x.shape[0] - 2, -1)
        return x[rows] * 2  # culprit


class Captured(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.kept = [torch.zeros(4), torch.ones(4)]  # no buffers

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.instance_norm(x, self.kept[0], self.kept[1], use_input_stats=True)  # culprit


class Laid(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = torch.empty_strided((6, 5), (1, 6))
        y.copy_(x.cos())
        return y.t()


class Unrolled(nn.Module):
    def forward(self, scores: Tensor, steps: Tensor) -> tuple[Tensor, Tensor]:
        table = torch.zeros(4, 5)
        for step in range(3):
            best = torch.logsumexp(scores.unsqueeze(-1) + steps, 0)
            table[step + 1] = best
            scores = best - table[step].mean()
        return table, scores


class Neutral(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / 1.0


class Twice(nn.Module):
    def forward(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        scores = torch.matmul(q, k.transpose(-2, -1))
        return scores, scores * 0.35


class Itself(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + x


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.linear = nn.Linear(16, 16)
        self.register_buffer("shift", torch.tensor(0.25))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).relu() + self.shift


class Pick(nn.Module):
    def forward(self, x: Tensor, n: int) -> Tensor:
        return torch.cat([x[0], x[n]])  # culprit


def _joined() -> Example:
    torch.manual_seed(0)
    args = (torch.randn(4, 3), torch.randn(4, 3))
    return Example(Joined(), args, (torch.randn(6, 3), torch.randn(6, 3)), ({0: Dim("n")}, {0: Dim("n")}))


def _normal(module: nn.Module, *shapes: tuple[int, ...]) -> Example:
    torch.manual_seed(0)
    return Example(module, tuple(torch.randn(*shape) for shape in shapes))


def _half_given() -> Example:
    torch.manual_seed(0)
    x = torch.randn(3, 16)
    return Example(Layer(), (x,), (x.half(),))


def _pick() -> Example:
    torch.manual_seed(0)
    return Example(Pick(), (torch.randn(6, 5), 3), (torch.randn(6, 5), 9), (None, Dim.DYNAMIC))


def _backwards() -> Example:
    return _normal(Backwards(), (7, 4))


def _threaded(package: str, example: Example) -> Any:
    """Calls one model from four threads."""
    single_threaded, runners, device = False, 2, -1
    model = torch._C._aoti.AOTIModelPackageLoader(package, "model", single_threaded, runners, device)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda _: model.run(list(example.args)), range(24)))


def _replaced(package: str, example: Example) -> Any:
    """Overwrites the file of a package that is loaded by itself with other weights, and loads it once more."""
    model = torch._inductor.aoti_load_package(package)
    first = model(*example.args)
    copied = Path(package).with_suffix(".copy.pt2")
    shutil.copyfile(package, copied)
    shutil.copyfile(copied, package)
    again = torch._inductor.aoti_load_package(package)
    return [first, model(*example.args), again(*example.args)]


def _turned(package: str, example: Example) -> Any:
    """Gives the model weights that it uses itself, one of them in the order of columns."""
    model = torch._inductor.aoti_load_package(package)
    weights = {name: weight.detach().clone() for name, weight in example.module.named_parameters()}
    weights["linear.weight"] = weights["linear.weight"].t().contiguous().t()
    model.load_constants(weights, check_full_update=True, user_managed=True)
    return model(*example.args)


def _old_interface(package: str, example: Example) -> Any:
    """Compiles and loads by the functions that are deprecated."""
    library = torch._export.aot_compile(example.module, example.args)
    return torch._export.aot_load(library, "cpu")(*example.args)


REPORTS = (
    Report(153896, "two sizes that were equal in the export", _joined, "same", CLEAN, false=BLAMES_TORCH),
    Report(
        127821,
        "an operator writes a list of tensors into one",
        lambda: _normal(Chunks(), (2, 8), (2, 16)),
        "same",
        CLEAN,
        false=BLAMES_TORCH,
    ),
    Report(
        134835,
        "an operator that is given no tensor",
        lambda: _normal(Optional(), (4, 6)),
        "same",
        CLEAN,
        false=BLAMES_TORCH,
    ),
    Report(126691, "indices that count down too far", _backwards, "both raise", ("fault",), (r"aten\.index",)),
    Report(
        197096,
        "statistics that are no buffers are overwritten",
        lambda: _normal(Captured(), (2, 4, 9)),
        "no package",
        ("build_failure",),
        (r"instance_norm|batch_norm|lifted_tensor|kept",),
    ),
    Report(
        130394,
        "memory in the order of columns is filled",
        lambda: _normal(Laid(), (6, 5)),
        "same",
        CLEAN,
        false=BLAMES_TORCH,
    ),
    Report(
        96064, "an unrolled recursion", lambda: _normal(Unrolled(), (5,), (5, 5)), "same", CLEAN, false=BLAMES_TORCH
    ),
    Report(
        197893,
        "a quotient by 1 is the input itself",
        lambda: _normal(Neutral(), (4, 5)),
        "same",
        ("clean", "contract"),
        false=BLAMES_TORCH,
    ),
    Report(
        185405,
        "products that are returned and scaled, tuned",
        lambda: _normal(Twice(), (2, 3, 8, 4), (2, 3, 8, 4)),
        "",
        ("build_failure", "clean"),
        (r"aten\.(matmul|bmm|mul)",),
        configs={"max_autotune": True},
    ),
    Report(
        149475,
        "a layer whose input is added, tuned",
        lambda: _normal(Itself(), (48, 32)),
        "same",
        ("clean",),
        configs={"max_autotune": True},
        false=BLAMES_TORCH,
    ),
    Report(
        141865,
        "float16 for a model of float32",
        _half_given,
        "both raise",
        ("contract", "fault"),
        (r"input 0 .*float16",),
        command="compiled",
    ),
    Report(
        183769,
        "a row that there is not, by a number",
        _pick,
        "no package",
        ("build_failure",),
        (r"aten\.select|x\[n\]",),
    ),
    Report(
        144459,
        "one model in four threads",
        lambda: _normal(Layer(), (3, 16)),
        "same",
        CLEAN,
        command="script",
        drive=_threaded,
        configs={"aot_inductor.use_runtime_constant_folding": True},
    ),
    Report(
        123280,
        "the file of a package is overwritten while it is loaded",
        lambda: _normal(Layer(), (3, 16)),
        "same",
        CLEAN,
        command="script",
        drive=_replaced,
    ),
    Report(
        0,
        "a weight in the order of columns",
        lambda: _normal(Layer(), (3, 16)),
        "same",
        ("contract", "wrong_value", "differs"),
        (r"linear.weight.*stride|linear.weight",),
        command="script",
        part="-turned-weight",
        drive=_turned,
    ),
    Report(
        172739,
        "a library of the old interface",
        lambda: _normal(Layer(), (3, 16)),
        "same",
        ("clean", "incomplete"),
        command="script",
        drive=_old_interface,
    ),
)

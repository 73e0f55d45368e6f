"""Programs after public reports of what operators accept, and of numbers at the edge of what they can be."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.triage.public_reports.report import CHANGED, CLEAN, REFUSED, Example, Report
from benchmarks.triage.public_reports.undefined import BLAMES_TORCH

_WHOLE = (True, True)  # ceil_mode, count_include_pad
_FLOOR = (False,)  # ceil_mode


class Shift(nn.Module):
    def forward(self, x: Tensor, by: Tensor) -> Tensor:
        return torch.bitwise_left_shift(x, by)  # culprit


class Powers(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cos(x.pow(5))


class Condition(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.linalg.cond(torch.arctan(x))


class Threshold(nn.Module):
    def forward(self, scores: Tensor) -> Tensor:
        return scores > 0.2


class Terms(nn.Module):
    def forward(self, c: Tensor, y: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
        x = c[..., 16]
        positive = functional.softplus(x) + 0.0001
        rates = functional.softplus(y) + 0.0001
        gamma = torch.special.gammaln(positive + alpha.view(1, -1))
        error = torch.special.erf(x * beta.view(1, -1))
        return torch.stack([gamma, error, torch.special.xlogy(positive, rates)], dim=-1)


class Padded(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return functional.pad(x, (1, 1, 1, 1), value=float("nan"))  # culprit


class Least(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.min(b, a.argmax(3)).min(3).values


class Nothing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        at = torch.empty_strided((0, 0), (1, 1), dtype=torch.int64)
        return torch.gather(torch.float_power(x, 0.5), -2, at)


class Attention(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # culprit


class ByHand(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        scores = torch.matmul(q, k.transpose(-2, -1)).div(4.0)
        weights = scores.masked_fill(mask.logical_not(), -torch.inf).softmax(-1)  # culprit
        return torch.matmul(weights, v)


class Smooth(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return functional.smooth_l1_loss(a, b, beta=-1.0)  # culprit


class Running(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.logcumsumexp(x, 0)  # culprit


class Ignored(nn.Module):
    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(x, target, ignore_index=-100)


class WithLogits(nn.Module):
    def forward(self, x: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(x, target, weight)


class Pooled(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        one = functional.max_pool2d(x, 1, stride=2, ceil_mode=True)
        two, at = functional.max_pool2d(x, (3, 2), (2, 1), (1, 1), (1, 2), return_indices=True)
        return one, two + at


class PoolGradient(nn.Module):
    def forward(self, grad: Tensor, x: Tensor) -> Tensor:
        return torch.ops.aten.avg_pool2d_backward(grad, x, [3, 3], [3, 3], [0, 0], *_WHOLE, None)  # culprit


class Equal(nn.Module):
    def forward(self, grad: Tensor, x: Tensor) -> Tensor:
        _, at = functional.max_pool2d(x, 3, 2, 1, return_indices=True)
        return torch.ops.aten.max_pool2d_with_indices_backward(grad, x, [3, 3], [2, 2], [1, 1], [1, 1], *_FLOOR, at)


class Best(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        values, at = torch.topk(x, 3, dim=1)
        return values, at


class Clamped(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.clamp_min(x, 4.35294e26)  # culprit


class Shrunk(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return functional.hardshrink(x) + functional.softshrink(x)


class Mean(nn.Module):
    def forward(self, x: Tensor, at: Tensor, source: Tensor) -> Tensor:
        return torch.scatter_reduce(x, 0, at, source, "mean", include_self=False)


class ToFloat8(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x * 2).to(torch.float8_e4m3fn)


class FromBool(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.to(torch.float8_e4m3fn)


class Next(nn.Module):
    def forward(self, x: Tensor, to: Tensor) -> Tensor:
        return torch.nextafter(x, to)


class Tails(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.special.log_ndtr(x).reciprocal()  # culprit


class Tiny(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2.0 ** (-127 + 3)


class Tangent(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        t = torch.tan(x)
        return torch.sin(t - t * 0.5)


def _normal(module: nn.Module, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Example:
    torch.manual_seed(0)
    return Example(module, tuple(torch.randn(*shape).to(dtype) for shape in shapes))


def _shift() -> Example:
    return Example(Shift(), (torch.tensor([1000, -64, 30, 7]), torch.tensor([63, 64, 65, 1])))


def _terms() -> Example:
    torch.manual_seed(0)
    return Example(Terms(), (torch.randn(4, 8, 33), torch.randn(4, 8), torch.rand(8), torch.randn(8)))


def _least() -> Example:
    torch.manual_seed(0)
    return Example(Least(), (torch.randint(9, (3, 4, 2, 1)).int(), torch.randint(9, (2, 2, 1, 4, 1)).int()))


def _hidden_nan() -> Example:
    q, k, v = (torch.arange(8.0).reshape(1, 2, 4) for _ in range(3))
    bad = k.clone()
    bad[0, 1, 0] = torch.nan
    mask = torch.tensor([[[True, False], [True, False]]])
    return Example(Attention(), (q, k, v, mask), (q, bad, v, mask))


def _nan_query() -> Example:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, 16, 8) for _ in range(3))
    mask = torch.zeros(16, 16)
    bad = q.clone()
    bad[1, 2, 3, 4] = torch.nan
    return Example(Attention(), (q, k, v, mask), (bad, k, v, mask))


def _no_mask() -> Example:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, 16, 16) for _ in range(3))
    mask = torch.ones(2, 1, 16, 16, dtype=torch.bool)
    bad = mask.clone()
    bad[1, :, 5] = False
    return Example(ByHand(), (q, k, v, mask), (q, k, v, bad))


def _ignored() -> Example:
    torch.manual_seed(0)
    return Example(Ignored(), (torch.randn(6, 5), torch.tensor([1, -100, 4, 0, -100, 2])))


def _with_logits() -> Example:
    torch.manual_seed(0)
    x, target = torch.randn(4, 5, 6), torch.rand(4, 5, 6)
    return Example(WithLogits(), (x.bfloat16(), target.bfloat16(), torch.randn(6)))


def _equal() -> Example:
    torch.manual_seed(0)
    return Example(Equal(), (torch.randn(1, 2, 4, 4), torch.randint(0, 3, (1, 2, 7, 7)).float()))


def _best() -> Example:
    torch.manual_seed(0)
    return Example(Best(), (torch.randint(0, 3, (5, 9)),))


def _shrunk() -> Example:
    x = torch.linspace(-2, 2, 17)
    return Example(Shrunk(), (x,), (x.masked_fill(torch.arange(17) % 3 == 0, torch.nan),))


def _mean() -> Example:
    torch.manual_seed(0)
    return Example(Mean(), (torch.randn(4), torch.tensor([0, 0, 2, 0, 2, 3]), torch.randn(6)))


def _float8() -> Example:
    return Example(
        ToFloat8(), (torch.tensor([*range(-20, 20), 223.0, 224.5, 240.0, 300.0, -1000.0, 1e-4, 3e38, 0.01]),)
    )


def _next() -> Example:
    torch.manual_seed(0)
    x = torch.randn(33)
    return Example(Next(), (x, x + torch.randn(33)))


REPORTS = (
    Report(
        143566,
        "a shift to the left by 64 bits and more",
        _shift,
        "same",
        ("incomplete", *CHANGED),
        (r"aten\.bitwise_left_shift",),
    ),
    Report(
        98149,
        "powers of bytes wrap around before their cosine",
        lambda: Example(Powers(), (torch.arange(20, dtype=torch.uint8),)),
        "same",
        CLEAN,
        false=BLAMES_TORCH,
    ),
    Report(
        150114,
        "the condition number of a singular matrix",
        lambda: Example(Condition(), (torch.ones(2, 2),)),
        "differs",
        ("differs", "clean", "nonfinite"),
        (r"aten\.div|linalg",),
        false=BLAMES_TORCH,
    ),
    Report(
        128306,
        "a threshold that bfloat16 does not hold",
        lambda: Example(Threshold(), (torch.tensor([[0.1, 0.2002, 0.3, 0.4]]).bfloat16(),)),
        "same",
        CLEAN,
        false=BLAMES_TORCH,
    ),
    Report(185702, "terms of a slice are stacked", _terms, "same", CLEAN, false=BLAMES_TORCH),
    Report(
        100988,
        "a border of NaN",
        lambda: _normal(Padded(), (1, 3, 10, 10)),
        "nonfinite",
        ("nonfinite", *CLEAN),
        (r"constant_pad_nd",),
    ),
    Report(93380, "the least of places", _least, "same", CLEAN, false=BLAMES_TORCH),
    Report(
        188227,
        "a power of complex numbers, of which nothing is gathered",
        lambda: _normal(Nothing(), (3, 3), dtype=torch.complex64),
        "no package",
        ("build_failure",),
        (r"aten\.(pow|gather)",),
    ),
    Report(
        101967,
        "a NaN in a key that is masked",
        _hidden_nan,
        "nonfinite",
        ("nonfinite",),
        (r"scaled_dot_product",),
        ("k[0, 1, 0]",),
    ),
    Report(
        141128,
        "a NaN in a query",
        _nan_query,
        "nonfinite",
        ("nonfinite",),
        (r"scaled_dot_product",),
        ("q[1, 2, 3, 4]",),
    ),
    Report(
        100318,
        "attention by hand with a row without keys",
        _no_mask,
        "nonfinite",
        ("nonfinite", *CHANGED),
        (r"softmax|scaled_dot_product|sfdp",),
        ("mask",),
    ),
    Report(
        194501,
        "a loss with a negative limit",
        lambda: _normal(Smooth(), (5,), (5,)),
        "eager raises",
        REFUSED,
        (r"smooth_l1_loss",),
    ),
    Report(
        197807,
        "a running sum of a byte without dimensions",
        lambda: Example(Running(), (torch.tensor(3, dtype=torch.uint8),)),
        "eager raises",
        (*REFUSED, "incomplete"),
        (r"logcumsumexp",),
    ),
    Report(95794, "targets that are ignored", _ignored, "same", CLEAN, false=BLAMES_TORCH),
    Report(171282, "a loss in bfloat16 with weights in float32", _with_logits, "same", ("clean", "contract", *CHANGED)),
    Report(
        94775, "windows that begin outside", lambda: _normal(Pooled(), (2, 2, 6, 7)), "same", CLEAN, false=BLAMES_TORCH
    ),
    Report(
        198119,
        "the gradient of a window that reaches over the end",
        lambda: _normal(PoolGradient(), (1, 2, 3, 3), (1, 2, 8, 8)),
        "differs",
        CHANGED,
        (r"aten\.avg_pool2d_backward",),
    ),
    Report(160242, "the gradient of the largest of equal numbers", _equal, "same", CLEAN, false=BLAMES_TORCH),
    Report(127196, "the best of equal numbers", _best, "same", CLEAN, false=BLAMES_TORCH),
    Report(
        153187,
        "a limit that float16 does not hold",
        lambda: _normal(Clamped(), (3, 4), dtype=torch.float16),
        "eager raises",
        (*REFUSED, "nonfinite"),
        (r"aten\.clamp_min",),
    ),
    Report(81138, "a NaN is shrunk", _shrunk, "nonfinite", ("nonfinite",), elements=("x",)),
    Report(142330, "a mean of what is scattered", _mean, "same", CLEAN, false=BLAMES_TORCH),
    Report(
        178817, "numbers that float8 does not hold", _float8, "same", ("clean", "incomplete", "nonfinite", *CHANGED)
    ),
    Report(
        178095,
        "truth values as float8",
        lambda: Example(FromBool(), (torch.ones(64, dtype=torch.bool),)),
        "same",
        CLEAN,
        false=BLAMES_TORCH,
    ),
    Report(126876, "the next number", _next, "same", CLEAN, false=BLAMES_TORCH),
    Report(
        187336,
        "the logarithm of a probability of 1 is a zero with a sign",
        lambda: Example(Tails(), (torch.linspace(-10, 60, 36),)),
        "nonfinite",
        ("nonfinite",),
        (r"log_ndtr",),
    ),
    Report(126848, "subnormal numbers", lambda: _normal(Tiny(), (40,)), "same", CLEAN, false=BLAMES_TORCH),
    Report(
        160730,
        "the sine of a tangent in float16",
        lambda: Example(Tangent(), (torch.linspace(0, 10, 400).half(),)),
        "differs",
        ("clean", *CHANGED),
    ),
)

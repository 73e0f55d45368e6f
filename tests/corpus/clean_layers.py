"""Clean models made of ordinary layers: a triage that finds anything in them raises a false alarm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.export import Dim

from tests.corpus.case import CPU, Case, Example, Make


class Pictures(nn.Module):
    """Convolution, batch norm, max-pool (which pads with -inf), a transposed convolution, group norm."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.group = nn.GroupNorm(2, 4)

    def forward(self, x: Tensor) -> Tensor:
        small = F.max_pool2d(self.norm(self.down(x)).relu(), 3, stride=2, padding=1)
        return F.adaptive_avg_pool2d(self.group(self.up(small)), 1).flatten(1)


class Causal(nn.Module):
    """Attention with a causal mask of -inf."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(32, 96)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        hidden = torch.full((x.shape[1], x.shape[1]), float("-inf"), device=x.device).triu(1)
        return torch.softmax(q @ k.transpose(-1, -2) / 32**0.5 + hidden, -1) @ v


class BooleanMask(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
        scores = (q @ k.transpose(-1, -2)).masked_fill(~keep, float("-inf"))
        return torch.softmax(scores, -1) @ v


class DeadRowHandled(nn.Module):
    """A row that the mask empties: the NaN is meant to be replaced."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
        scores = (q @ k.transpose(-1, -2)).masked_fill(~keep, float("-inf"))
        weights = torch.softmax(scores, -1)
        return torch.where(keep.any(-1, keepdim=True), weights, 0.0) @ v


class MaskInput(nn.Module):
    """A mask of -inf that comes in as an argument."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return torch.softmax(q @ k.transpose(-1, -2) + mask, -1) @ v


class Fused(nn.Module):
    """scaled_dot_product_attention: plain, causal, with a boolean mask that empties a row."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Any:
        plain = F.scaled_dot_product_attention(q, k, v)
        causal = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return plain, causal, F.scaled_dot_product_attention(q, k, v, attn_mask=keep)


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, 32)
        layer = nn.TransformerEncoderLayer(32, nhead=4, dim_feedforward=64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=1, enable_nested_tensor=False)
        self.head = nn.Linear(32, 10)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.encoder(self.embedding(tokens)).mean(1)).log_softmax(-1)


class Recurrent(nn.Module):
    """An LSTM cell, step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(8, 16)

    def forward(self, x: Tensor) -> Tensor:
        h = c = x.new_zeros(x.shape[0], 16)
        for step in range(4):
            h, c = self.cell(x[:, step], (h, c))
        return h


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(50, 16, mode="max")

    def forward(self, ids: Tensor, offsets: Tensor) -> Tensor:
        return self.bag(ids, offsets).sigmoid()


class Mlp(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 8)).to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        return F.softmax(self.layers(x), -1)


class Dropped(nn.Module):
    """Random numbers: no two runs are alike."""

    def forward(self, x: Tensor) -> Any:
        return F.dropout(x, 0.3, training=True), torch.bernoulli(torch.full_like(x, 0.5)), torch.rand_like(x) + x


def seeded(device: str, *sizes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(1)
    return tuple(torch.randn(size, generator=generator).to(device, dtype) for size in sizes)


def of(module: Callable[[], nn.Module], *sizes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Make:
    def make(device: str) -> Example:
        torch.manual_seed(0)
        return Example(module().to(device).eval(), seeded(device, *sizes, dtype=dtype))

    return make


QKV = ((2, 4, 16, 16),) * 3


def masked(module: Callable[[], nn.Module], mask: Callable[[Tensor], Tensor]) -> Make:
    """Attention of 16 positions; the mask is made of the causal one, True where it keeps."""

    def make(device: str) -> Example:
        causal = torch.ones(16, 16, dtype=torch.bool, device=device).tril()
        return Example(module(), (*seeded(device, *QKV), mask(causal)))

    return make


def dead_row(keep: Tensor) -> Tensor:
    keep = keep.clone()
    keep[3] = False
    return keep


def as_numbers(keep: Tensor) -> Tensor:
    return torch.zeros(keep.shape, device=keep.device).masked_fill(~keep, float("-inf"))


def tokens(device: str) -> Example:
    torch.manual_seed(0)
    return Example(Transformer().to(device).eval(), (torch.arange(64, device=device).view(4, 16),))


def bag(device: str) -> Example:
    """The second bag is empty."""
    torch.manual_seed(0)
    ids, offsets = torch.arange(20, device=device), torch.tensor([0, 4, 4, 12], device=device)
    return Example(Bag().to(device), (ids, offsets))


def sizes(count: int) -> Make:
    """An MLP with a dynamic batch, run with another batch than it was exported with."""

    def make(device: str) -> Example:
        torch.manual_seed(0)
        model = Mlp(torch.float32).to(device).eval()
        dynamic = ({0: Dim("batch", min=0, max=64)},)
        return Example(model, (torch.ones(7, 16, device=device),), dynamic=dynamic, inputs=seeded(device, (count, 16)))

    return make


CASES = (
    Case("mlp", of(lambda: Mlp(torch.float32), (8, 16))),
    Case("mlp_half", of(lambda: Mlp(torch.float16), (8, 16), dtype=torch.float16)),
    Case("mlp_bfloat16", of(lambda: Mlp(torch.bfloat16), (8, 16), dtype=torch.bfloat16)),
    Case("mlp_dynamic", sizes(33)),
    Case("mlp_empty_batch", sizes(0)),
    Case("pictures", of(Pictures, (2, 3, 16, 16))),
    Case("attention_causal", of(Causal, (2, 16, 32))),
    Case("attention_boolean_mask", masked(BooleanMask, lambda keep: keep)),
    Case("attention_mask_input", masked(MaskInput, as_numbers)),
    Case("attention_dead_row_handled", masked(DeadRowHandled, dead_row)),
    Case("attention_fused", masked(Fused, dead_row)),
    Case("transformer", tokens),
    Case("recurrent", of(Recurrent, (4, 4, 8))),
    Case("embedding_bag", bag, devices=CPU),
    Case("random_numbers", of(Dropped, (8, 16)), not_compared="draws random numbers"),
    Case(
        "random_numbers_of_torch",
        of(Dropped, (8, 16)),
        configs={"fallback_random": True},
        not_compared="draws random numbers",
    ),
)

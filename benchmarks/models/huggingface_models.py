"""Hugging Face architectures with small random configurations, for benchmarks/comparison/compare.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.models.planted_models import Example

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
_TEXT = {**_SIZES, "vocab_size": 200}


class Plain(nn.Module):
    """A model with tensors in and the first tensor out."""

    def __init__(self, model: nn.Module, name: str) -> None:
        super().__init__()
        self.model = model
        self._name = name

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.model(**{self._name: x}, return_dict=False)[0]
        return result


def _plain(kind: str, config: str, name: str, **sizes: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import transformers

        settings = {"use_cache": False, **sizes}
        made = getattr(transformers, config)(**settings)
        made._attn_implementation = "eager" if kind in ("T5EncoderModel", "ConvNextModel") else "sdpa"
        return Plain(getattr(transformers, kind)(made), name)

    return make


def _tokens() -> tuple[Tensor, ...]:
    return (torch.randint(0, 200, (2, 16)),)


def _image(dtype: torch.dtype) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (torch.randn(2, 3, 32, 32).to(dtype),)


def architectures() -> dict[str, Example]:
    """The models by name, in each dtype; empty without `transformers`."""
    try:
        import transformers  # noqa: F401
    except ImportError:
        return {}
    text = {
        "bert": _plain("BertModel", "BertConfig", "input_ids", **_TEXT),
        "gpt2": _plain("GPT2Model", "GPT2Config", "input_ids", vocab_size=200, n_embd=64, n_layer=2, n_head=4),
        "llama": _plain("LlamaForCausalLM", "LlamaConfig", "input_ids", **_TEXT, num_key_value_heads=2),
        "qwen2": _plain("Qwen2Model", "Qwen2Config", "input_ids", **_TEXT, num_key_value_heads=2),
        "t5": _plain(
            "T5EncoderModel",
            "T5Config",
            "input_ids",
            vocab_size=200,
            d_model=64,
            d_kv=16,
            d_ff=128,
            num_layers=2,
            num_heads=4,
        ),
        "distilbert": _plain(
            "DistilBertModel",
            "DistilBertConfig",
            "input_ids",
            vocab_size=200,
            dim=64,
            n_layers=2,
            n_heads=4,
            hidden_dim=128,
        ),
    }
    images = {
        "vit": _plain("ViTModel", "ViTConfig", "pixel_values", **_SIZES, image_size=32, patch_size=8),
        "convnext": _plain(
            "ConvNextModel", "ConvNextConfig", "pixel_values", depths=[1, 1, 1, 1], hidden_sizes=[16, 24, 32, 48]
        ),
    }
    examples = {}
    for dtype_name, dtype in DTYPES.items():
        for name, module in text.items():
            examples[f"{name}_{dtype_name}"] = Example(module, _tokens, dtype)
        for name, module in images.items():
            examples[f"{name}_{dtype_name}"] = Example(module, _image(dtype), dtype)
    return examples

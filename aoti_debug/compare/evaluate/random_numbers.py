"""The random numbers that a generated kernel draws from a seed. Runs in a child process.

A kernel draws the number of an element from the seed and the element's row-major index in the random tensor: with
Philox 4x32-10, by the functions of torch/csrc/inductor/cpp_prefix.h on a CPU, by those of triton.language.random on a
GPU.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

LOOKUP = "prims.inductor_lookup_seed.default"
UNIFORM_OR_NORMAL = "prims.inductor_random.default"
INTEGER = "prims.inductor_randint.default"
DRAWN = (UNIFORM_OR_NORMAL, INTEGER)

_WORD = 0xFFFFFFFF
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_FACTORS = (0xD2511F53, 0xCD9E8D57)
_ROUNDS = 10
_SCALE = 4.6566127342e-10  # of a 31 bit integer to [0, 1)
_CHUNK = 1 << 16  # numbers at once: they stay in the cache of the processor
_KEPT = 2  # tensors of words that are kept, for the other arithmetics

Words = tuple["torch.Tensor", "torch.Tensor"]


def drawn(target: str, args: Sequence[Any], device: str, dtype: torch.dtype) -> torch.Tensor:
    """The result of an operator of DRAWN.

    Args:
        args: as in its call; the seed is a tensor.
        device: the device of the kernel, "cpu" or "cuda:0": it decides by which functions the numbers are drawn.
        dtype: in which normal numbers are computed: float32 as the kernel does, or float64.
    """
    size, seed = (args[2], args[3]) if target == INTEGER else (args[0], args[1])
    on_cpu = device.startswith("cpu")
    key = int(seed) & _WORD if on_cpu else int(seed)
    words = philox(key, math.prod(size), seed.device)
    if target == INTEGER:
        numbers = _integer(words, *args[:2])
    elif args[2] == "rand":
        numbers = _uniform_cpu(words[0]) if on_cpu else _uniform_triton(words[0])
    else:
        numbers = _normal_cpu(words, dtype) if on_cpu else _normal_triton(words, dtype)
    return numbers.reshape(size)


@functools.lru_cache(maxsize=_KEPT)
def philox(key: int, count: int, device: torch.device) -> Words:
    """The first two of the 32 bit words that Philox 4x32-10 makes of a 64 bit key and each counter from 0."""
    import torch

    first, second = (torch.empty(count, dtype=torch.int64, device=device) for _ in range(2))
    for begin in range(0, count, _CHUNK):
        end = min(begin + _CHUNK, count)
        first[begin:end], second[begin:end] = _words(key, torch.arange(begin, end, device=device))
    return first, second


def _words(key: int, counters: torch.Tensor) -> Words:
    import torch

    a, b, c, d = counters & _WORD, *(torch.zeros_like(counters) for _ in range(3))
    low, high = key & _WORD, key >> 32 & _WORD
    for _ in range(_ROUNDS):
        left, right = a * _FACTORS[0], c * _FACTORS[1]  # modulo 2⁶⁴, as signed numbers
        a, b = (right >> 32 & _WORD) ^ b ^ low, right & _WORD
        c, d = (left >> 32 & _WORD) ^ d ^ high, left & _WORD
        low, high = low + _KEY_STEPS[0] & _WORD, high + _KEY_STEPS[1] & _WORD
    return a, b


def _integer(words: Words, low: int, high: int) -> torch.Tensor:
    """`(first + second · 2³²) mod (high - low) + low`, unsigned."""
    import torch

    first, second = (word.cpu().numpy().astype("uint64") for word in words)
    result = (first | second << 32) % (high - low)
    return torch.from_numpy(result.astype("int64")).to(words[0].device) + low


def _uniform_cpu(word: torch.Tensor) -> torch.Tensor:
    return (word & 0x7FFFFFFF).float() * _SCALE


def _uniform_triton(word: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.where(word > 0x7FFFFFFF, ~word & _WORD, word).float() * _SCALE


def _normal_cpu(words: Words, dtype: torch.dtype) -> torch.Tensor:
    first, second = (1 - _uniform_cpu(word) for word in words)
    return ((-2.0 * first.to(dtype).log().double()).sqrt() * (2.0 * math.pi * second.double()).cos()).to(dtype)


def _normal_triton(words: Words, dtype: torch.dtype) -> torch.Tensor:
    first, second = (_uniform_triton(word) for word in words)
    return (-2.0 * first.clamp_min(1.0e-7).to(dtype).log()).sqrt() * (2.0 * math.pi * second.to(dtype)).cos()

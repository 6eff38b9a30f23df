"""Random numbers that belong to one request: a counter-based stream for each (seed, prompt, sample), a block a step.

They are made of integers alone, so that every device draws the same ones.
"""

from __future__ import annotations

import hashlib
import math

import torch

STREAM = "Gumbel-max; Philox4x32-10 keyed by SHA-256(seed|sample|prompt), counter (token // 4, step, 0, 0)"

_MASK = 0xFFFFFFFF
_ROUNDS = 10
_FEW = 16  # where fewer than one token in so many is wanted, they are drawn one by one and not in blocks of four

# The uniform numbers are (n + 1/2) / 2**32 with a whole n below 2**32; these are the ends of what is made of them.
SMALLEST, LARGEST = -math.log(33 * math.log(2)), -math.log(-math.log1p(-(2.0**-33)))


def stream_key(seed: int, prompt: str, sample: int) -> int:
    """Give the 64-bit key of the stream that draws the `sample`-th answer (from 0) to a prompt."""
    text = f"{seed}|{sample}|{prompt}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "little")


def halves(key: int) -> tuple[int, int]:
    """Give a key as the two 32-bit words that Philox takes, the lower one first."""
    return key & _MASK, key >> 32


def philox(counter: tuple[torch.Tensor, ...], key: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Compute Philox4x32-10: four random words of 32 bits for each counter of four words and key of two.

    Words are int64 tensors from 0 to 2**32 - 1, of shapes that broadcast. Source: Salmon et al. 2011, "Parallel random
    numbers: as easy as 1, 2, 3"; a product of two words wraps around in int64, and its bits are right all the same.
    """
    a, b, c, d = counter
    k, m = key
    for _ in range(_ROUNDS):
        ac, cd = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (cd >> 32 & _MASK) ^ b ^ k, cd & _MASK, (ac >> 32 & _MASK) ^ d ^ m, ac & _MASK
        k, m = k + 0x9E3779B9 & _MASK, m + 0xBB67AE85 & _MASK
    return a, b, c, d


def gumbel(key: torch.Tensor, step: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Draw standard Gumbel noise for the next token of some streams.

    Adding it to logits / T and taking the largest is an exact draw from softmax(logits / T), up to probabilities of
    2**-32 (Gumbel 1954; Maddison et al. 2014, "A* sampling").

    Args:
        key: int64 (rows, 2), as of `halves`.
        step: int64 (rows,), the number of the token.
        wanted: bool (rows, vocabulary), the tokens that need a number.

    Returns:
        float64 (float32 where the device has no more), (rows, vocabulary): -inf where none was wanted.
    """
    rows, size = wanted.shape
    device = wanted.device
    dtype, zero = wide(device), torch.zeros((), dtype=torch.int64, device=device)
    # to count them would make a GPU wait
    if device.type == "cpu" and int(wanted.sum()) * _FEW < wanted.numel():
        row, token = wanted.nonzero().T
        words = philox((token // 4, step[row], zero, zero), (key[row, 0], key[row, 1]))
        drawn = torch.full((rows, size), -torch.inf, dtype=dtype)
        drawn[row, token] = _gumbel(torch.stack(words).gather(0, (token % 4)[None])[0], dtype)
        return drawn
    block = torch.arange((size + 3) // 4, device=device)[None]
    words = philox((block, step[:, None], zero, zero), (key[:, :1], key[:, 1:]))
    whole = _gumbel(torch.stack(words, -1).reshape(rows, -1)[:, :size], dtype)
    return whole.masked_fill(~wanted, -torch.inf)


def wide(device: torch.device) -> torch.dtype:
    """Give the widest floating-point type of a device."""
    return torch.float32 if device.type == "mps" else torch.float64


def _gumbel(words: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return -torch.log(-torch.log((words.to(dtype) + 0.5) * 2.0**-32))

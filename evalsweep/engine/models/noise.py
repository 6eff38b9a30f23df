"""Random numbers that belong to one request: a counter-based stream for each (seed, prompt, sample), a block a step."""

from __future__ import annotations

import hashlib

import numpy as np

STREAM = "Gumbel-max; Philox4x64 keyed by SHA-256(seed|sample|prompt), a block of its counter for each token"


def stream_key(seed: int, prompt: str, sample: int) -> int:
    """The 128-bit key of the stream that draws the `sample`-th answer (from 0) to a prompt."""
    text = f"{seed}|{sample}|{prompt}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(text).digest()[:16], "little")


def gumbel(key: int, step: int, size: int) -> np.ndarray:
    """Standard Gumbel noise for the `step`-th token of a stream, float64 of shape (size,).

    Adding it to logits / T and taking the largest is an exact draw from softmax(logits / T) (Gumbel 1954; Maddison et
    al. 2014, "A* sampling"). Every step has 2**64 counters of its own, so that no two steps share a number.
    """
    generator = np.random.Generator(np.random.Philox(key=key, counter=[0, step, 0, 0]))
    return np.asarray(-np.log(generator.standard_exponential(size)))

"""What is asked of a model: which answer to its document a request is for, and how an answer comes to its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from lm_eval.api.instance import Instance

STOPPED, ENDED, CAPPED = "stop string", "end token", "length"


def sample_numbers(requests: Sequence[Instance]) -> list[int]:
    """The sample number of each request, from 0: lm_eval repeats a request for each further answer to its document."""
    seen: Counter[int] = Counter()
    numbers = []
    for request in requests:
        numbers.append(seen[id(request)])
        seen[id(request)] += 1
    return numbers

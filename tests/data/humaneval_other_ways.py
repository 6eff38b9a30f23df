"""Right solutions of HumanEval problems, written in other ways than the dataset's own.

Each was checked in a plain Python process by the dataset's `check`. A text that begins with a space goes on from the
prompt; any other defines the function anew after it.
"""

SOLUTIONS: list[tuple[int, str]] = [
    (
        0,
        """    import numpy as np
    return bool((np.diff(np.sort(np.array(numbers))) < threshold).any())
""",
    ),
    (
        0,
        """    import numpy as np
    return np.any(np.diff(np.sort(numbers)) < threshold)
""",
    ),
    (
        0,
        """    from itertools import combinations
    return any(abs(a - b) < threshold for a, b in combinations(numbers, 2))
""",
    ),
    (
        1,
        """
import re

def separate_paren_groups(paren_string):
    text = re.sub(r"\\s+", "", paren_string)

    def groups(rest):
        depth = 0
        for i, c in enumerate(rest):
            depth += 1 if c == "(" else -1
            if depth == 0:
                yield rest[: i + 1]
                yield from groups(rest[i + 1 :])
                return

    return list(groups(text))
""",
    ),
    (
        2,
        """    from decimal import Decimal
    return float(Decimal(number) % 1)
""",
    ),
    (
        2,
        """    import math
    return math.modf(number)[0]
""",
    ),
    (
        2,
        """    import numpy as np
    return np.float64(number) - np.floor(number)
""",
    ),
    (
        4,
        """    from statistics import fmean
    m = fmean(numbers)
    return fmean(abs(x - m) for x in numbers)
""",
    ),
    (
        4,
        """    import numpy as np
    a = np.asarray(numbers)
    return np.mean(np.abs(a - a.mean()))
""",
    ),
    (
        4,
        """    from fractions import Fraction
    xs = [Fraction(x) for x in numbers]
    m = sum(xs) / len(xs)
    return sum(abs(x - m) for x in xs) / len(xs)
""",
    ),
    (
        5,
        """    from itertools import chain
    return list(chain.from_iterable((n, delimeter) for n in numbers))[:-1]
""",
    ),
    (
        5,
        """    import numpy as np
    out = np.full(max(0, 2 * len(numbers) - 1), delimeter)
    out[::2] = numbers
    return out.tolist()
""",
    ),
    (
        8,
        """    import math
    print('numbers', numbers)
    return sum(numbers), math.prod(numbers)
""",
    ),
    (
        8,
        """    import numpy as np
    return np.sum(numbers, dtype=int), np.prod(numbers, dtype=int)
""",
    ),
    (
        8,
        """
from typing import NamedTuple

class Totals(NamedTuple):
    total: int
    product: int

def sum_product(numbers):
    totals = Totals(0, 1)
    for n in numbers:
        totals = Totals(totals.total + n, totals.product * n)
    return totals
""",
    ),
    (
        9,
        """    from itertools import accumulate
    return list(accumulate(numbers, max))
""",
    ),
    (
        9,
        """    import numpy as np
    return list(np.maximum.accumulate(numbers)) if numbers else []
""",
    ),
    (12, "    return max(strings, key=len, default=None)\n"),
    (13, "    return a if b == 0 else greatest_common_divisor(b, a % b)\n"),
    (
        13,
        """    import numpy as np
    return np.gcd(a, b)
""",
    ),
    (
        13,
        """    from math import gcd as g
    return g(a, b)

if __name__ == '__main__':
    raise SystemExit(greatest_common_divisor(3, 5))
""",
    ),
    (
        14,
        """    from itertools import accumulate
    return [*accumulate(string)]
""",
    ),
    (
        14,
        """
class Prefixes:
    def __init__(self, text):
        self.text = text

    def __iter__(self):
        for i, _ in enumerate(self.text, start=1):
            yield self.text[:i]

def all_prefixes(string: str) -> list[str]:
    return [*Prefixes(string)]
""",
    ),
    (
        20,
        """    s = sorted(numbers)
    return min(zip(s, s[1:]), key=lambda p: p[1] - p[0])
""",
    ),
    (
        20,
        """    import numpy as np
    a = np.sort(numbers)
    i = np.argmin(np.diff(a))
    return a[i], a[i + 1]
""",
    ),
    (
        21,
        """    import numpy as np
    a = np.array(numbers)
    return list((a - a.min()) / (a.max() - a.min()))
""",
    ),
    (
        21,
        """    lo, hi = min(numbers), max(numbers)
    return [*map(lambda x: (x - lo) / (hi - lo), numbers)]
""",
    ),
    (24, "    return next(d for d in range(n - 1, 0, -1) if not n % d)\n"),
    (
        25,
        """
import functools

@functools.lru_cache(maxsize=None)
def parts(n, smallest=2):
    for d in range(smallest, int(n**0.5) + 1):
        if n % d == 0:
            return (d,) + parts(n // d, d)
    return (n,) if n > 1 else ()

def factorize(n):
    return list(parts(n))
""",
    ),
    (
        26,
        """    import numpy as np
    if not numbers:
        return []
    values, counts = np.unique(numbers, return_counts=True)
    once = set(values[counts == 1])
    return [np.int64(n) for n in numbers if n in once]
""",
    ),
    (
        28,
        """    from functools import reduce
    import operator
    return reduce(operator.add, strings, '')
""",
    ),
    (
        28,
        """    from io import StringIO
    out = StringIO()
    print(*strings, sep='', end='', file=out)
    return out.getvalue()
""",
    ),
    (
        28,
        """
class Text(str):
    def __add__(self, other):
        return Text(str.__add__(self, other))

def concatenate(strings):
    text = Text()
    for s in strings:
        text = text + s
    return text
""",
    ),
    (
        29,
        """    import re
    return list(filter(re.compile(re.escape(prefix)).match, strings))
""",
    ),
    (
        31,
        """    import re
    if n < 2000:
        return re.fullmatch(r'1?|(11+?)\\1+', '1' * n) is None
    return all(n % k for k in range(2, int(n**0.5) + 1))
""",
    ),
    (
        31,
        """    import numpy as np
    return n > 1 and np.all(n % np.arange(2, int(n**0.5) + 1) != 0)
""",
    ),
    (
        35,
        """
import heapq

def logged(function):
    def inner(*args, **kwargs):
        print(function.__name__, args, kwargs)
        return function(*args, **kwargs)

    return inner

@logged
def max_element(l: list):
    return heapq.nlargest(1, l)[0]
""",
    ),
    (
        35,
        """    import numpy as np
    return np.max(l)
""",
    ),
    (
        37,
        """    l = list(l)
    l[::2] = sorted(l[::2])
    return l
""",
    ),
    (
        37,
        """    import numpy as np
    a = np.array(l)
    a[::2].sort()
    return list(a)
""",
    ),
    (
        40,
        """    from itertools import combinations
    return 0 in map(sum, combinations(l, 3))
""",
    ),
    (
        42,
        """    import numpy as np
    return (np.array(l, dtype=int) + 1).tolist()
""",
    ),
    (42, "    return list(map((1).__add__, l))\n"),
    (
        45,
        """    from fractions import Fraction
    return Fraction(a * h, 2)
""",
    ),
    (
        45,
        """    from decimal import Decimal
    return Decimal(a) * Decimal(h) / 2
""",
    ),
    (45, "    return complex(a * h / 2)\n"),
    (
        46,
        """
from functools import cache

@cache
def fib4(n):
    return (0, 0, 2, 0)[n] if n < 4 else sum(fib4(n - k) for k in range(1, 5))
""",
    ),
    (
        46,
        """    from collections import deque
    last = deque([0, 0, 2, 0], maxlen=4)
    for _ in range(n):
        last.append(sum(last))
    return last[0]
""",
    ),
    (
        47,
        """    import numpy as np
    return np.median(l)
""",
    ),
    (
        47,
        """    import statistics
    return statistics.median(l)
""",
    ),
    (48, "    return all(a == b for a, b in zip(text, reversed(text)))\n"),
    (49, "    return pow(2, n, p)\n"),
    (53, "    return (lambda *parts: sum(parts))(x, y)\n"),
    (
        53,
        """    import numpy as np
    return np.add(x, y)
""",
    ),
    (
        53,
        """
import enum

class Sign(enum.IntEnum):
    PLUS = 1

def add(x: int, y: int) -> int:
    return x + Sign.PLUS * y
""",
    ),
    (
        55,
        """    import numpy as np
    m = np.linalg.matrix_power(np.array([[1, 1], [1, 0]], dtype=object), n)
    return m[0][1]
""",
    ),
    (
        55,
        """
import itertools

def stream():
    a, b = 0, 1
    while True:
        yield a
        a, b = b, a + b

def fib(n):
    return next(itertools.islice(stream(), n, None))
""",
    ),
    (
        57,
        """    import numpy as np
    d = np.diff(l)
    return (d >= 0).all() or (d <= 0).all()
""",
    ),
    (58, "    return sorted({*l1} & {*l2})\n"),
    (
        58,
        """    import numpy as np
    return list(np.intersect1d(l1, l2))
""",
    ),
    (60, "    return n * (n + 1) // 2\n"),
    (
        60,
        """    import numpy as np
    return np.arange(n + 1).sum()
""",
    ),
    (
        62,
        """    import numpy as np
    return list(np.polynomial.polynomial.polyder(xs)) if len(xs) > 1 else []
""",
    ),
    (
        62,
        """    from operator import mul
    from itertools import count
    return list(map(mul, xs[1:], count(1)))
""",
    ),
    (
        64,
        """    import re
    return len(re.findall(r'[aeiou]|y$', s, re.IGNORECASE))
""",
    ),
    (72, "    return bool(sum(q) <= w and q == q[::-1])\n"),
    (85, "    return sum(filter(lambda x: not x % 2, lst[1::2]))\n"),
    (
        101,
        """    import re
    return re.findall(r'[^\\s,]+', s)
""",
    ),
    (
        107,
        """
from dataclasses import dataclass, astuple

@dataclass(order=True)
class Count:
    even: int = 0
    odd: int = 0

    def add(self, n: int) -> "Count":
        if n % 2:
            self.odd += 1
        else:
            self.even += 1
        return self

def even_odd_palindrome(n: int) -> tuple[int, int]:
    count = Count()
    for i in filter(is_palindrome, range(1, n + 1)):
        count.add(i)
    return astuple(count)

def is_palindrome(n: int) -> bool:
    return (text := str(n)) == text[::-1]
""",
    ),
    (
        108,
        """    def digits(n):
        first, *rest = map(int, str(abs(n)))
        return (first if n >= 0 else -first) + sum(rest)
    return sum(1 for n in arr if digits(n) > 0)
""",
    ),
    (
        112,
        """    kept = s.translate({ord(x): None for x in c})
    return kept, kept == kept[::-1]
""",
    ),
    (
        112,
        """    from collections import namedtuple
    text = ''.join(x for x in s if x not in set(c))
    return namedtuple('Result', 'text same')(text, text == ''.join(reversed(text)))
""",
    ),
    (
        133,
        """    import numpy as np
    return int((np.ceil(lst) ** 2).sum())
""",
    ),
    (133, "    return sum((-(-x // 1)) ** 2 for x in lst)\n"),
    (
        136,
        """    return max((x for x in lst if x < 0), default=None), min((x for x in lst if x > 0), default=None)
""",
    ),
    (
        148,
        """
from enum import Enum

Planet = Enum("Planet", "Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune")

def bf(planet1, planet2):
    try:
        low, high = sorted((Planet[planet1].value, Planet[planet2].value))
    except KeyError as e:
        print("no planet:", e)
        return ()
    return tuple(p.name for p in Planet if low < p.value < high)
""",
    ),
    (151, "    return sum(x * x for x in lst if isinstance(x, int) and x > 0 and x & 1)\n"),
    (
        152,
        """    import numpy as np
    return np.abs(np.subtract(game, guess)).tolist()
""",
    ),
    (
        152,
        """    for i in range(1000):
        print('debug', i, game, guess)
    return [abs(a - b) for a, b in zip(game, guess)]
""",
    ),
    (
        155,
        """    from collections import Counter
    c = Counter(int(d) % 2 for d in str(abs(num)))
    return c[0], c[1]
""",
    ),
    (
        155,
        """    import numpy as np
    d = np.array([*str(abs(num))], dtype=int) % 2
    return np.count_nonzero(d == 0), np.count_nonzero(d)
""",
    ),
    (
        157,
        """    *legs, longest = sorted((a, b, c))
    return sum(x**2 for x in legs) == longest**2
""",
    ),
    (
        159,
        """    eaten = min(need, remaining)
    return [number + eaten, remaining - eaten]
""",
    ),
    (161, "    return s.swapcase() if any(map(str.isalpha, s)) else s[::-1]\n"),
]

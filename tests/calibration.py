"""Do 95% intervals hold the truth 95% of the time? `make coverage` simulates the grid, prints it, and judges it.

The truth is known here: documents, groups, runs and answers are drawn from it. Every setting of the grid is a number of
documents and runs, an accuracy, how much documents differ (nothing ... all or nothing), with and without groups of
documents and resampled shots.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from errorbars.stats import cluster_robust_se, mean_ci_clt, t_for_confidence, wilson_ci
from scipy import special

from evalsweep.stats.compare import difference_interval
from evalsweep.stats.components import Components, components
from evalsweep.stats.questions import share_interval

DOCUMENTS, RUNS = (20, 50, 164, 1319), (1, 3, 5)
ACCURACY = (0.02, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 0.95, 0.98)
SPREAD = (0.0, 0.3, 0.7, 1.0)  # intraclass correlation of a document's answers: all equal ... all or nothing
GROUPS = (0.0, 0.2)  # intraclass correlation of a group's documents: no groups, groups of 1 to 8
SHOTS = (0.0, 0.05)  # sd of a run's effect over that of one answer: pinned shots, resampled ones (2.5 points at 0.5)
LEAST, MOST, MOST_SHARE, LONGEST = 0.93, 0.99, 0.10, 1.15
VALID = 0.01  # the usual method is valid where its coverage is within so much of 0.95
USUAL = "usual"
TABLE = Path(__file__).parents[1] / "docs" / "statistics.md"
BEGIN, END = "<!-- made by: make coverage -->", "<!-- end -->"


@dataclass(frozen=True)
class Setting:
    """One point of the grid."""

    documents: int
    runs: int
    accuracy: float
    spread: float
    groups: float
    shots: float


@dataclass(frozen=True)
class Result:
    """Coverage and median width of each method; `inside`: the usual interval's median ends lie within (0, 1)."""

    setting: Setting
    coverage: dict[str, float]
    width: dict[str, float]
    inside: bool


def grid(documents: Iterable[int] = DOCUMENTS) -> list[Setting]:
    """Every setting; with one run, pinned shots and no groups, documents of any spread are one setting."""
    found = []
    for d, r, p, s, g, e in itertools.product(documents, RUNS, ACCURACY, SPREAD, GROUPS, SHOTS):
        if r > 1 or g or s == 0:
            found.append(Setting(d, r, p, s, g, e))
    return found


def draw(rng: np.random.Generator, n: int, at: Setting) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    """n sets of scores (n, D, R), the group of each document, and the truth of each set.

    With one run of resampled shots the truth is the accuracy with those shots: the target that is stated.
    """
    d, r, p = at.documents, at.runs, at.accuracy
    group = None
    mean: Any = np.float32(p)
    if at.groups:
        sizes = [1 + 3 * i % 8 for i in range(d)]
        group = np.repeat(np.arange(d), sizes)[:d]
        mean = _beta(rng, np.float32(p), at.groups, (n, int(group.max()) + 1))[:, group]
    chance = _beta(rng, mean, at.spread, (n, d))
    truth = np.full(n, p)
    effects = None
    if at.shots:
        total = 1 / at.shots**2 - 1
        effects = rng.beta(p * total, (1 - p) * total, (n, r)).astype(np.float32)
        if r == 1:
            truth = effects[:, 0].astype(float)
    scores = np.empty((n, d, r), bool)
    for i in range(r):
        now = chance if effects is None else _moved(chance, p, effects[:, i : i + 1])
        scores[:, :, i] = rng.random((n, d), dtype=np.float32) < now
    return scores, group, truth


def _beta(rng: np.random.Generator, mean: Any, icc: float, shape: tuple[int, int]) -> np.ndarray:
    """Chances with this mean whose yes-or-no answers have this intraclass correlation."""
    if icc == 0:
        return np.broadcast_to(np.asarray(mean, np.float32), shape)
    if icc == 1:
        return (rng.random(shape, dtype=np.float32) < mean).astype(np.float32)
    total = 1 / icc - 1
    a = np.clip(np.broadcast_to(mean, shape) * total, 1e-6, None)
    b = np.clip((1 - np.broadcast_to(mean, shape)) * total, 1e-6, None)
    return rng.beta(a, b).astype(np.float32)


def _moved(chance: np.ndarray, p: float, to: np.ndarray) -> np.ndarray:
    """Chances of mean p moved to mean `to`, each within [0, 1]."""
    return np.where(to > p, chance + (to - p) * (1 - chance) / (1 - p), chance * (to / p))


Ends = tuple[np.ndarray, np.ndarray]


def _evalsweep(found: Components, scores: np.ndarray, group: np.ndarray | None, at: Setting) -> Ends:
    return share_interval(found, resampled=at.shots > 0)


def _usual(found: Components, scores: np.ndarray, group: np.ndarray | None, at: Setting) -> Ends:
    """The textbook's: t over documents, over groups (cluster robust), runs added (Satterthwaite's degrees)."""
    means = scores.mean(2)
    if group is None:
        variance, degrees = found.spread / (at.documents - 1), at.documents - 1
    else:
        sums = np.add.reduceat(means - found.mean[:, None], np.r_[0, np.flatnonzero(np.diff(group)) + 1], axis=1)
        g = sums.shape[1]
        variance, degrees = (sums**2).sum(1) * g / (g - 1) / at.documents**2, g - 1
    runs = found.runs / at.runs if at.shots and at.runs > 1 else np.zeros_like(variance)
    with np.errstate(invalid="ignore", divide="ignore"):
        both = (variance + runs) ** 2 / (runs**2 / max(at.runs - 1, 1) + variance**2 / degrees)
    half = special.stdtrit(np.where(np.isfinite(both), both, degrees), 0.975) * np.sqrt(variance + runs)
    return found.mean - half, found.mean + half


def _mean_std(found: Components, scores: np.ndarray, group: np.ndarray | None, at: Setting) -> Ends:
    sd = scores.mean(1).std(1, ddof=1)
    return found.mean - sd, found.mean + sd


def _normal(found: Components, scores: np.ndarray, group: np.ndarray | None, at: Setting) -> Ends:
    half = special.ndtri(0.975) * np.sqrt(found.spread / (at.documents - 1))
    return found.mean - half, found.mean + half


def _harness(found: Components, scores: np.ndarray, group: np.ndarray | None, at: Setting) -> Ends:
    """lm_eval's stderr, of one run: sample standard deviation over sqrt(D)."""
    mean = scores[:, :, 0].mean(1)
    half = special.ndtri(0.975) * np.sqrt(mean * (1 - mean) / (at.documents - 1))
    return mean - half, mean + half


def _errorbars(found: Components, scores: np.ndarray, group: np.ndarray | None, at: Setting) -> Ends:
    """What `errorbars summarize` prints of a file with a line an answer; the package itself is asked."""
    ends = []
    for one in scores[: min(len(scores), 400 if at.documents < 1000 else 100)]:
        values = one.ravel().astype(float)
        if group is not None:
            se = cluster_robust_se(values, np.repeat(group, at.runs))
            half = t_for_confidence(0.95, int(group.max())) * se
            ends.append((values.mean() - half, values.mean() + half))
        else:
            e = wilson_ci(int(values.sum()), values.size) if values.size < 30 else mean_ci_clt(values)
            ends.append((e.ci_low, e.ci_high))
    low, high = np.array(ends).T
    return low, high


METHODS: dict[str, Callable[[Components, np.ndarray, np.ndarray | None, Setting], Ends]] = {
    "evalsweep": _evalsweep,
    USUAL: _usual,
    "mean +- std over runs": _mean_std,
    "normal, of documents' means": _normal,
    "lm_eval's stderr": _harness,
    "errorbars 0.2.4": _errorbars,
}


def simulate(at: Setting, draws: int, seed: int, others: bool = True) -> Result:
    """Coverage and width at one setting; without `others` of evalsweep's interval and the usual one alone."""
    rng = np.random.default_rng([seed, *(round(1000 * v) for v in vars(at).values())])
    held: dict[str, list[np.ndarray]] = {}
    widths: dict[str, list[np.ndarray]] = {}
    ends = []
    step = max(1, min(draws, 4_000_000 // (at.documents * at.runs)))
    for start in range(0, draws, step):
        scores, group, truth = draw(rng, min(step, draws - start), at)
        found = components(scores, group)
        for name, method in METHODS.items():
            needless = (at.runs == 1 and name.startswith("mean")) or (name.startswith("errorbars") and start)
            if needless or not (others or name in ("evalsweep", USUAL)):
                continue
            low, high = method(found, scores, group, at)
            of = truth[: len(low)]
            held.setdefault(name, []).append((low <= of) & (of <= high))
            widths.setdefault(name, []).append(high - low)
            if name == USUAL:
                ends.append(np.stack([low, high]))
    low, high = np.median(np.concatenate(ends, axis=1), axis=1)
    return Result(
        at,
        {name: float(np.concatenate(parts).mean()) for name, parts in held.items()},
        {name: float(np.median(np.concatenate(parts))) for name, parts in widths.items()},
        bool(low > 0 and high < 1),
    )


def _job(work: tuple[Setting, int, int]) -> Result:
    return simulate(*work)


def run(settings: list[Setting], draws: Callable[[Setting], int], seed: int) -> list[Result]:
    work = [(at, draws(at), seed) for at in settings]
    with ProcessPoolExecutor(2) as pool:
        return list(pool.map(_job, work, chunksize=4))


def valid(results: list[Result]) -> list[Result]:
    """Results where the usual method is valid for documents of every spread, as nobody knows theirs, and in (0, 1)."""
    alike: dict[Any, list[Result]] = {}
    for result in results:
        at = result.setting
        alike.setdefault((at.documents, at.runs, at.accuracy, at.groups, at.shots), []).append(result)
    return [
        result
        for same in alike.values()
        if all(abs(r.coverage[USUAL] - 0.95) <= VALID and r.inside for r in same)
        for result in same
    ]


@dataclass(frozen=True)
class Verdict:
    """What the bounds are judged by."""

    least: float
    above: float
    longest: float
    compared: int
    cells: int

    @property
    def held(self) -> bool:
        return self.least >= LEAST and self.above <= MOST_SHARE and self.longest <= LONGEST and self.compared > 0

    def __str__(self) -> str:
        return (
            f"coverage: {'held' if self.held else 'MISSED'}: least {self.least:.3f} (bound {LEAST}), above {MOST} in "
            f"{self.above:.1%} of {self.cells} cells (bound {MOST_SHARE:.0%}), at most {self.longest:.2f} times as "
            f"wide as the usual interval in the {self.compared} cells where that is valid (bound {LONGEST})"
        )


def judge(results: list[Result]) -> Verdict:
    coverage = np.array([r.coverage["evalsweep"] for r in results])
    compared = [r.width["evalsweep"] / r.width[USUAL] for r in valid(results)]
    return Verdict(
        least=float(coverage.min()),
        above=float((coverage > MOST).mean()),
        longest=max(compared, default=math.inf),
        compared=len(compared),
        cells=len(results),
    )


def comparison(at: Setting, agreement: float, better: float, draws: int, seed: int) -> tuple[float, float]:
    """Coverage of the interval for a difference, evalsweep's and Student's t.

    b is better by `better`; with chance `agreement` a document is as hard for b as for a.
    """
    rng = np.random.default_rng([seed, int(100 * agreement), int(1000 * better), *map(int, (at.documents, at.runs))])
    n, d, p = draws, at.documents, at.accuracy
    a = _beta(rng, np.float32(p), at.spread, (n, d))
    same = rng.random((n, d), dtype=np.float32) < agreement
    b = _moved(np.where(same, a, _beta(rng, np.float32(p), at.spread, (n, d))), p, np.float32(p + better))
    mean_D = (rng.binomial(at.runs, np.clip(b, 0, 1)) - rng.binomial(at.runs, a)) / at.runs
    found = components(mean_D[:, :, None])
    middle, half = difference_interval(found, mean_D, [])
    se = special.stdtrit(d - 1, 0.975) * np.sqrt(found.spread / (d - 1))
    truth = p + better - p
    return float((abs(middle - truth) <= half).mean()), float((abs(found.mean - truth) <= se).mean())


def comparisons(documents: Iterable[int], draws: int, seed: int) -> list[tuple[Setting, float, float]]:
    """Coverage of intervals for differences over documents, runs, accuracies, spreads, agreement and size."""
    found = []
    for d, r, p, s, agreement, better in itertools.product(
        documents, RUNS, (0.02, 0.1, 0.3, 0.5, 0.9), SPREAD, (0.5, 1.0), (0.0, 0.05)
    ):
        at = Setting(d, r, p, s, 0.0, 0.0)
        found.append((at, *comparison(at, agreement, better, draws, seed)))
    return found


def lines(results: list[Result]) -> list[str]:
    """The grid: a line for documents, runs, groups, shots and spread, a column an accuracy."""
    by = {r.setting: r.coverage["evalsweep"] for r in results}
    head = f"{'D':>5} {'R':>2}  {'groups':7}{'shots':10}{'spread':>6}" + "".join(f"{p:>7}" for p in ACCURACY)
    found = [head]
    for d, r, g, e, s in itertools.product(DOCUMENTS, RUNS, GROUPS, SHOTS, SPREAD):
        row = [by.get(Setting(d, r, p, s, g, e)) for p in ACCURACY]
        if None not in row:
            label = f"{d:>5} {r:>2}  {'groups' if g else '-':7}{'resampled' if e else 'pinned':10}{s:>6}"
            found.append(label + "".join(f"{c:>7.3f}" for c in row))
    return found


def side_by_side(results: list[Result]) -> list[str]:
    """Markdown: every method, by what is in the data."""
    kinds = {
        "documents only": lambda at: not at.groups and not at.shots,
        "resampled shots": lambda at: not at.groups and at.shots,
        "groups": lambda at: at.groups and not at.shots,
        "groups, resampled shots": lambda at: at.groups and at.shots,
    }
    rows = [
        "| method | in the data | least coverage | median coverage | cells below 93% | cells above 99% |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for name in METHODS:
        for kind, holds in kinds.items():
            found = np.array([r.coverage[name] for r in results if holds(r.setting) and name in r.coverage])
            numbers = f"{found.min():.3f} | {np.median(found):.3f}"
            shares = f"{(found < 0.93).mean():.0%} | {(found > 0.99).mean():.0%}"
            rows.append(f"| {name} | {kind} | {numbers} | {shares} |")
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=10_000, help="sets of scores a cell; half as many at D = 1319")
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--write", action="store_true", help=f"put the tables into {TABLE.name}")
    args = parser.parse_args()
    results = run(grid(), lambda at: args.draws // (2 if at.documents > 1000 else 1), args.seed)
    text = lines(results)
    pairs = comparisons((20, 50, 164), args.draws // 4, args.seed)
    ours, plain = min(p[1] for p in pairs), min(p[2] for p in pairs)
    difference = (
        f"differences of two cells, {len(pairs)} settings: least coverage {ours:.3f}, of Student's t {plain:.3f}"
    )
    verdict = judge(results)
    print("\n".join(["coverage of 95% intervals, by accuracy", *text, "", *side_by_side(results), "", difference]))
    if args.write:
        table = "\n".join(
            [
                BEGIN,
                "",
                *side_by_side(results),
                "",
                difference + ".",
                "",
                "```",
                *text,
                "```",
                "",
                str(verdict),
                "",
                END,
            ]
        )
        before, _, rest = TABLE.read_text().partition(BEGIN)
        TABLE.write_text(before + table + rest.partition(END)[2])
    print(verdict)
    return 0 if verdict.held and ours >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())

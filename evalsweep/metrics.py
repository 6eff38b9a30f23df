"""Metrics: the bounds, aggregation and direction of a score, which stand in the record."""

from __future__ import annotations

from dataclasses import dataclass

UNIT = (0.0, 1.0)
UNBOUNDED: tuple[float | None, float | None] = (None, None)


@dataclass(frozen=True)
class Metric:
    """One metric of a run.

    Args:
        name: as lm_eval names it, filter included (`exact_match,strict-match`), or evalsweep's own (`pass@1`).
        bounds: the least and the greatest score of a document; None where there is no bound or it is not known.
        aggregation: how the scores of the documents become that of the run, as lm_eval names it (`mean`).
        higher_is_better: the direction; None where it is not known.
    """

    name: str
    bounds: tuple[float | None, float | None]
    aggregation: str | None
    higher_is_better: bool | None

    @property
    def is_share(self) -> bool:
        """Whether the score is a mean of scores that cannot leave [0, 1]."""
        return self.bounds == UNIT and self.aggregation == "mean"


# Bounds of the scores of documents of lm_eval's registered metrics, which its registry does not hold (0.4.13).
_BOUNDS: dict[str, tuple[float | None, float | None]] = {
    **dict.fromkeys(("acc", "acc_norm", "acc_bytes", "acc_mutual_info", "acc_all", "exact_match", "em"), UNIT),
    **dict.fromkeys(("f1", "mc1", "mc2", "likelihood", "pass_at_1"), UNIT),
    "mcc": (-1.0, 1.0),
    "brier_score": (0.0, 2.0),
    **dict.fromkeys(("bleu", "chrf", "chrf++"), (0.0, 100.0)),
    "ter": (0.0, None),
    **dict.fromkeys(("perplexity", "word_perplexity", "byte_perplexity"), (1.0, None)),
    "bits_per_byte": (0.0, None),
}
# The registered metrics whose run's score is no mean over documents, and those of which less is better.
_AGGREGATIONS = {
    **{name: name for name in ("f1", "bleu", "chrf", "chrf++", "ter", "perplexity", "bits_per_byte", "brier_score")},
    **dict.fromkeys(("word_perplexity", "byte_perplexity"), "weighted_perplexity"),
    "mcc": "matthews_corrcoef",
}
_LOWER = ("brier_score", "perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte", "ter")


def of_lm_eval(name: str, aggregation: str | None = None, higher_is_better: bool | None = None) -> Metric:
    """Give a metric of lm_eval by its name, filter included; what its task says goes before what its registry says."""
    bare = name.partition(",")[0]
    known = bare in _BOUNDS
    if aggregation is None:
        aggregation = _AGGREGATIONS.get(bare, "mean" if known else None)
    if higher_is_better is None and known:
        higher_is_better = bare not in _LOWER
    return Metric(name, _BOUNDS.get(bare, UNBOUNDED), aggregation, higher_is_better)

"""How each answer of a batch agrees with the others, as the numbers that a learned score is made of. Pure.

No label and no prompt enters: embeddings, texts and their heads alone. Every number is of one answer or of its whole
batch, and none depends on the order of the answers. A number never changes what it means: a better one has another name.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from streamer.scoring.answer_clusters import COSINE
from streamer.scoring.gram import DECIMALS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamer.scoring.scorer import AnswerBatch

Floats = NDArray[np.float64]

FEATURES = (
    "gram", "mean_cosine", "largest_cosine", "smallest_cosine", "cosine_spread", "cluster_share", "cluster_entropy",
    "largest_cluster", "exact_match", "most_exact", "word_jaccard", "largest_jaccard", "contains", "contained",
    "log_length", "relative_length", "length_rank", "behind_best", "margin", "batch_gram", "batch_spread",
    "log_answers", "blank_share",
)  # fmt: skip
"""What is measured of all answers."""

ACROSS_MODELS = "other_models_cosine"
"""What only answers have that name their language models."""

COLUMNS = (*FEATURES, ACROSS_MODELS)
"""The names of `agreement`'s columns, in order."""

_WORD = re.compile(r"\w+")


def agreement(batch: AnswerBatch) -> Floats:
    """Measure how each of n answers agrees with the other n - 1.

    With c_ij the cosine of answers i and j (0 where one of them is blank), W the set of words of a text and H that of its head:

    - `gram`, `mean_cosine`, `largest_cosine`, `smallest_cosine`, `cosine_spread`: root mean square, mean, maximum, minimum
      and standard deviation of c_ij over the others;
    - `cluster_share`: share of the others in its cluster (answers linked from a cosine of 0.8); `cluster_entropy`: one
      minus the normalised entropy of the clusters; `largest_cluster`: share of all answers in the largest one;
    - `exact_match`: share of the others whose head is the same; `most_exact`: the largest such share in the batch;
    - `word_jaccard`, `largest_jaccard`: mean and maximum of |W_i and W_j| / |W_i or W_j| over the others;
    - `contains`: mean share of the words of H_j that are in W_i; `contained`: mean share of those of H_i that are in W_j;
    - `log_length`: ln(1 + characters) / 10; `relative_length`: that, less its mean over the batch; `length_rank`: share of
      the others that are shorter, equal ones counting half;
    - `behind_best`: its `gram` less the largest; `margin`: the largest `gram` less the largest of answers with another head, 0
      where there is none; `batch_gram`: mean `gram`; `batch_spread`: one minus the mean of all c_ij;
    - `log_answers`: ln(n) / 10; `blank_share`: share of blank answers;
    - `other_models_cosine`: mean of c_ij over the answers of other models, 0 where there are none: answers that name no model
      are of no model, and nobody's others.

    Returns
    -------
    ndarray of float64, shape (n, len(COLUMNS))
        Finite; means over answers are over those that are not blank. Rows of blank answers say nothing.

    Raises
    ------
    ValueError
        As `streamer.scoring.gram.unit_rows`.
    """
    rows = batch.unit_rows
    n = len(rows)
    written = ~np.asarray(batch.blank, dtype=np.bool_)
    others = ~np.eye(n, dtype=np.bool_)
    cosines = rows @ rows.T
    np.fill_diagonal(cosines, 0.0)
    gram = np.sqrt(np.einsum("ij,ij->i", cosines, cosines) / (n - 1)).clip(0.0, 1.0)
    mean = cosines.sum(axis=1) / (n - 1)
    spread = np.sqrt((((cosines - mean[:, np.newaxis]) ** 2) * others).sum(axis=1) / (n - 1))
    sizes = _cluster_sizes(cosines)
    entropy = math.fsum(
        math.log(size / n) / n for size in sorted(sizes.tolist())
    )  # each answer adds 1/n of its cluster's
    heads = ["" if blank else form for form, blank in zip(batch.forms, batch.blank, strict=True)]
    votes = Counter(head for head in heads if head)
    exact = np.array([votes[head] - 1 if head else 0 for head in heads]) / (n - 1)
    jaccard, contains, contained = _words(batch.texts, heads, written)
    lengths = np.array([math.log1p(len(text.strip())) / 10 for text in batch.texts])
    shorter = (lengths[np.newaxis, :] < lengths[:, np.newaxis]) + 0.5 * (
        lengths[np.newaxis, :] == lengths[:, np.newaxis]
    )
    best = float(gram.max())
    columns = {
        "gram": gram,
        "mean_cosine": mean,
        "largest_cosine": np.where(others, cosines, -1.0).max(axis=1),
        "smallest_cosine": np.where(others, cosines, 1.0).min(axis=1),
        "cosine_spread": spread,
        "cluster_share": (sizes - 1) / (n - 1),
        "cluster_entropy": 1.0 + entropy / math.log(n),
        "largest_cluster": sizes.max() / n,
        "exact_match": exact,
        "most_exact": exact.max(),
        "word_jaccard": jaccard.sum(axis=1) / (n - 1),
        "largest_jaccard": jaccard.max(axis=1),
        "contains": contains,
        "contained": contained,
        "log_length": lengths,
        "relative_length": lengths - _mean(lengths, written),
        "length_rank": (shorter * others).sum(axis=1) / (n - 1),
        "behind_best": gram - best,
        "margin": _margin(gram, heads, written),
        "batch_gram": _mean(gram, written),
        "batch_spread": 1.0 - float(cosines.sum()) / (n * (n - 1)),
        "log_answers": math.log(n) / 10,
        "blank_share": 1.0 - float(written.mean()),
        ACROSS_MODELS: _across_models(cosines, batch.models),
    }
    found = np.empty((n, len(COLUMNS)))
    for place, name in enumerate(COLUMNS):
        found[:, place] = columns[name]
    return found


def _across_models(cosines: Floats, models: Sequence[str]) -> Floats:
    found = np.zeros(len(cosines))
    for place, model in enumerate(models):
        others = [one for one, other in enumerate(models) if model and other and other != model]
        if others:
            found[place] = cosines[place, others].mean()
    return found


def _mean(values: Floats, written: NDArray[np.bool_]) -> float:
    return float(values[written].mean()) if written.any() else 0.0


def _cluster_sizes(cosines: Floats) -> Floats:
    """The number of answers in each answer's cluster, itself among them; see `streamer.scoring.answer_clusters`."""
    n = len(cosines)
    linked = (np.round(cosines, DECIMALS) >= COSINE) | np.eye(n, dtype=np.bool_)
    clusters = np.arange(n)
    while True:
        least = np.where(linked, clusters[np.newaxis, :], n).min(axis=1)
        if (least == clusters).all():
            return np.bincount(clusters, minlength=n)[clusters].astype(np.float64)
        clusters = least


def _margin(gram: Floats, heads: Sequence[str], written: NDArray[np.bool_]) -> float:
    if not written.any():
        return 0.0
    first = max(np.flatnonzero(written).tolist(), key=lambda i: (gram[i], heads[i]))
    rest = [float(gram[i]) for i in np.flatnonzero(written).tolist() if heads[i] != heads[first]]
    return float(gram[first]) - max(rest) if rest else 0.0


def _words(
    texts: Sequence[str], heads: Sequence[str], written: NDArray[np.bool_]
) -> tuple[Floats, Floats, Floats]:
    """The Jaccard index of each pair of texts, with zeros on the diagonal, and `contains` and `contained`."""
    n = len(texts)
    numbers: dict[str, int] = {}
    of_texts = [
        {numbers.setdefault(word, len(numbers)) for word in _WORD.findall(text.casefold())} if seen else set()
        for text, seen in zip(texts, written.tolist(), strict=True)
    ]
    of_heads = [{numbers.setdefault(word, len(numbers)) for word in _WORD.findall(head)} for head in heads]
    whole, said = np.zeros((n, len(numbers))), np.zeros((n, len(numbers)))
    for i in range(n):
        whole[i, sorted(of_texts[i])] = 1.0
        said[i, sorted(of_heads[i])] = 1.0
    common = whole @ whole.T  # whole numbers: exact in whatever order they are added
    size = whole.sum(axis=1)
    either = size[:, np.newaxis] + size[np.newaxis, :] - common
    jaccard = np.divide(common, either, out=np.zeros_like(common), where=either > 0)
    np.fill_diagonal(jaccard, 0.0)
    length = said.sum(axis=1)[:, np.newaxis]
    shares = np.divide(said @ whole.T, length, out=np.zeros_like(common), where=length > 0)  # of H_i in W_j
    np.fill_diagonal(shares, 0.0)
    return jaccard, shares.sum(axis=0) / (n - 1), shares.sum(axis=1) / (n - 1)

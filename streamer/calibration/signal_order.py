"""The signals of every answer, declared once by name, in the order of a row's columns.

`streamer.scoring.signals` measures each by its name, and refuses to be imported where one has no measure, or the other way round.
"""

from typing import Literal, get_args

Unread = Literal["cut", "unread", "twin"]
"""Why an encoder does not read an answer."""

OF_TEXTS = (
    "gram", "mean_cosine", "nearest_cosine", "median_cosine", "cluster_share", "centroid",
    "exact_match", "contains", "contained", "jaccard", "rouge_1", "chrf", "same_number", "same_names",
    "length", "length_to_median",
    "entropy", "best_gram", "best_rouge_1", "best_chrf", "best_match", "batch_cosine",
    "question_overlap", "refusal", "has_number", "one_of",
)  # fmt: skip
SIGNALS: tuple[str, ...] = (*OF_TEXTS, *get_args(Unread))
"""Policies and records hold rows of them: another order, scale or meaning is another version of the list."""

UNREAD = slice(len(OF_TEXTS), len(SIGNALS))
"""The columns that say, by 1, why the encoder did not read the answers."""

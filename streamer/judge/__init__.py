"""A language model as judge: a rubric, one strict reply, and its mark as a score (Q_J) or a severity (JS)."""

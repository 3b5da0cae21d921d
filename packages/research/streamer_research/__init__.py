"""What no service needs: the paper's GPSO, response clouds from language models, and studies on public ones.

Of each command: where it is, and its line in `streamer --help`.
"""

GPSO = (
    "streamer_research.gpso.command:gpso",
    "Classify responses as good or bad by the subspaces that their embeddings span (the paper's GPSO).",
)
SAMPLE = (
    "streamer_research.sampling.command:sample",
    "Sample response clouds from any endpoint that speaks OpenAI's chat protocol.",
)

"""What the product's claims rest on and no service needs: the paper's GPSO, and studies on public response clouds."""

GPSO = (
    "streamer_research.gpso.command:gpso",
    "Classify responses as good or bad by the subspaces that their embeddings span (the paper's GPSO).",
)
"""The command `streamer gpso`: where it is, and its line in `streamer --help`."""

"""Risk control for language-model output."""

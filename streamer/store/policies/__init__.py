"""Gates, policies and proposals, and the fence between policies and commits."""

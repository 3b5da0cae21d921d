"""Embedding models behind one protocol: loading, identity and registry."""

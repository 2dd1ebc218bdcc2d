"""Layers that look embeddings up."""

"""Initialization and embedding variables."""

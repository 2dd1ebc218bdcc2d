"""Lookups of groups of features."""

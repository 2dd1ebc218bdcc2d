"""Embedding variables: their options, initial rows, device, statistics, and places in TensorFlow's graphs."""

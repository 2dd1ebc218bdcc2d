"""What the library changes in TensorFlow: the list, installing and undoing it, and what a dialect decides."""

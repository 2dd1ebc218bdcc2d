"""What the benchmark programs share: axes, ids, contenders, interleaved timing and the report."""

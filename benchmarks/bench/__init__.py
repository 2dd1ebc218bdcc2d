"""Library of the benchmark programs: axes, ids, contenders, interleaved timing and reports."""

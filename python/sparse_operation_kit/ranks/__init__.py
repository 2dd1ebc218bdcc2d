"""The process among the other ranks: `Init`, the communicator, stages, names and counts of exchanges."""

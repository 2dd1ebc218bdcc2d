"""The process among the other ranks: `Init`, the communicator, names and counts of exchanges."""

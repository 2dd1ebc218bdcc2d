"""A session-based trainer of click-through models, the package behind train_ctr.py."""

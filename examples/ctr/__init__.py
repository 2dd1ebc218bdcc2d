"""The package of train_ctr.py, which trains click-through models in a session."""

"""Compares our tables with those of other libraries, each in its own process."""

"""The runner's library: flags, jobs, the tables of each library, timing in turns, and the report."""

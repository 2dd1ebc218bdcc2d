"""Attacks on checkpoints: killed processes, damaged files, malicious paths.

`tools/attack.sh` runs them for a given time, `failing_calls_test` for some seconds. Each scenario is a
module with a `SCENARIO`; `runner` lists and runs them.
"""

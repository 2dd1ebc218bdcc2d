"""Attacks on checkpoints: processes killed, files damaged, manifests and paths that mean harm.

`tools/attack.sh` runs them for as long as one likes, `attack_test.py` for some seconds. Each scenario is a
module with one `SCENARIO`; `runner` lists and runs them.
"""

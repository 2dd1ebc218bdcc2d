"""benchmarks/checkpoints.py runs, and memory above the table stays constant."""

import pathlib

from benchmark_support import run_program

PROGRAM = pathlib.Path(__file__).absolute().parents[1] / "benchmarks" / "checkpoints.py"


def test_a_row_for_each_size(tmp_path):
    flags = ["--gib", "0.001,0.1", "--dim", "8", "--folder", str(tmp_path)]
    done = run_program(PROGRAM, *flags)
    assert done.returncode == 0, done.stderr
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()[3:]]
    assert [row[0] for row in rows] == ["0.001", "0.1"]
    for row in rows:
        assert all(float(cell) >= 0 for cell in row)
        assert int(row[1]) == int(float(row[0]) * 2**30 / (4 * 3 * 8))
        # The larger table has 102.4 MiB.
        assert float(row[6]) < 64 and float(row[11]) < 64, "MiB above the table"
    assert not list(tmp_path.iterdir())

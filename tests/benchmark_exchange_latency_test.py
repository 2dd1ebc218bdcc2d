"""benchmarks/exchange_latency.py runs on ranks and prints its table once."""

import pathlib

import ranks

PROGRAM = pathlib.Path(__file__).absolute().parents[1] / "benchmarks" / "exchange_latency.py"


def test_rank_0_prints_a_line_for_each_size():
    job = ranks.launch(PROGRAM, "--rounds", "1", "--calls", "2", ranks=2)
    assert job.returncode == 0, job.report()
    lines = [line for line in job.outputs[0].splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 3 * 2
    for line in lines[2:]:
        numbers = line.strip("| ").split(" | ")[2:]
        assert len(numbers) == 4 and all(float(number) > 0 for number in numbers)
    assert "|" not in job.outputs[1]

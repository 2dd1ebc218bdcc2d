"""The CUDA engine's kernels, as compiled by nvcc, take no more resources than kernels.txt allows."""

import os

import kernel_resources


def test_kernels_take_what_is_expected():
    kernels = kernel_resources.read_reports(os.environ["SOK_PTXAS_REPORTS"].split())
    assert len({kernel.file for kernel in kernels}) > 10 and len({kernel.name for kernel in kernels}) > 100
    assert {kernel.arch for kernel in kernels} <= set(kernel_resources.MULTIPROCESSORS)
    expected = kernel_resources.read_expected(kernel_resources.EXPECTED_FILE.read_text())
    problems = kernel_resources.check(expected, kernels)
    assert not problems, "\n".join(["see cuda/resources/kernel_resources.py", *problems])

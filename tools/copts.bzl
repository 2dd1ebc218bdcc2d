"""Compiler options of the project's C++ code."""

# For code without TensorFlow. -ffp-contract=off: the compiler must not fuse a multiplication and an addition, so
# that results are the same on all machines, and from g++ and nvcc. -fno-math-errno lets square roots vectorize.
SOK_COPTS = [
    "-Wall",
    "-Wextra",
    "-Werror",
    "-O3",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
]

# For code that includes TensorFlow, whose headers use declarations that they mark as deprecated. They are system
# headers, so that other warnings in them are off.
SOK_TF_COPTS = SOK_COPTS + [
    "-Wno-deprecated-declarations",
]

# For files that include TensorFlow, with a dependency on //sok_ops:tensorflow_prelude: they include it first, in its
# precompiled form.
WITH_TF_PRELUDE = [
    "-include",
    "sok_ops/tensorflow_prelude.h",
    "-Winvalid-pch",
    "-Wno-error=invalid-pch",
]

# What .bazelrc adds for tests.
TEST_COPTS = [
    "-O1",
    "-include",
    "tools/test_prelude.h",
    "-Winvalid-pch",
    "-Wno-error=invalid-pch",
]

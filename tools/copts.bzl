"""Compiler options of the project's C++ code."""

# The engine's. -ffp-contract=off: results must not depend on whether the compiler fuses a multiplication and
# an addition, neither between machines nor between g++ and nvcc. -fno-math-errno lets square roots vectorize.
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

# The TensorFlow surface's. TensorFlow's headers use what their own compiler calls deprecated; they are
# included as system headers otherwise, so that warnings here are about our code.
SOK_TF_COPTS = SOK_COPTS + [
    "-Wno-deprecated-declarations",
]

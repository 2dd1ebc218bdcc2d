#ifndef SOK_CC_BASE_VECTORIZE_H_
#define SOK_CC_BASE_VECTORIZE_H_

#include <atomic>
#include <cstdint>
#include <type_traits>

namespace sok {

// The width of a processor's vector registers: 4, 8 or 16 floats.
enum class VectorLevel { kPlain, kAvx2, kAvx512 };

// The library is built for any x86-64, whose vectors hold four floats; most machines have wider ones.
// RunVectorized(body) runs body() compiled for the widest vectors of the processor, together with everything
// that is inlined into it. `body` is a loop over many elements, not the work on one element.
//
// Results are the same bits at every level: each element goes through the same IEEE operations, only in a
// wider vector, and -ffp-contract=off prevents fused multiply-adds. The code itself fixes the order of every
// sum over the elements of a vector.
//
// With SOK_PLAIN_LOOPS, for sanitized builds, only the plain level is compiled. Sanitizers check each access
// of a loop, in the order of the source, and so keep it from being vectorized.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(SOK_PLAIN_LOOPS)

// The widest level that the processor has.
inline VectorLevel SupportedVectorLevel() {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw")) {
    return VectorLevel::kAvx512;
  }
  return __builtin_cpu_supports("avx2") ? VectorLevel::kAvx2 : VectorLevel::kPlain;
}

// The level in use. Tests lower it to compare the levels; nothing else writes it.
inline std::atomic<VectorLevel> vector_level{SupportedVectorLevel()};

template <typename Body>
__attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,prefer-vector-width=512"), flatten)) void
RunWithAvx512(const Body& body) {
  body();
}

template <typename Body>
__attribute__((target("avx2"), flatten)) void RunWithAvx2(const Body& body) {
  body();
}

template <typename Body>
void RunVectorized(const Body& body) {
  switch (vector_level.load(std::memory_order_relaxed)) {
    case VectorLevel::kAvx512:
      return RunWithAvx512(body);
    case VectorLevel::kAvx2:
      return RunWithAvx2(body);
    default:
      return body();
  }
}

#else

inline VectorLevel SupportedVectorLevel() { return VectorLevel::kPlain; }
inline std::atomic<VectorLevel> vector_level{VectorLevel::kPlain};

template <typename Body>
void RunVectorized(const Body& body) {
  body();
}

#endif

// Calls body(columns), where `columns` converts to `dim`. For common dims `columns` is a compile-time
// constant, so that the compiler unrolls a loop over columns into a few vector instructions without branches.
// A row of 16 floats takes one or two of them; a loop with a run-time length costs more than the arithmetic.
template <typename Body>
void WithColumns(int64_t dim, const Body& body) {
  switch (dim) {
    case 16:
      return body(std::integral_constant<int64_t, 16>());
    case 32:
      return body(std::integral_constant<int64_t, 32>());
    case 64:
      return body(std::integral_constant<int64_t, 64>());
    case 128:
      return body(std::integral_constant<int64_t, 128>());
    default:
      return body(dim);
  }
}

}  // namespace sok

#endif  // SOK_CC_BASE_VECTORIZE_H_

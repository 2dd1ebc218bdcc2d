#ifndef SOK_CC_BASE_VECTORIZE_H_
#define SOK_CC_BASE_VECTORIZE_H_

namespace sok {

// The library is built for any x86-64, whose vectors hold four floats, and most machines have twice as much.
// RunVectorized(body) runs body() compiled for AVX2 where the processor has it. Everything that body calls
// and the compiler can see is compiled so too; body is a loop over many elements, not one element.
//
// Results are the same bits either way: an element goes through the same IEEE operations in a wider vector,
// and AVX2 has no fused multiplication and addition (that is another extension). Sums over the elements of a
// vector are only taken in an order that the code itself spells out.
#if defined(__x86_64__) && defined(__GNUC__)

template <typename Body>
__attribute__((target("avx2"), flatten)) void RunWithAvx2(const Body& body) {
  body();
}

template <typename Body>
void RunVectorized(const Body& body) {
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  has_avx2 ? RunWithAvx2(body) : body();
}

#else

template <typename Body>
void RunVectorized(const Body& body) {
  body();
}

#endif

}  // namespace sok

#endif  // SOK_CC_BASE_VECTORIZE_H_

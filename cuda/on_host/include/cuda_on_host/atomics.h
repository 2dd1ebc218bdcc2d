// CUDA's atomic functions: relaxed, for the types that CUDA has and no others. CUDA has none for `long`,
// which int64_t and uint64_t are on Linux: use cuda::atomic_ref.
#ifndef SOK_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_ATOMICS_H_
#define SOK_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_ATOMICS_H_

#include "cuda_on_host/engine.h"

namespace sok::on_host {

// Replaces *address by change(*address) in one step; returns what was there.
template <typename T, typename Change>
T AtomicChange(T* address, Place place, const Change& change) {
  using Word =
      std::conditional_t<sizeof(T) == 8, uint64_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>>;
  static_assert(sizeof(T) == sizeof(Word));
  BeforeAtomic(address, sizeof(T), /*block_scope=*/false, place);
  Word* const word = reinterpret_cast<Word*>(address);
  Word old = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(word, &old, static_cast<Word>(ToBits<T>(change(FromBits<T>(old)))),
                                      false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  SwitchPoint();
  return FromBits<T>(old);
}

}  // namespace sok::on_host

#define SOK_ATOMIC(NAME, T, CHANGE)                                                                         \
  inline T NAME(T* address, T value, SOK_CALLED_AT) {                                                       \
    return sok::on_host::AtomicChange(address, place, [=]([[maybe_unused]] T old) -> T { return CHANGE; }); \
  }
#define SOK_ATOMIC_CAS(T)                                                                         \
  inline T atomicCAS(T* address, T expected, T value, SOK_CALLED_AT) {                            \
    return sok::on_host::AtomicChange(address, place,                                             \
                                      [=](T old) -> T { return old == expected ? value : old; }); \
  }

// Sums wrap around.
SOK_ATOMIC(atomicAdd, int, static_cast<int>(static_cast<unsigned>(old) + static_cast<unsigned>(value)))
SOK_ATOMIC(atomicAdd, unsigned, old + value)
SOK_ATOMIC(atomicAdd, unsigned long long, old + value)
SOK_ATOMIC(atomicAdd, float, old + value)
SOK_ATOMIC(atomicAdd, double, old + value)
SOK_ATOMIC(atomicMin, int, old < value ? old : value)
SOK_ATOMIC(atomicMin, unsigned, old < value ? old : value)
SOK_ATOMIC(atomicMin, unsigned long long, old < value ? old : value)
SOK_ATOMIC(atomicMin, long long, old < value ? old : value)
SOK_ATOMIC(atomicMax, int, old > value ? old : value)
SOK_ATOMIC(atomicMax, unsigned, old > value ? old : value)
SOK_ATOMIC(atomicMax, unsigned long long, old > value ? old : value)
SOK_ATOMIC(atomicMax, long long, old > value ? old : value)
SOK_ATOMIC(atomicAnd, int, old& value)
SOK_ATOMIC(atomicAnd, unsigned, old& value)
SOK_ATOMIC(atomicAnd, unsigned long long, old& value)
SOK_ATOMIC(atomicOr, int, old | value)
SOK_ATOMIC(atomicOr, unsigned, old | value)
SOK_ATOMIC(atomicOr, unsigned long long, old | value)
SOK_ATOMIC(atomicXor, int, old ^ value)
SOK_ATOMIC(atomicXor, unsigned, old ^ value)
SOK_ATOMIC(atomicXor, unsigned long long, old ^ value)
SOK_ATOMIC_CAS(int)
SOK_ATOMIC_CAS(unsigned)
SOK_ATOMIC_CAS(unsigned long long)
SOK_ATOMIC_CAS(unsigned short)

#undef SOK_ATOMIC_CAS
#undef SOK_ATOMIC

#endif  // SOK_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_ATOMICS_H_

// CUDA's atomic functions: relaxed, for the types that CUDA has and no others. CUDA has none for `long`,
// which int64_t and uint64_t are on Linux: use cuda::atomic_ref.
#ifndef SOK_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_ATOMICS_H_
#define SOK_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_ATOMICS_H_

#include "cuda_on_host/engine.h"

namespace sok::on_host {

// Replaces *address by change(*address) in one step; returns what was there.
template <typename T, typename Change>
T AtomicChange(T* address, bool block_scope, Place place, const Change& change) {
  using Word =
      std::conditional_t<sizeof(T) == 8, uint64_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>>;
  static_assert(sizeof(T) == sizeof(Word));
  BeforeAtomic(address, sizeof(T), block_scope, place);
  Word* const word = reinterpret_cast<Word*>(address);
  Word old = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(word, &old, static_cast<Word>(ToBits<T>(change(FromBits<T>(old)))),
                                      false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  SwitchPoint();
  return FromBits<T>(old);
}

}  // namespace sok::on_host

// One function, in device, block and system scope.
#define SOK_ATOMIC_OF_SCOPE(NAME, T, CHANGE, BLOCK)                                         \
  inline T NAME(T* address, T value, SOK_CALLED_AT) {                                       \
    return sok::on_host::AtomicChange(address, BLOCK, place,                                \
                                      [=]([[maybe_unused]] T old) -> T { return CHANGE; }); \
  }
#define SOK_ATOMIC(NAME, T, CHANGE)                    \
  SOK_ATOMIC_OF_SCOPE(NAME, T, CHANGE, false)          \
  SOK_ATOMIC_OF_SCOPE(NAME##_system, T, CHANGE, false) \
  SOK_ATOMIC_OF_SCOPE(NAME##_block, T, CHANGE, true)
#define SOK_ATOMIC_CAS_OF_SCOPE(NAME, T, BLOCK)                                                   \
  inline T NAME(T* address, T expected, T value, SOK_CALLED_AT) {                                 \
    return sok::on_host::AtomicChange(address, BLOCK, place,                                      \
                                      [=](T old) -> T { return old == expected ? value : old; }); \
  }
#define SOK_ATOMIC_CAS(T)                             \
  SOK_ATOMIC_CAS_OF_SCOPE(atomicCAS, T, false)        \
  SOK_ATOMIC_CAS_OF_SCOPE(atomicCAS_system, T, false) \
  SOK_ATOMIC_CAS_OF_SCOPE(atomicCAS_block, T, true)

// Sums wrap around.
SOK_ATOMIC(atomicAdd, int, static_cast<int>(static_cast<unsigned>(old) + static_cast<unsigned>(value)))
SOK_ATOMIC(atomicAdd, unsigned, old + value)
SOK_ATOMIC(atomicAdd, unsigned long long, old + value)
SOK_ATOMIC(atomicAdd, float, old + value)
SOK_ATOMIC(atomicAdd, double, old + value)
SOK_ATOMIC(atomicSub, int, static_cast<int>(static_cast<unsigned>(old) - static_cast<unsigned>(value)))
SOK_ATOMIC(atomicSub, unsigned, old - value)
SOK_ATOMIC(atomicExch, int, value)
SOK_ATOMIC(atomicExch, unsigned, value)
SOK_ATOMIC(atomicExch, unsigned long long, value)
SOK_ATOMIC(atomicExch, float, value)
SOK_ATOMIC(atomicMin, int, old < value ? old : value)
SOK_ATOMIC(atomicMin, unsigned, old < value ? old : value)
SOK_ATOMIC(atomicMin, unsigned long long, old < value ? old : value)
SOK_ATOMIC(atomicMin, long long, old < value ? old : value)
SOK_ATOMIC(atomicMax, int, old > value ? old : value)
SOK_ATOMIC(atomicMax, unsigned, old > value ? old : value)
SOK_ATOMIC(atomicMax, unsigned long long, old > value ? old : value)
SOK_ATOMIC(atomicMax, long long, old > value ? old : value)
SOK_ATOMIC(atomicInc, unsigned, old >= value ? 0 : old + 1)
SOK_ATOMIC(atomicDec, unsigned, old == 0 || old > value ? value : old - 1)
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
#undef SOK_ATOMIC_CAS_OF_SCOPE
#undef SOK_ATOMIC
#undef SOK_ATOMIC_OF_SCOPE

// ThreadSanitizer does not understand fences: order memory by acquire and release of cuda::atomic_ref.
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

#endif  // SOK_CUDA_ON_HOST_INCLUDE_CUDA_ON_HOST_ATOMICS_H_

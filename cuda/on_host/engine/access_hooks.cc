// Sees every access to memory that a kernel makes.
//
// In builds without a sanitizer, kernels are compiled with -fsanitize=thread but not linked with
// ThreadSanitizer: the functions called at each access are defined here. So an access to memory that a CUDA
// thread may not touch is reported to the byte, and an access to memory that threads share is a switch point.
// Under ThreadSanitizer, its own functions are linked; under AddressSanitizer, kernels are compiled for that
// instead.
#if !defined(__SANITIZE_THREAD__)

#include <cstddef>
#include <cstdint>

#include "cuda/on_host/engine/block.h"

namespace sok::on_host {
namespace {

[[gnu::noinline]] void CheckAccess(Fiber* fiber, const void* address, size_t bytes, bool writes,
                                   const void* code) {
  const Memory memory = MemoryOf(*fiber, address, bytes);
  if (memory == Memory::kForbidden) {
    ReportAt(code, "a kernel %s %zu bytes of %s", writes ? "writes" : "reads", bytes,
             DescribeForbidden(*fiber, address).c_str());
  }
  if (memory == Memory::kGlobal && !fiber->may_access) {
    ReportAt(code, "a kernel %s device memory before it waits for the kernels before it",
             writes ? "writes" : "reads");
  }
  if (memory == Memory::kGlobal || memory == Memory::kShared) fiber->block->AccessPoint();
}

inline void OnAccess(const void* address, size_t bytes, bool writes, const void* code) {
  Fiber* const fiber = Block::Current();
  if (fiber == nullptr) return;  // the compiler shares inline functions between kernels and the host
  const auto offset = static_cast<size_t>(static_cast<const char*>(address) - fiber->stack.bottom());
  if (offset >= Stack::bytes()) CheckAccess(fiber, address, bytes, writes, code);
}

inline void OnRange(const void* address, size_t bytes, bool writes, const void* code) {
  if (bytes > 0) OnAccess(address, bytes, writes, code);
}

}  // namespace
}  // namespace sok::on_host

using sok::on_host::OnAccess;
using sok::on_host::OnRange;

#define CALLER __builtin_return_address(0)
#define ACCESS(NAME, BYTES, WRITES) \
  void __tsan_##NAME##BYTES(void* address) { OnAccess(address, BYTES, WRITES, CALLER); }
#define ACCESSES(NAME, WRITES) \
  ACCESS(NAME, 1, WRITES)      \
  ACCESS(NAME, 2, WRITES)      \
  ACCESS(NAME, 4, WRITES)      \
  ACCESS(NAME, 8, WRITES)      \
  ACCESS(NAME, 16, WRITES)

extern "C" {
ACCESSES(read, false)
ACCESSES(write, true)
ACCESSES(unaligned_read, false)
ACCESSES(unaligned_write, true)
ACCESSES(volatile_read, false)
ACCESSES(volatile_write, true)
ACCESSES(unaligned_volatile_read, false)
ACCESSES(unaligned_volatile_write, true)
void __tsan_read_range(void* address, size_t bytes) { OnRange(address, bytes, false, CALLER); }
void __tsan_write_range(void* address, size_t bytes) { OnRange(address, bytes, true, CALLER); }

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_atomic_thread_fence(int order) { __atomic_thread_fence(order); }
void __tsan_atomic_signal_fence(int order) { __atomic_signal_fence(order); }

// The compiler calls these for all atomics. Kernels use them through the stand-ins, which have checked the
// address.
#define ATOMICS(BITS)                                                                         \
  ATOMICS_OF(BITS, uint##BITS##_t)                                                            \
  void __tsan_atomic##BITS##_store(volatile uint##BITS##_t* a, uint##BITS##_t v, int order) { \
    __atomic_store_n(a, v, order);                                                            \
  }                                                                                           \
  uint##BITS##_t __tsan_atomic##BITS##_load(const volatile uint##BITS##_t* a, int order) {    \
    return __atomic_load_n(a, order);                                                         \
  }
#define FETCH(NAME, BITS, T) \
  T __tsan_atomic##BITS##_##NAME(volatile T* a, T v, int) { return __atomic_##NAME(a, v, __ATOMIC_SEQ_CST); }
#define ATOMICS_OF(BITS, T)                                                                        \
  FETCH(fetch_add, BITS, T)                                                                        \
  FETCH(fetch_sub, BITS, T)                                                                        \
  FETCH(fetch_and, BITS, T)                                                                        \
  FETCH(fetch_or, BITS, T)                                                                         \
  FETCH(fetch_xor, BITS, T)                                                                        \
  FETCH(fetch_nand, BITS, T)                                                                       \
  T __tsan_atomic##BITS##_exchange(volatile T* a, T v, int) {                                      \
    return __atomic_exchange_n(a, v, __ATOMIC_SEQ_CST);                                            \
  }                                                                                                \
  int __tsan_atomic##BITS##_compare_exchange_strong(volatile T* a, T* expected, T v, int, int) {   \
    return __atomic_compare_exchange_n(a, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }                                                                                                \
  int __tsan_atomic##BITS##_compare_exchange_weak(volatile T* a, T* expected, T v, int, int) {     \
    return __atomic_compare_exchange_n(a, expected, v, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);  \
  }                                                                                                \
  T __tsan_atomic##BITS##_compare_exchange_val(volatile T* a, T expected, T v, int, int) {         \
    __atomic_compare_exchange_n(a, &expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);       \
    return expected;                                                                               \
  }
ATOMICS(8)
ATOMICS(16)
ATOMICS(32)
ATOMICS(64)
}

#endif  // !__SANITIZE_THREAD__

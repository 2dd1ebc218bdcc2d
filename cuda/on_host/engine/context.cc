#include <cstdint>
#include <mutex>
#include <vector>

#include "cuda/on_host/engine/block.h"
#include "cuda/on_host/engine/device_memory.h"
#include "cuda/on_host/engine/sanitizers.h"

namespace sok::on_host {
namespace {

constexpr size_t kGuardBytes = 4096;

std::mutex pool_mutex;
std::vector<char*>& Pool() {
  static auto& pool = *new std::vector<char*>();
  return pool;
}

}  // namespace

// Instrumented code needs more stack.
size_t Stack::bytes() { return HasAsan() || HasTsan() ? size_t{256} << 10 : size_t{64} << 10; }

Stack Stack::Take() {
  {
    const std::lock_guard<std::mutex> lock(pool_mutex);
    if (!Pool().empty()) {
      char* const bottom = Pool().back();
      Pool().pop_back();
      return Stack(bottom);
    }
  }
  char* const memory = MapMemory(kGuardBytes + bytes(), 0);
  ForbidMemory(memory, kGuardBytes);
  return Stack(memory + kGuardBytes);
}

bool Stack::IsBelow(const void* address) const {
  return static_cast<size_t>(bottom_ - static_cast<const char*>(address)) - 1 < kGuardBytes;
}

void Stack::Return() {
  // The frames of the kernel that ended are no longer in use.
  AsanUnpoison(bottom_, bytes());
  const std::lock_guard<std::mutex> lock(pool_mutex);
  Pool().push_back(bottom_);
}

#if defined(SOK_ON_HOST_ASSEMBLY)

// Pushes the registers that a function must keep, stores the stack pointer in *from, and returns on the stack
// `to`.
extern "C" void SokOnHostSwitchStack(void** from, void* to);
asm(R"(
.text
.p2align 4
.type SokOnHostSwitchStack, @function
SokOnHostSwitchStack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size SokOnHostSwitchStack, .-SokOnHostSwitchStack
)");

void Context::Prepare(const Stack& stack, void (*entry)()) {
  constexpr int kKeptRegisters = 6;
  // If all stacks began at the same offset in a page, they would compete for the same cache lines.
  constexpr size_t kColors = 32, kColorBytes = 128;
  const size_t color = reinterpret_cast<uintptr_t>(stack.bottom()) / kGuardBytes % kColors;
  void** top = reinterpret_cast<void**>(stack.bottom() + Stack::bytes() - color * kColorBytes);
  *--top = nullptr;  // the return address of `entry`, which also aligns the stack as a call would
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < kKeptRegisters; ++i) *--top = nullptr;
  stack_pointer_ = top;
}

void Context::SwitchTo(Context* other) { SokOnHostSwitchStack(&stack_pointer_, other->stack_pointer_); }

#else

void Context::Prepare(const Stack& stack, void (*entry)()) {
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack.bottom();
  context_.uc_stack.ss_size = Stack::bytes();
  context_.uc_link = nullptr;
  makecontext(&context_, entry, 0);
}

void Context::SwitchTo(Context* other) { swapcontext(&context_, &other->context_); }

#endif

}  // namespace sok::on_host

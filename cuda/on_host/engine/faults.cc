#include <signal.h>

#include <cstddef>

#include "cuda/on_host/engine/block.h"
#include "cuda/on_host/engine/device_memory.h"

namespace sok::on_host {
namespace {

struct sigaction next_action;

void OnFault(int signal, siginfo_t* info, void* context) {
  const void* const address = info->si_addr;
  if (DeviceMemory::Get().OpenAt(address, 1)) return;  // the access is tried again
  sigaction(signal, &next_action, nullptr);
  const Fiber* const fiber = Block::Current();
  if (DeviceMemory::Get().Owns(address)) {
    Report({}, "%s touched %s", fiber != nullptr ? "a kernel" : "the host", DescribeAddress(address).c_str());
  }
  if (fiber != nullptr && fiber->stack.IsBelow(address)) {
    Report({}, "a CUDA thread needs more than %zu bytes for local variables and calls", Stack::bytes());
  }
  if ((next_action.sa_flags & SA_SIGINFO) != 0) {
    next_action.sa_sigaction(signal, info, context);
  } else if (next_action.sa_handler != SIG_DFL && next_action.sa_handler != SIG_IGN) {
    next_action.sa_handler(signal);
  }
  // Otherwise the access is tried again, and ends the process.
}

}  // namespace

void ReportFaults() {
  struct sigaction action = {};
  action.sa_sigaction = OnFault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  sigaction(SIGSEGV, &action, &next_action);
}

void PrepareForFaults() {
  static __thread bool prepared;
  if (prepared) return;
  prepared = true;
  stack_t stack = {};
  // A sanitizer has set one.
  if (sigaltstack(nullptr, &stack) != 0 || (stack.ss_flags & SS_DISABLE) == 0) return;
  constexpr size_t kBytes = size_t{128} << 10;
  stack.ss_sp = MapMemory(kBytes, 0);
  stack.ss_size = kBytes;
  stack.ss_flags = 0;
  sigaltstack(&stack, nullptr);
}

}  // namespace sok::on_host

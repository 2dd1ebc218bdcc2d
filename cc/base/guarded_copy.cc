#include "cc/base/guarded_copy.h"

#include <pthread.h>

#include <atomic>

#include "cc/base/mutex.h"

#if defined(__x86_64__)
#include <ucontext.h>

// sok_copy_guarded(to, from, bytes): true, or false if an instruction before sok_copy_guarded_end fails. It
// leaves the stack alone, so that a thread can go on at sok_copy_guarded_failed from any of them.
asm(R"(
.pushsection .text
.p2align 5
.globl sok_copy_guarded
.hidden sok_copy_guarded
.hidden sok_copy_guarded_end
.hidden sok_copy_guarded_failed
.globl sok_copy_guarded_end
.globl sok_copy_guarded_failed
.type sok_copy_guarded, @function
sok_copy_guarded:
  .cfi_startproc
  subq $64, %rdx
  jb 2f
1:
  movups (%rsi), %xmm0
  movups 16(%rsi), %xmm1
  movups 32(%rsi), %xmm2
  movups 48(%rsi), %xmm3
  movups %xmm0, (%rdi)
  movups %xmm1, 16(%rdi)
  movups %xmm2, 32(%rdi)
  movups %xmm3, 48(%rdi)
  addq $64, %rsi
  addq $64, %rdi
  subq $64, %rdx
  jae 1b
2:
  addq $56, %rdx
  js 4f
3:
  movq (%rsi), %rax
  movq %rax, (%rdi)
  addq $8, %rsi
  addq $8, %rdi
  subq $8, %rdx
  jns 3b
4:
  addq $8, %rdx
  jz 6f
5:
  movb (%rsi), %al
  movb %al, (%rdi)
  incq %rsi
  incq %rdi
  decq %rdx
  jnz 5b
6:
  movl $1, %eax
  ret
sok_copy_guarded_end:
sok_copy_guarded_failed:
  xorl %eax, %eax
  ret
  .cfi_endproc
.size sok_copy_guarded, . - sok_copy_guarded
.popsection
)");

extern "C" {
bool sok_copy_guarded(void* to, const void* from, size_t bytes);
extern const char sok_copy_guarded_end[];
extern const char sok_copy_guarded_failed[];
}

namespace sok {
namespace {

bool CopyGuarded(void* to, const void* from, size_t bytes) { return sok_copy_guarded(to, from, bytes); }

// If the thread is in a copy, lets it return false.
bool LeaveCopy(void* context) {
  greg_t& next = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP];
  const auto begin = reinterpret_cast<greg_t>(&sok_copy_guarded);
  if (next < begin || next >= reinterpret_cast<greg_t>(sok_copy_guarded_end)) return false;
  next = reinterpret_cast<greg_t>(sok_copy_guarded_failed);
  return true;
}

}  // namespace

bool GuardedCopies::Exist() { return true; }

}  // namespace sok
#else
namespace sok {
namespace {

bool CopyGuarded(void* /*to*/, const void* /*from*/, size_t /*bytes*/) { return false; }
bool LeaveCopy(void* /*context*/) { return false; }

}  // namespace

bool GuardedCopies::Exist() { return false; }

}  // namespace sok
#endif

namespace sok {
namespace {

// The handlers that were there before, the latest last. Each gets one signal: Python's faulthandler sends the
// signal again, to what it replaced, which may be this one.
constexpr int kMostFormer = 8;
struct sigaction former[kMostFormer];
std::atomic<int> formers{0};

// Writes only if the process is about to end, or another handler goes on as if it had been there alone.
void OnBusError(int number, siginfo_t* info, void* context) {
  const bool is_fault = info->si_code > 0;
  if (is_fault && LeaveCopy(context)) return;
  struct sigaction next = {};
  next.sa_handler = SIG_DFL;
  const int count = formers.load(std::memory_order_acquire);
  if (count > 0) {
    next = former[count - 1];
    formers.store(count - 1, std::memory_order_release);
  }
  sigaction(SIGBUS, &next, nullptr);
  // The instruction of a fault is tried again, and fails again. A signal that was sent is not.
  if (!is_fault) raise(number);
}

bool IsInstalled(struct sigaction* now) {
  sigaction(SIGBUS, nullptr, now);
  return (now->sa_flags & SA_SIGINFO) != 0 && now->sa_sigaction == &OnBusError;
}

void Install() {
  static Mutex mutex;
  const MutexLock lock(mutex);
  struct sigaction now;
  if (IsInstalled(&now)) return;
  const int count = formers.load(std::memory_order_acquire);
  const int at = count < kMostFormer ? count : kMostFormer - 1;
  former[at] = now;
  formers.store(at + 1, std::memory_order_release);
  struct sigaction own = {};
  own.sa_sigaction = &OnBusError;
  own.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGBUS, &own, nullptr);
}

}  // namespace

GuardedCopies::GuardedCopies() {
  struct sigaction now;
  if (!IsInstalled(&now)) Install();
  // A fault in a thread that blocks the signal ends the process.
  sigset_t bus;
  sigset_t before;
  sigemptyset(&bus);
  sigaddset(&bus, SIGBUS);
  pthread_sigmask(SIG_UNBLOCK, &bus, &before);
  was_blocked_ = sigismember(&before, SIGBUS) == 1;
}

GuardedCopies::~GuardedCopies() {
  if (!was_blocked_) return;
  sigset_t bus;
  sigemptyset(&bus);
  sigaddset(&bus, SIGBUS);
  pthread_sigmask(SIG_BLOCK, &bus, nullptr);
}

bool GuardedCopies::Copy(const void* from, size_t bytes, void* to) const {
  return CopyGuarded(to, from, bytes);
}

}  // namespace sok

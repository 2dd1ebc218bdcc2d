// A library that makes calls of its process to the operating system fail: see README.md.
//
// A seccomp filter sends every call about files to a handler of SIGSYS, whichever library makes it. The
// handler makes the call, except for the one that is to fail. Allocations and threads of sok_ops.so are
// refused by functions that stand in for the C library's in its table of imported functions. Linux on x86-64
// only.
//
// The handler may interrupt anything, so it only uses atomic variables and calls of its own.
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

// long RawCall(long number, const long arguments[6]): a system call that the filter lets through, because it
// is made from here.
asm(R"(
  .text
  .hidden RawCall
  .hidden RawCallEnd
  .globl RawCall
  .globl RawCallEnd
RawCall:
  mov %rdi, %rax
  mov 40(%rsi), %r9
  mov 32(%rsi), %r8
  mov 24(%rsi), %r10
  mov 16(%rsi), %rdx
  mov 0(%rsi), %rdi
  mov 8(%rsi), %rsi
  syscall
RawCallEnd:
  ret
)");
extern "C" long RawCall(long number, const long* arguments);
extern "C" const char RawCallEnd[];

namespace {

// How a call fails. The values are known to shim.py.
enum Mode { kNone, kFail, kFailAfter, kShort, kKillBefore, kKillAfter };

enum Kind {
  kOpen,
  kCreate,
  kRead,
  kWrite,
  kSync,
  kRename,
  kLink,
  kUnlink,
  kMakeFolder,
  kResize,
  kLock,
  kClose,
  kQuestion,
  kList,
  kMap,
  kSeek,
  kAdvise,
  kControl,
  kKinds
};
const char* const kNames =
    "open create read write sync rename link unlink make_folder resize lock close question "
    "list map seek advise control";

// Which of a call's arguments say what it is about: a descriptor, or a path relative to a folder's
// descriptor.
constexpr int kNoArgument = -1;
struct Call {
  long number;
  Kind kind;
  int descriptor = kNoArgument;
  int path = kNoArgument;
  int flags = kNoArgument;  // O_CREAT among them makes it kCreate
};
constexpr Call About(long number, Kind kind, int descriptor) { return {number, kind, descriptor}; }
constexpr Call AtPath(long number, Kind kind, int path) { return {number, kind, kNoArgument, path}; }
constexpr Call AtFolder(long number, Kind kind, int folder) { return {number, kind, folder, folder + 1}; }

const Call kCalls[] = {
    {SYS_open, kOpen, kNoArgument, 0, 1},
    {SYS_openat, kOpen, 0, 1, 2},
    AtPath(SYS_creat, kCreate, 0),
    About(SYS_read, kRead, 0),
    About(SYS_pread64, kRead, 0),
    About(SYS_readv, kRead, 0),
    About(SYS_write, kWrite, 0),
    About(SYS_pwrite64, kWrite, 0),
    About(SYS_writev, kWrite, 0),
    About(SYS_sendfile, kWrite, 0),
    About(SYS_copy_file_range, kWrite, 2),
    About(SYS_fsync, kSync, 0),
    About(SYS_fdatasync, kSync, 0),
    About(SYS_sync_file_range, kSync, 0),
    AtPath(SYS_rename, kRename, 1),
    AtFolder(SYS_renameat, kRename, 2),
    AtFolder(SYS_renameat2, kRename, 2),
    AtPath(SYS_link, kLink, 1),
    AtFolder(SYS_linkat, kLink, 2),
    AtPath(SYS_symlink, kLink, 1),
    AtFolder(SYS_symlinkat, kLink, 1),
    AtPath(SYS_unlink, kUnlink, 0),
    AtFolder(SYS_unlinkat, kUnlink, 0),
    AtPath(SYS_rmdir, kUnlink, 0),
    AtPath(SYS_mkdir, kMakeFolder, 0),
    AtFolder(SYS_mkdirat, kMakeFolder, 0),
    AtPath(SYS_truncate, kResize, 0),
    About(SYS_ftruncate, kResize, 0),
    About(SYS_fallocate, kResize, 0),
    About(SYS_flock, kLock, 0),
    About(SYS_close, kClose, 0),
    AtPath(SYS_stat, kQuestion, 0),
    AtPath(SYS_lstat, kQuestion, 0),
    About(SYS_fstat, kQuestion, 0),
    AtFolder(SYS_newfstatat, kQuestion, 0),
    AtFolder(SYS_statx, kQuestion, 0),
    AtPath(SYS_access, kQuestion, 0),
    AtFolder(SYS_faccessat, kQuestion, 0),
    AtFolder(SYS_faccessat2, kQuestion, 0),
    AtPath(SYS_readlink, kQuestion, 0),
    AtFolder(SYS_readlinkat, kQuestion, 0),
    About(SYS_getdents64, kList, 0),
    About(SYS_mmap, kMap, 4),
    About(SYS_lseek, kSeek, 0),
    About(SYS_fadvise64, kAdvise, 0),
    AtPath(SYS_chmod, kControl, 0),
    About(SYS_fchmod, kControl, 0),
    AtFolder(SYS_fchmodat, kControl, 0),
    About(SYS_fcntl, kControl, 0),
    About(SYS_ioctl, kControl, 0),
    About(SYS_dup, kControl, 0),
};

// What is to fail: the call with this number among those of some kinds, and with `lasting` all after it.
struct Order {
  std::atomic<int> mode{kNone};
  std::atomic<uint32_t> kinds{0};  // a bit for each
  std::atomic<int> number{0};
  std::atomic<int> error{0};
  std::atomic<bool> lasting{false};
};
Order order;
std::atomic<bool> counting{false};
std::atomic<int> seen[kKinds];
std::atomic<int> ordered{0};
std::atomic<int> failures{0};
char failed_path[PATH_MAX];
char folder[PATH_MAX];
size_t folder_length = 0;

long Make(long number, long a = 0, long b = 0, long c = 0) {
  const long arguments[6] = {a, b, c, 0, 0, 0};
  return RawCall(number, arguments);
}
long Address(const void* pointer) { return static_cast<long>(reinterpret_cast<uintptr_t>(pointer)); }

// The path of an open file, without snprintf, which is not safe in a handler.
size_t PathOfDescriptor(long descriptor, char* path) {
  char link[40] = "/proc/self/fd/";
  char digits[24];
  int count = 0;
  for (long rest = descriptor; rest > 0 || count == 0; rest /= 10)
    digits[count++] = static_cast<char>('0' + rest % 10);
  size_t length = strlen(link);
  while (count > 0) link[length++] = digits[--count];
  link[length] = 0;
  const long size = Make(SYS_readlink, Address(link), Address(path), PATH_MAX - 1);
  return size < 0 ? 0 : static_cast<size_t>(size);
}

// Writes the absolute path that a call is about; an empty one if it is about none.
void PathOf(const Call& call, const long* arguments, char* path) {
  path[0] = 0;
  const bool has_folder = call.descriptor != kNoArgument;
  const int descriptor = has_folder ? static_cast<int>(arguments[call.descriptor]) : AT_FDCWD;
  const char* name = call.path == kNoArgument ? "" : reinterpret_cast<const char*>(arguments[call.path]);
  if (name == nullptr) name = "";
  size_t length = 0;
  if (name[0] != '/') {
    if (descriptor == AT_FDCWD) {
      const long size = Make(SYS_getcwd, Address(path), PATH_MAX);
      length = size > 0 ? static_cast<size_t>(size) - 1 : 0;
    } else if (descriptor >= 0) {
      length = PathOfDescriptor(descriptor, path);
    }
    if (name[0] != 0 && length + 1 < PATH_MAX) path[length++] = '/';
  }
  for (; *name != 0 && length + 1 < PATH_MAX; ++name) path[length++] = *name;
  path[length] = 0;
}

bool IsBelowFolder(const char* path) {
  if (strncmp(path, folder, folder_length) != 0) return false;
  const char next = path[folder_length];
  return next == '/' || next == 0 || next == ' ';  // " (deleted)"
}

[[noreturn]] void End() {
  for (;;) Make(SYS_kill, Make(SYS_getpid), SIGKILL);
}

// Whether the call is one that is to fail.
bool IsOrdered(Kind kind) {
  seen[kind] += 1;
  if (order.mode == kNone || (order.kinds >> kind & 1) == 0) return false;
  const int number = ordered.fetch_add(1) + 1;
  return order.lasting ? number >= order.number : number == order.number;
}

long Handle(long number, long* arguments) {
  const Call* call = std::find_if(std::begin(kCalls), std::end(kCalls),
                                  [number](const Call& one) { return one.number == number; });
  if (!counting || call == std::end(kCalls)) return RawCall(number, arguments);
  char path[PATH_MAX];
  PathOf(*call, arguments, path);
  if (!IsBelowFolder(path)) return RawCall(number, arguments);
  const bool creates = call->flags != kNoArgument && (arguments[call->flags] & O_CREAT) != 0;
  const Kind kind = creates ? kCreate : call->kind;
  if (!IsOrdered(kind)) return RawCall(number, arguments);
  failures += 1;
  memcpy(failed_path, path, sizeof path);
  const int mode = order.mode;
  if (mode == kKillBefore) End();
  // A file is closed even if close() returns an error.
  if (mode == kFail && kind != kClose) return -order.error;
  const bool has_size = number != SYS_readv && number != SYS_writev && number != SYS_copy_file_range;
  if (mode == kShort && has_size && arguments[2] > 1) arguments[2] /= 2;
  const long result = RawCall(number, arguments);
  if (mode == kKillAfter) End();
  // No descriptor comes with an error.
  if ((kind == kOpen || kind == kCreate) && result >= 0) Make(SYS_close, result);
  return mode == kShort ? result : -order.error;
}

void OnTrap(int, siginfo_t* info, void* context) {
  const int saved = errno;
  greg_t* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  long arguments[6] = {registers[REG_RDI], registers[REG_RSI], registers[REG_RDX],
                       registers[REG_R10], registers[REG_R8],  registers[REG_R9]};
  registers[REG_RAX] = Handle(info->si_syscall, arguments);
  errno = saved;
}

// Lets through what RawCall makes and maps of memory, and traps kCalls.
std::vector<sock_filter> Filter() {
  const auto load = [](size_t offset) {
    return sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset));
  };
  const auto skip_unless = [](uint64_t value, uint8_t skipped) {
    return sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(value), 0, skipped);
  };
  const auto return_ = [](uint32_t action) { return sock_filter BPF_STMT(BPF_RET | BPF_K, action); };
  const uint64_t from = reinterpret_cast<uintptr_t>(RawCallEnd);
  const size_t instruction = offsetof(seccomp_data, instruction_pointer);
  std::vector<sock_filter> filter = {load(instruction),
                                     skip_unless(from, 3),
                                     load(instruction + 4),
                                     skip_unless(from >> 32, 1),
                                     return_(SECCOMP_RET_ALLOW),
                                     load(offsetof(seccomp_data, nr)),
                                     skip_unless(SYS_mmap, 3),
                                     load(offsetof(seccomp_data, args) + 4 * 8),
                                     skip_unless(0xffffffffu, 1),
                                     return_(SECCOMP_RET_ALLOW),
                                     load(offsetof(seccomp_data, nr))};
  for (const Call& call : kCalls) {
    filter.push_back(skip_unless(static_cast<uint64_t>(call.number), 1));
    filter.push_back(return_(SECCOMP_RET_TRAP));
  }
  filter.push_back(return_(SECCOMP_RET_ALLOW));
  return filter;
}

// Allocations of at least this many bytes are counted, and the one with the number fails, and with `lasting`
// all after it; the same for threads.
struct Refusal {
  std::atomic<int> number{0};
  std::atomic<bool> lasting{false};
  std::atomic<int> asked{0};
  std::atomic<int> refused{0};

  bool Refuses() {
    const int at = asked.fetch_add(1) + 1;
    if (number == 0 || (lasting ? at < number : at != number)) return false;
    refused += 1;
    return true;
  }
};
std::atomic<size_t> counted_bytes{SIZE_MAX};
Refusal memory;
Refusal threads;

bool RefusesBytes(size_t bytes) { return bytes >= counted_bytes && memory.Refuses(); }
void* Refused() {
  errno = ENOMEM;
  return nullptr;
}

void* Malloc(size_t bytes) { return RefusesBytes(bytes) ? Refused() : malloc(bytes); }
void* Calloc(size_t count, size_t bytes) {
  return RefusesBytes(count * bytes) ? Refused() : calloc(count, bytes);
}
void* Realloc(void* old, size_t bytes) { return RefusesBytes(bytes) ? Refused() : realloc(old, bytes); }
void* AlignedAlloc(size_t alignment, size_t bytes) {
  return RefusesBytes(bytes) ? Refused() : aligned_alloc(alignment, bytes);
}
void* New(size_t bytes) {
  if (RefusesBytes(bytes)) throw std::bad_alloc();
  return operator new(bytes);
}
void* NewOrNull(size_t bytes, const std::nothrow_t&) {
  return RefusesBytes(bytes) ? nullptr : operator new(bytes, std::nothrow);
}
void* Map(void* at, size_t bytes, int protection, int flags, int file, off_t offset) {
  if (!RefusesBytes(bytes)) return mmap(at, bytes, protection, flags, file, offset);
  Refused();
  return MAP_FAILED;
}
int StartThread(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* argument) {
  return threads.Refuses() ? EAGAIN : pthread_create(thread, attributes, run, argument);
}

struct Import {
  const char* name;
  void* stand_in;
};
const Import kImports[] = {{"malloc", reinterpret_cast<void*>(Malloc)},
                           {"calloc", reinterpret_cast<void*>(Calloc)},
                           {"realloc", reinterpret_cast<void*>(Realloc)},
                           {"aligned_alloc", reinterpret_cast<void*>(AlignedAlloc)},
                           {"_Znwm", reinterpret_cast<void*>(New)},
                           {"_Znam", reinterpret_cast<void*>(New)},
                           {"_ZnwmRKSt9nothrow_t", reinterpret_cast<void*>(NewOrNull)},
                           {"_ZnamRKSt9nothrow_t", reinterpret_cast<void*>(NewOrNull)},
                           {"mmap", reinterpret_cast<void*>(Map)},
                           {"pthread_create", reinterpret_cast<void*>(StartThread)}};

// The parts of a loaded library's dynamic section that name what it imports, and from where it is called.
struct Dynamic {
  const Elf64_Sym* symbols = nullptr;
  const char* names = nullptr;
  const Elf64_Rela* tables[2] = {nullptr, nullptr};
  size_t bytes[2] = {0, 0};
};

Dynamic ReadDynamic(const dl_phdr_info& library) {
  Dynamic found;
  for (int i = 0; i < library.dlpi_phnum; ++i) {
    if (library.dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    const auto* entry = reinterpret_cast<const Elf64_Dyn*>(library.dlpi_addr + library.dlpi_phdr[i].p_vaddr);
    for (; entry->d_tag != DT_NULL; ++entry) {
      const auto address = entry->d_un.d_ptr;
      if (entry->d_tag == DT_SYMTAB) found.symbols = reinterpret_cast<const Elf64_Sym*>(address);
      if (entry->d_tag == DT_STRTAB) found.names = reinterpret_cast<const char*>(address);
      if (entry->d_tag == DT_JMPREL) found.tables[0] = reinterpret_cast<const Elf64_Rela*>(address);
      if (entry->d_tag == DT_PLTRELSZ) found.bytes[0] = entry->d_un.d_val;
      if (entry->d_tag == DT_RELA) found.tables[1] = reinterpret_cast<const Elf64_Rela*>(address);
      if (entry->d_tag == DT_RELASZ) found.bytes[1] = entry->d_un.d_val;
    }
  }
  return found;
}

// Sets where a library finds a function. The place may have been made read-only after loading.
void Redirect(Elf64_Addr place, const void* to) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  mprotect(reinterpret_cast<void*>(place / page * page), page, PROT_READ | PROT_WRITE);
  memcpy(reinterpret_cast<void*>(place), &to, sizeof to);
}

int ReplaceImports(dl_phdr_info* library, size_t, void* replaced) {
  const char* file = strrchr(library->dlpi_name, '/');
  const bool ours = file != nullptr && strcmp(file, "/sok_ops.so") == 0;
  // std::thread starts threads for it.
  const bool of_language = file != nullptr && strncmp(file, "/libstdc++.so", 13) == 0;
  if (!ours && !of_language) return 0;
  const Dynamic dynamic = ReadDynamic(*library);
  for (int table = 0; table < 2; ++table) {
    for (size_t i = 0; i < dynamic.bytes[table] / sizeof(Elf64_Rela); ++i) {
      const Elf64_Rela& one = dynamic.tables[table][i];
      const auto type = ELF64_R_TYPE(one.r_info);
      if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT) continue;
      const char* name = dynamic.names + dynamic.symbols[ELF64_R_SYM(one.r_info)].st_name;
      for (const Import& import : kImports) {
        if (strcmp(name, import.name) != 0 || (of_language && strcmp(name, "pthread_create") != 0)) continue;
        Redirect(library->dlpi_addr + one.r_offset, import.stand_in);
        *static_cast<int*>(replaced) += 1;
      }
    }
  }
  return 0;
}

}  // namespace

extern "C" {

// The names of the kinds, in the order of their numbers.
const char* failing_calls_kinds() { return kNames; }

// From now on, calls about paths below `below` can be counted and fail, in this process and those that it
// forks. Returns whether the system allows it.
bool failing_calls_install(const char* below) {
  if (strlen(below) >= sizeof folder) return false;
  strcpy(folder, below);
  folder_length = strlen(folder);
  struct sigaction action = {};
  action.sa_sigaction = OnTrap;
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART;
  if (sigaction(SIGSYS, &action, nullptr) != 0) return false;
  std::vector<sock_filter> filter = Filter();
  const sock_fprog program = {static_cast<unsigned short>(filter.size()), filter.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

// Counts calls from 0, and makes those fail that the order says; with mode 0 none.
void failing_calls_begin(int mode, uint32_t kinds, int number, int error, bool lasting) {
  counting = false;
  for (std::atomic<int>& count : seen) count = 0;
  ordered = 0;
  failures = 0;
  failed_path[0] = 0;
  order.mode = mode;
  order.kinds = kinds;
  order.number = number;
  order.error = error;
  order.lasting = lasting;
  counting = true;
}

// Ends counting; nothing fails any more. Returns how many calls failed, and writes the path of the last.
int failing_calls_end(char* path, size_t size) {
  counting = false;
  snprintf(path, size, "%s", failed_path);
  return failures;
}

// How many calls of a kind there were.
int failing_calls_count(int kind) { return seen[kind]; }

// Lets allocations and threads of sok_ops.so, which must be loaded, be counted and refused. Returns how many
// of its functions were replaced.
int failing_calls_replace_imports() {
  int replaced = 0;
  dl_iterate_phdr(ReplaceImports, &replaced);
  return replaced;
}

// Counts allocations of at least `bytes` and threads from 0, and refuses those with the numbers (0: none).
void failing_calls_refuse(size_t bytes, int allocation, int thread, bool lasting) {
  counted_bytes = SIZE_MAX;
  threads.number = thread;
  memory.number = allocation;
  for (Refusal* one : {&memory, &threads}) {
    one->lasting = lasting;
    one->asked = 0;
    one->refused = 0;
  }
  counted_bytes = bytes;
}

// Refuses nothing any more. The counts stay.
void failing_calls_stop_refusing() {
  counted_bytes = SIZE_MAX;
  memory.number = 0;
  threads.number = 0;
}

int failing_calls_allocations() { return memory.asked; }
int failing_calls_threads() { return threads.asked; }
int failing_calls_refused() { return memory.refused + threads.refused; }

}  // extern "C"

#include "cuda/on_host/engine/memory_map.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace sok::on_host {
namespace {

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::abort();
}

// Pages that nothing may touch, anywhere or, with MAP_FIXED, in place of those at `address`.
long MapForbidden(void* address, size_t bytes, int flags) {
  const long at = syscall(SYS_mmap, address, bytes, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
  if (at == -1) Die("on_host: mmap");
  return at;
}

}  // namespace

char* MapMemory(size_t bytes, size_t forbidden) {
  const long at = MapForbidden(nullptr, bytes + forbidden, 0);
  char* const begin = reinterpret_cast<char*>(at);
  if (bytes > 0 && mprotect(begin, bytes, PROT_READ | PROT_WRITE) != 0) Die("on_host: mprotect");
  return begin;
}

void ForbidMemory(char* begin, size_t bytes) {
  if (mprotect(begin, bytes, PROT_NONE) != 0) Die("on_host: mprotect");
}

void ReturnMemory(char* begin, size_t bytes) { MapForbidden(begin, bytes, MAP_FIXED); }

}  // namespace sok::on_host

// What the program and its libraries contain: which variables are __shared__, and the names of functions.
#ifndef SOK_CUDA_ON_HOST_ENGINE_MODULES_H_
#define SOK_CUDA_ON_HOST_ENGINE_MODULES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sok::on_host {

struct Range {
  uintptr_t begin = 0, end = 0;
  bool Has(uintptr_t address) const { return address - begin < end - begin; }
};

// The thread_local variables that a thread sees. A block's __shared__ variables are among those of its host
// thread.
struct ThreadVariables {
  std::vector<Range> segments;  // all thread_local memory, by module
  std::vector<Range> shared;    // the variables known to be __shared__
};

// The variables of the calling thread, while it runs `kernel`. Finds __shared__ variables in the symbol
// table, which has an entry for each thread_local variable of a function: those of the kernel itself, and
// those of functions that occur in .cu files only. A stripped library has no such entries.
ThreadVariables VariablesOfThisThread(const void* kernel);

// Code, constants and global variables of all modules.
std::vector<Range> StaticImages();

// "sok::(anonymous namespace)::Kernel(int*)" or the address if the name is unknown.
std::string FunctionAt(const void* address);

// The line of `address`, as addr2line of the binutils finds it: "cuda/kernel.cu:17", or empty. Starts a
// process, so use it for reports only.
std::string LineAt(const void* address);

}  // namespace sok::on_host

#endif  // SOK_CUDA_ON_HOST_ENGINE_MODULES_H_

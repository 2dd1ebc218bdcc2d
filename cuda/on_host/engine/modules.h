// The program and its libraries as the linker left them: which variables are __shared__, and what functions
// are called.
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

// The thread_local variables that a thread sees. A block's __shared__ variables are among its host thread's.
struct ThreadVariables {
  std::vector<Range> segments;  // of each module, all of them
  std::vector<Range> shared;    // those that are known to be __shared__
};

// Those of the calling thread, while it runs `kernel`. Finds __shared__ variables by the symbol table, where
// each thread_local variable of a function has an entry: those of the kernel itself, and those of functions
// that only a .cu file has. A stripped library shows none.
ThreadVariables VariablesOfThisThread(const void* kernel);

// Code, constants and global variables of all modules.
std::vector<Range> StaticImages();

// "sok::(anonymous namespace)::Kernel(int*)" or the address where the name is not known.
std::string FunctionAt(const void* address);

// The line of `address`, as addr2line of the binutils finds it: "cuda/kernel.cu:17", or empty. Takes a
// process, so it is for reports.
std::string LineAt(const void* address);

}  // namespace sok::on_host

#endif  // SOK_CUDA_ON_HOST_ENGINE_MODULES_H_

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "cuda/on_host/engine/block.h"

namespace sok::on_host {
namespace {

struct Symbol {
  std::string name;  // mangled
  uintptr_t value;   // from the module's base; of a thread_local variable, from the begin of its segment
  size_t bytes;
  bool is_of_kernels = false;  // local to a .cu file
};

// The contents of a file's symbol table.
struct SymbolTable {
  std::vector<Symbol> functions;
  std::vector<Symbol> thread_variables;  // of functions
};

// How names of variables of functions begin: _ZZ, the function's name without its _Z, E, the variable's.
constexpr char kVariableOfFunction[] = "_ZZ";

// A file in memory, for as long as this lives.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status = {};
    if (file >= 0 && fstat(file, &status) == 0 && status.st_size > 0) {
      void* const at = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_PRIVATE, file, 0);
      if (at != MAP_FAILED) {
        data_ = static_cast<const char*>(at);
        bytes_ = static_cast<size_t>(status.st_size);
      }
    }
    if (file >= 0) close(file);
  }
  ~MappedFile() {
    if (data_ != nullptr) munmap(const_cast<char*>(data_), bytes_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // `count` objects at an offset; null beyond the end.
  template <typename T>
  const T* At(size_t offset, size_t count = 1) const {
    if (data_ == nullptr || offset > bytes_ || count > (bytes_ - offset) / sizeof(T)) return nullptr;
    return reinterpret_cast<const T*>(data_ + offset);
  }

 private:
  const char* data_ = nullptr;
  size_t bytes_ = 0;
};

bool StartsWith(const std::string& text, const std::string& prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}
bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}
// The build rule's sources are named x.cu.cc.
bool IsKernelSource(const std::string& file) { return EndsWith(file, ".cu") || EndsWith(file, ".cu.cc"); }

void AddSymbols(const MappedFile& file, const Elf64_Shdr& symbols, const Elf64_Shdr& names,
                SymbolTable* table) {
  const size_t count = symbols.sh_size / sizeof(Elf64_Sym);
  const auto* entries = file.At<Elf64_Sym>(symbols.sh_offset, count);
  const auto* text = file.At<char>(names.sh_offset, names.sh_size);
  if (entries == nullptr || text == nullptr) return;
  bool in_kernel_source = false;  // for local symbols, which follow their source file's symbol
  for (size_t i = 0; i < count; ++i) {
    const Elf64_Sym& entry = entries[i];
    if (entry.st_name >= names.sh_size) continue;
    const std::string name = text + entry.st_name;
    const int type = ELF64_ST_TYPE(entry.st_info);
    if (type == STT_FILE) in_kernel_source = IsKernelSource(name);
    if (entry.st_shndx == SHN_UNDEF || entry.st_size == 0) continue;
    if (type == STT_FUNC) table->functions.push_back({name, entry.st_value, entry.st_size});
    if (type == STT_TLS && StartsWith(name, kVariableOfFunction)) {
      const bool is_local = ELF64_ST_BIND(entry.st_info) == STB_LOCAL;
      table->thread_variables.push_back({name, entry.st_value, entry.st_size, is_local && in_kernel_source});
    }
  }
}

SymbolTable ReadSymbols(const std::string& path) {
  SymbolTable table;
  const MappedFile file(path);
  const auto* header = file.At<Elf64_Ehdr>(0);
  if (header == nullptr || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return table;
  const auto* sections = file.At<Elf64_Shdr>(header->e_shoff, header->e_shnum);
  if (sections == nullptr) return table;
  for (int s = 0; s < header->e_shnum; ++s) {
    if (sections[s].sh_type != SHT_SYMTAB || sections[s].sh_link >= header->e_shnum) continue;
    AddSymbols(file, sections[s], sections[sections[s].sh_link], &table);
  }
  return table;
}

// Read once for each file.
const SymbolTable& SymbolsOf(const std::string& path) {
  static std::mutex mutex;
  static auto& tables = *new std::map<std::string, SymbolTable>();
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = tables.find(path);
  if (found != tables.end()) return found->second;
  return tables.emplace(path, ReadSymbols(path)).first->second;
}

std::string PathOf(const dl_phdr_info& module) {
  return module.dlpi_name == nullptr || module.dlpi_name[0] == '\0' ? "/proc/self/exe" : module.dlpi_name;
}

// Calls each(module) for the program and every library.
template <typename Each>
void ForEachModule(Each each) {
  dl_iterate_phdr(
      [](dl_phdr_info* module, size_t, void* data) {
        (*static_cast<Each*>(data))(*module);
        return 0;
      },
      &each);
}

// The segments of a module's file of one type, where they are in memory.
template <typename Each>
void ForEachSegment(const dl_phdr_info& module, uint32_t type, const Each& each) {
  for (int i = 0; i < module.dlpi_phnum; ++i) {
    const auto& segment = module.dlpi_phdr[i];
    if (segment.p_type == type) each(module.dlpi_addr + segment.p_vaddr, segment.p_memsz);
  }
}

struct Found {
  std::string path;
  uintptr_t offset = 0;  // from the module's base
};

Found ModuleOf(const void* address) {
  Found found;
  ForEachModule([&](const dl_phdr_info& module) {
    ForEachSegment(module, PT_LOAD, [&](uintptr_t begin, size_t bytes) {
      const auto at = reinterpret_cast<uintptr_t>(address);
      if (Range{begin, begin + bytes}.Has(at)) found = {PathOf(module), at - module.dlpi_addr};
    });
  });
  return found;
}

std::string Demangled(const std::string& name) {
  int status = 0;
  char* const text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  if (text == nullptr) return name;
  std::string demangled = text;
  std::free(text);
  return demangled;
}

std::string FindFunctionAt(const void* address) {
  const Found module = ModuleOf(address);
  if (module.path.empty()) return "";
  for (const Symbol& symbol : SymbolsOf(module.path).functions) {
    if (module.offset - symbol.value < symbol.bytes) return symbol.name;
  }
  return "";
}

// The mangled name; empty if unknown. Searched only once per kernel.
std::string MangledFunctionAt(const void* address) {
  static std::mutex mutex;
  static auto& names = *new std::map<const void*, std::string>();
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = names.find(address);
  if (found != names.end()) return found->second;
  return names.emplace(address, FindFunctionAt(address)).first->second;
}

}  // namespace

namespace {

// Changes when a library is loaded or unloaded.
struct Loads {
  uint64_t added = 0, removed = 0;
  bool operator==(const Loads& other) const { return added == other.added && removed == other.removed; }
};
Loads CurrentLoads() {
  Loads loads;
  dl_iterate_phdr(
      [](dl_phdr_info* module, size_t, void* to) {
        *static_cast<Loads*>(to) = {module->dlpi_adds, module->dlpi_subs};
        return 1;  // every module reports the same
      },
      &loads);
  return loads;
}

// Whether all modules have their thread_local variables, so that a later search finds the same.
struct FoundVariables {
  ThreadVariables variables;
  bool all = true;
};

FoundVariables FindVariables(const void* kernel) {
  const std::string name = MangledFunctionAt(kernel);
  const std::string of_kernel = name.empty() ? "" : kVariableOfFunction + name.substr(2) + "E";
  FoundVariables found;
  ThreadVariables& variables = found.variables;
  ForEachModule([&](const dl_phdr_info& module) {
    const auto begin = reinterpret_cast<uintptr_t>(module.dlpi_tls_data);
    ForEachSegment(module, PT_TLS, [&](uintptr_t, size_t bytes) {
      if (begin == 0) found.all = false;
      if (begin != 0) variables.segments.push_back({begin, begin + bytes});
    });
    if (begin == 0) return;  // the thread has not used them
    for (const Symbol& symbol : SymbolsOf(PathOf(module)).thread_variables) {
      if (!symbol.is_of_kernels && (of_kernel.empty() || !StartsWith(symbol.name, of_kernel))) continue;
      variables.shared.push_back({begin + symbol.value, begin + symbol.value + symbol.bytes});
    }
  });
  return found;
}

}  // namespace

// Searching takes longer than running a small block.
ThreadVariables VariablesOfThisThread(const void* kernel) {
  struct Searched {
    Loads loads;
    ThreadVariables variables;
  };
  static thread_local std::map<const void*, Searched> searched;
  const Loads loads = CurrentLoads();
  const auto known = searched.find(kernel);
  if (known != searched.end() && known->second.loads == loads) return known->second.variables;
  FoundVariables found = FindVariables(kernel);
  if (found.all) searched[kernel] = {loads, found.variables};
  return std::move(found.variables);
}

std::vector<Range> StaticImages() {
  static std::mutex mutex;
  static auto& images = *new std::vector<Range>();
  static auto& images_of = *new Loads();
  const Loads loads = CurrentLoads();
  const std::lock_guard<std::mutex> lock(mutex);
  if (!images.empty() && images_of == loads) return images;
  images.clear();
  images_of = loads;
  ForEachModule([&](const dl_phdr_info& module) {
    ForEachSegment(module, PT_LOAD,
                   [&](uintptr_t begin, size_t bytes) { images.push_back({begin, begin + bytes}); });
  });
  return images;
}

std::string FunctionAt(const void* address) {
  const std::string name = MangledFunctionAt(address);
  if (!name.empty()) return Demangled(name);
  char text[32];
  std::snprintf(text, sizeof(text), "%p", address);
  return text;
}

std::string LineAt(const void* address) {
  const Found module = ModuleOf(address);
  if (module.path.empty()) return "";
  char path[4096] = {};
  const char* file = module.path.c_str();
  if (module.path == "/proc/self/exe" && readlink(file, path, sizeof(path) - 1) > 0) file = path;
  char command[5000];
  std::snprintf(command, sizeof(command), "addr2line -e '%s' %#zx 2>/dev/null", file, module.offset - 1);
  FILE* const pipe = popen(command, "r");
  if (pipe == nullptr) return "";
  char line[1024] = {};
  const bool read = std::fgets(line, sizeof(line), pipe) != nullptr;
  pclose(pipe);
  if (!read || line[0] == '?') return "";
  line[std::strcspn(line, " \n")] = '\0';  // "file:line (discriminator 1)"
  return line;
}

}  // namespace sok::on_host

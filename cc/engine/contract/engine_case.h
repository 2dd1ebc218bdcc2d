// The parameter of the contract suites: an engine, and a test's access to its memory.
#ifndef SOK_CC_ENGINE_CONTRACT_ENGINE_CASE_H_
#define SOK_CC_ENGINE_CONTRACT_ENGINE_CASE_H_

#include <cstdint>
#include <cstring>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "cc/engine/engine.h"

namespace sok {

// A test's access to an engine's memory. The default is host memory.
class EngineMemory {
 public:
  virtual ~EngineMemory() = default;
  // `bytes` is at least 1.
  virtual void* Allocate(int64_t bytes) { return ::operator new(static_cast<size_t>(bytes)); }
  virtual void Free(void* memory) { ::operator delete(memory); }
  // Copies between the host and the engine's memory, after earlier work on the stream. Done on return.
  virtual void CopyIn(void* to, const void* from, int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  virtual void CopyOut(void* to, const void* from, int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  // EngineContext::stream of the calls.
  virtual void* stream() { return nullptr; }
};

// One engine under test. An engine's test instantiates the suites of what the engine implements.
struct EngineCase {
  std::string name;
  Engine* engine = nullptr;
  std::shared_ptr<EngineMemory> memory = std::make_shared<EngineMemory>();
  // Numbers of host threads to run with. All must give the same bits.
  std::vector<int> threads = {1, 2, 3};
  // Numbers of ranks of the longest test over ranks.
  std::vector<int> ranks = {1, 2, 3, 4};
  // For all tables that the suites make.
  RowMemory row_memory = RowMemory::kDevice;
  TierOptions tiers;
  // Whether calls are slow, as with kernels that run on the host: tests then take fewer and smaller steps.
  bool is_slow = false;
  // Whether they take several times as long as that, as under a sanitizer. Then is_slow, too.
  bool is_slowest = false;
  // The optimizers that the engine implements, by their names in MakeOptimizer.
  std::vector<std::string> optimizers;
};

inline std::ostream& operator<<(std::ostream& out, const EngineCase& engine_case) {
  return out << engine_case.name;
}

// An array in the engine's memory. Move-only.
template <typename T>
class EngineArray {
 public:
  EngineArray(EngineMemory& memory, const std::vector<T>& values)
      : memory_(&memory),
        size_(static_cast<int64_t>(values.size())),
        data_(static_cast<T*>(memory.Allocate((size_ + 1) * static_cast<int64_t>(sizeof(T))))) {
    memory.CopyIn(data_, values.data(), size_ * static_cast<int64_t>(sizeof(T)));
  }
  // An array filled with bits that no test expects.
  static EngineArray Unwritten(EngineMemory& memory, int64_t size) {
    std::vector<T> values(static_cast<size_t>(size));
    if (size > 0) std::memset(values.data(), 0xfa, values.size() * sizeof(T));
    return EngineArray(memory, values);
  }
  EngineArray(EngineArray&& other) noexcept
      : memory_(other.memory_), size_(other.size_), data_(std::exchange(other.data_, nullptr)) {}
  EngineArray& operator=(EngineArray&&) = delete;
  ~EngineArray() {
    if (data_ != nullptr) memory_->Free(data_);
  }

  T* data() const { return data_; }
  int64_t size() const { return size_; }
  Span<const T> view() const { return {data_, size_}; }
  std::vector<T> Read() const {
    std::vector<T> values(static_cast<size_t>(size_));
    memory_->CopyOut(values.data(), data_, size_ * static_cast<int64_t>(sizeof(T)));
    return values;
  }

 private:
  EngineMemory* memory_;
  int64_t size_;
  T* data_;
};

// The engine that a test program is linked with.

// Tests that every engine has to pass call this. A test program links one library that defines it, such as
// //cc/cpu/engine:cpu_engine_of_tests.
const EngineCase& EngineOfTests();

}  // namespace sok

#endif  // SOK_CC_ENGINE_CONTRACT_ENGINE_CASE_H_

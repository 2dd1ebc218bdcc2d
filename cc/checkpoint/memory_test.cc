// Saving and checking a table takes a bounded amount of memory, whatever the table's size.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <vector>

#include "cc/checkpoint/testing/saved_ranks.h"

namespace {

std::atomic<int64_t> live_bytes{0};
std::atomic<int64_t> peak_bytes{0};

void* Allocate(std::size_t size) {
  void* const memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  const int64_t live = live_bytes += static_cast<int64_t>(malloc_usable_size(memory));
  int64_t peak = peak_bytes;
  while (peak < live && !peak_bytes.compare_exchange_weak(peak, live)) {
  }
  return memory;
}

void Free(void* memory) noexcept {
  if (memory != nullptr) live_bytes -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t size) { return Allocate(size); }
void* operator new[](std::size_t size) { return Allocate(size); }
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete[](void* memory) noexcept { Free(memory); }
void operator delete(void* memory, std::size_t) noexcept { Free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { Free(memory); }

namespace sok {
namespace {

// The peak of the memory that work() allocates, in bytes.
template <typename Work>
int64_t PeakOf(const Work& work) {
  const int64_t before = live_bytes;
  peak_bytes = before;
  work();
  return peak_bytes - before;
}

TEST(CheckpointMemoryTest, DoesNotGrowWithTheTable) {
  const std::string folder = (std::filesystem::path(::testing::TempDir()) / "checkpoint_memory").string();
  std::filesystem::remove_all(folder);
  TableOptions options;
  options.name = "items";
  options.dim = 16;
  options.capacity = 1 << 20;
  options.on_full = OnFull::kEvictLfu;
  options.eviction.kind = Eviction::Kind::kGlobalStep;
  options.eviction.steps_to_live = 1000;
  const Tables tables = MakeTables(options, 1);
  std::vector<int64_t> keys(300000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(i);
  std::mt19937_64 random(1);
  ASSERT_TRUE(TrainOn(tables, "adam", {0.01f, 0.9f, 0.999f, 1e-8f}, keys, &random).ok());
  ASSERT_GT(tables[0]->Describe().bytes, 50 << 20);

  constexpr int64_t kBound = 16 << 20;
  SaveRequest request;
  request.prefix = folder + "/model.ckpt-1";
  request.id = SaveId(1);
  EXPECT_LT(PeakOf([&] { EXPECT_TRUE(Save(tables, request).ok()); }), kBound);
  EXPECT_LT(PeakOf([&] {
              OpenedCheckpoints opened(PosixFiles());
              auto restore = TableRestore::Open(opened, request.prefix, "items", options, RestoreParts());
              ASSERT_TRUE(restore.ok());
              EXPECT_TRUE(restore.value()->Check().ok());
            }),
            kBound);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace sok

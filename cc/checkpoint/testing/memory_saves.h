// For tests: tables that are saved to a disk in memory and restored from it.
#ifndef SOK_CC_CHECKPOINT_TESTING_MEMORY_SAVES_H_
#define SOK_CC_CHECKPOINT_TESTING_MEMORY_SAVES_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/testing/test_ids.h"
#include "cc/checkpoint/testing/memory_files.h"
#include "cc/checkpoint/testing/saved_ranks.h"

namespace sok {

// Hostile keys, and some others.
inline std::vector<int64_t> SomeKeys() {
  std::vector<int64_t> keys = HostileIds();
  const std::vector<int64_t> more = DistinctIds(120, 5);
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

class MemorySavesTest : public ::testing::Test {
 protected:
  // A number of steps; on a slow engine a third of it.
  static int Steps(int steps) { return EngineOfTests().is_slow ? (steps + 2) / 3 : steps; }
  SaveRequest Request(uint64_t n, bool delta = false) { return NthSave(n, delta, &files_); }
  static TableOptions Options(int64_t dim = 3) {
    TableOptions options;
    options.name = "scope/items";
    options.dim = dim;
    options.initializer.seed = 77;
    return options;
  }
  // Returns the table's name in the checkpoint.
  std::string MustSave(const Tables& tables, const SaveRequest& request, const std::string& name = "") {
    auto reference = Save(tables, request, name);
    EXPECT_TRUE(reference.ok()) << reference.status().message();
    return reference.ok() ? reference.value() : "";
  }
  Tables MustRestore(const SaveRequest& request, const std::string& reference, const TableOptions& options,
                     int ranks) {
    auto tables = Restore(request.prefix, reference, options, ranks, Parts());
    EXPECT_TRUE(tables.ok()) << tables.status().message();
    return tables.ok() ? std::move(tables.value()) : Tables();
  }
  static RestoreParts Parts() { return RestoreParts(); }
  StatusOr<Tables> Restore(const std::string& prefix, const std::string& name, const TableOptions& options,
                           int ranks, const RestoreParts& parts) {
    return sok::Restore(files_, prefix, name, options, ranks, parts);
  }
  // A table of a checkpoint, as its entries say.
  Manifest ReadManifest(const SaveRequest& request, const std::string& name = Options().name) {
    auto checkpoint = SavedCheckpoint::Open(files_, request.prefix);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    auto manifest = checkpoint.value()->ReadTable(name);
    EXPECT_TRUE(manifest.ok()) << manifest.status().message();
    return manifest.ok() ? std::move(manifest.value()) : Manifest();
  }
  // Whether the table of a checkpoint is a delta.
  bool IsDelta(const SaveRequest& request, const std::string& name = Options().name) {
    return ReadManifest(request, name).delta;
  }

  MemoryFiles files_;
};

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_TESTING_MEMORY_SAVES_H_

// Bloom filters that are too large to be saved in full: their blocks, files in full of earlier versions, and
// files whose contents are wrong although their checksums are right.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "cc/base/testing/test_ids.h"
#include "cc/checkpoint/manifest.h"
#include "cc/checkpoint/testing/memory_files.h"
#include "cc/checkpoint/testing/rewritten_checkpoint.h"
#include "cc/checkpoint/testing/saved_ranks.h"
#include "cc/table/bloom_filter.h"

namespace sok {
namespace {

TableOptions BloomOptions(int64_t max_elements = 1'800'000, int bits = 8) {
  TableOptions options;
  options.name = "items";
  options.dim = 2;
  options.admission.kind = Admission::Kind::kBloom;
  options.admission.filter_freq = 4;
  options.admission.max_element_size = max_elements;
  options.admission.counter_bits = bits;
  return options;
}

// The bytes of numbers.
template <typename T>
std::string BytesOf(const std::vector<T>& data) {
  return std::string(reinterpret_cast<const char*>(data.data()), data.size() * sizeof(T));
}

class BloomBlocksTest : public ::testing::Test {
 protected:
  Tables Trained(const TableOptions& options, int ranks) {
    const Tables tables = MakeTables(options, ranks);
    for (int t = 0; t < 4; ++t) Train(tables);
    return tables;
  }
  void Train(const Tables& tables) {
    static const std::vector<int64_t> keys = DistinctIds(60, 3);
    EXPECT_TRUE(TrainOnSome(tables, "sgd", {0.1f}, keys, 0.4, &random_).ok());
  }
  StatusOr<Tables> RestoreFrom(const SaveRequest& request, const TableOptions& options, int ranks) {
    return Restore(files_, request.prefix, options.name, options, ranks);
  }

  MemoryFiles files_;
  std::mt19937_64 random_{5};
};

TEST_F(BloomBlocksTest, AnyNumberOfRanksReadsThem) {
  for (const int bits : {8, 64}) {
    const TableOptions options = BloomOptions(1'800'000, bits);
    const Tables tables = Trained(options, 2);
    const SaveRequest request = NthSave(bits, false, &files_);
    const auto reference = Save(tables, request);
    ASSERT_TRUE(reference.ok()) << reference.status().message();
    int64_t bytes = 0;
    for (const auto& [path, contents] : files_.AllFiles()) {
      if (path.find(request.prefix + ".") == 0) bytes += static_cast<int64_t>(contents->size());
    }
    EXPECT_GT(bytes, 0);
    EXPECT_LT(bytes, 200'000) << "of a filter of " << (bits / 8) * 18'000'000 << " bytes";
    const TableState state = StateOf(tables);
    EXPECT_FALSE(state.bloom.empty());
    const auto same = RestoreFrom(request, options, 2);
    ASSERT_TRUE(same.ok()) << same.status().message();
    EXPECT_TRUE(StateOf(same.value()) == state);
    // One rank has the larger counter of both.
    const auto one = RestoreFrom(request, options, 1);
    ASSERT_TRUE(one.ok()) << one.status().message();
    const Tables merged = MakeTables(options, 1);
    for (const auto& table : tables) {
      WhileHeld(table.get(), [&](HeldTable* from) {
        Status status;
        WhileHeld(merged[0].get(), [&](HeldTable* into) {
          status = from->ReadBloom([&](Span<const int64_t> blocks, Span<const char> counters) {
            return into->MergeBloom(blocks, counters);
          });
          return OkStatus();
        });
        return status;
      });
    }
    const TableState expected = StateOf(merged);
    const TableState found = StateOf(one.value());
    EXPECT_EQ(found.bloom_blocks, expected.bloom_blocks);
    EXPECT_EQ(found.bloom, expected.bloom);
  }
}

TEST_F(BloomBlocksTest, ADeltaHasThemAll) {
  const TableOptions options = BloomOptions();
  const Tables tables = Trained(options, 2);
  ASSERT_TRUE(Save(tables, NthSave(1, true, &files_)).ok());
  Train(tables);
  const SaveRequest request = NthSave(2, true, &files_);
  const auto reference = Save(tables, request);
  ASSERT_TRUE(reference.ok()) << reference.status().message();
  EXPECT_TRUE(RewrittenCheckpoint(files_, request.prefix).ReadTable("items").delta);
  const auto restored = RestoreFrom(request, options, 2);
  ASSERT_TRUE(restored.ok()) << restored.status().message();
  EXPECT_TRUE(StateOf(restored.value()) == StateOf(tables));
}

TEST_F(BloomBlocksTest, WrongBlocksAreAnErrorWithTheVariableTheFileAndTheBlock) {
  const TableOptions options = BloomOptions();
  const Tables tables = Trained(options, 1);
  const SaveRequest request = NthSave(1, false, &files_);
  ASSERT_TRUE(Save(tables, request).ok());
  RewrittenCheckpoint rewritten(files_, request.prefix);
  const Manifest good = rewritten.ReadTable("items");
  const int64_t limit = BloomShape::BlocksOf(good.table.counters, 8);
  const std::vector<std::pair<std::vector<int64_t>, std::string>> cases = {
      {{0, limit}, std::to_string(limit)},
      {{-1, 5}, "-1"},
      {{std::numeric_limits<int64_t>::min()}, std::to_string(std::numeric_limits<int64_t>::min())},
      {{3, std::numeric_limits<int64_t>::max()}, std::to_string(std::numeric_limits<int64_t>::max())},
      {{7, 7}, "the block 7 after the block 7"},
      {{8, 2}, "the block 2 after the block 8"},
  };
  for (const auto& [blocks, words] : cases) {
    Manifest bad = good;
    const auto count = static_cast<int64_t>(blocks.size());
    rewritten.SetArray(&bad, "items", 0, "bloom_blocks", {"<i8", {count}}, BytesOf(blocks));
    rewritten.SetArray(&bad, "items", 0, "bloom_counters", {"|u1", {count, 64}},
                       std::string(blocks.size() * 64, '\1'));
    rewritten.SetTable("items", bad);
    rewritten.Write();
    const Status status = RestoreFrom(request, options, 1).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.message();
    for (const std::string& part : {words, std::string("'items'"), std::string("bloom_blocks")}) {
      EXPECT_NE(status.message().find(part), std::string::npos) << part << ": " << status.message();
    }
  }
}

TEST_F(BloomBlocksTest, ATableWhoseSizesDoNotFitIsRefused) {
  const Tables tables = Trained(BloomOptions(), 1);
  const SaveRequest request = NthSave(1, false, &files_);
  ASSERT_TRUE(Save(tables, request).ok());
  const Manifest good = RewrittenCheckpoint(files_, request.prefix).ReadTable("items");
  const auto refused = [&](const std::string& words, const std::function<void(Manifest*)>& change) {
    Manifest bad = good;
    change(&bad);
    int shards = 0;
    ManifestReader reader("m");
    Status status = reader.ReadTable(EncodeTable(bad), "items", &shards);
    if (status.ok()) status = reader.AddShard(EncodeShard(bad.shards[0]));
    if (status.ok()) status = reader.Finish().status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << words;
    EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
  };
  const auto shape = [](Manifest* manifest, const char* name, std::vector<int64_t> sizes) {
    SavedArray& array = manifest->shards[0].arrays.at(name).array;
    array.type.shape = std::move(sizes);
    array.crc32c.assign(static_cast<size_t>(BlocksOf(std::max<int64_t>(array.bytes(), 0))), 1);
  };
  const int64_t count = good.shards[0].arrays.at("bloom_blocks").array.type.shape[0];
  refused("bloom_counters", [&](Manifest* bad) { shape(bad, "bloom_counters", {count + 1, 64}); });
  refused("bloom_counters", [&](Manifest* bad) { shape(bad, "bloom_counters", {count, 63}); });
  refused("bloom_counters", [&](Manifest* bad) { shape(bad, "bloom_counters", {count * 64}); });
  refused("bloom_counters", [&](Manifest* bad) {
    shape(bad, "bloom_counters", {std::numeric_limits<int64_t>::max() / 32, 64});
  });
  refused("bloom_blocks", [&](Manifest* bad) { shape(bad, "bloom_blocks", {count, 1}); });
  refused("lacks the array \"bloom_blocks\"",
          [&](Manifest* bad) { bad->shards[0].arrays.erase("bloom_blocks"); });
  refused("bloom_counters", [&](Manifest* bad) { bad->table.counters_in_blocks = false; });
}

}  // namespace
}  // namespace sok

// Bloom filters that are too large to be saved in full: their blocks, files in full of earlier versions, and
// files whose contents are wrong although their checksums are right.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "cc/base/testing/test_ids.h"
#include "cc/checkpoint/checkpoint_path.h"
#include "cc/checkpoint/manifest.h"
#include "cc/checkpoint/testing/memory_files.h"
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

std::string FolderOf(const SaveRequest& request) { return request.prefix + ".sok/items-" + request.id; }

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
  StatusOr<Tables> RestoreFrom(const std::string& reference, const SaveRequest& request,
                               const TableOptions& options, int ranks) {
    RestoreParts parts;
    parts.files = &files_;
    return Restore(request.prefix, reference, options, ranks, parts);
  }
  // Writes one of the first shard's arrays anew, and its entry of the manifest.
  template <typename T>
  void Replace(const std::string& folder, SavedShard* shard, const std::string& name, const ArrayType& type,
               const std::vector<T>& data) {
    const std::string file = ArrayPath(0, name);
    ASSERT_TRUE(files_.Remove(TableFile(files_, folder, file)).ok());
    auto writer = ArrayWriter::Create(files_, folder, file, type);
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer.value()->Write(data.data(), static_cast<int64_t>(data.size() * sizeof(T))).ok());
    ASSERT_TRUE(writer.value()->Finish().ok());
    shard->arrays[name] = writer.value()->array();
  }
  Manifest ManifestIn(const std::string& folder) {
    return ParseManifest(*files_.AllFiles().at(TableFile(files_, folder, kManifestName)), "manifest.json")
        .value();
  }
  void WriteManifest(const std::string& folder, const Manifest& manifest) {
    const std::string path = TableFile(files_, folder, kManifestName);
    ASSERT_TRUE(files_.Remove(path).ok());
    ASSERT_TRUE(WriteWholeFile(files_, path, EncodeManifest(manifest)).ok());
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
      if (path.find(request.id) != std::string::npos) bytes += static_cast<int64_t>(contents->size());
    }
    EXPECT_GT(bytes, 0);
    EXPECT_LT(bytes, 200'000) << "of a filter of " << (bits / 8) * 18'000'000 << " bytes";
    const TableState state = StateOf(tables);
    EXPECT_FALSE(state.bloom.empty());
    const auto same = RestoreFrom(reference.value(), request, options, 2);
    ASSERT_TRUE(same.ok()) << same.status().message();
    EXPECT_TRUE(StateOf(same.value()) == state);
    // One rank has the larger counter of both.
    const auto one = RestoreFrom(reference.value(), request, options, 1);
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
  EXPECT_TRUE(ManifestIn(FolderOf(request)).delta);
  const auto restored = RestoreFrom(reference.value(), request, options, 2);
  ASSERT_TRUE(restored.ok()) << restored.status().message();
  EXPECT_TRUE(StateOf(restored.value()) == StateOf(tables));
}

TEST_F(BloomBlocksTest, FilesInFullOfEarlierVersionsAreRead) {
  const TableOptions options = BloomOptions(1'100'000, 16);
  const Tables tables = Trained(options, 1);
  const SaveRequest request = NthSave(1, false, &files_);
  ASSERT_TRUE(Save(tables, request).ok());
  const TableState state = StateOf(tables);
  const std::string folder = FolderOf(request);
  Manifest manifest = ManifestIn(folder);
  ASSERT_TRUE(manifest.table.counters_in_blocks);
  const int64_t counters = manifest.table.counters;
  std::vector<char> all(static_cast<size_t>(BloomShape::BlocksOf(counters, 16)) * kBloomBlockBytes);
  for (size_t i = 0; i < state.bloom_blocks.size(); ++i) {
    std::copy_n(state.bloom.begin() + static_cast<int64_t>(i) * kBloomBlockBytes, kBloomBlockBytes,
                all.begin() + state.bloom_blocks[i] * kBloomBlockBytes);
  }
  all.resize(static_cast<size_t>(2 * counters));
  manifest.table.counters_in_blocks = false;
  manifest.shards[0].arrays.erase("bloom_blocks");
  Replace(folder, &manifest.shards[0], "bloom_counters", {"<u2", {counters}}, all);
  WriteManifest(folder, manifest);
  EXPECT_NE(EncodeManifest(manifest).find("\"version\": 1,"), std::string::npos);
  const auto restored = RestoreFrom(folder, request, options, 1);
  ASSERT_TRUE(restored.ok()) << restored.status().message();
  EXPECT_TRUE(StateOf(restored.value()) == state);
}

TEST_F(BloomBlocksTest, WrongBlocksAreAnErrorWithTheVariableTheFileAndTheBlock) {
  const TableOptions options = BloomOptions();
  const Tables tables = Trained(options, 1);
  const SaveRequest request = NthSave(1, false, &files_);
  ASSERT_TRUE(Save(tables, request).ok());
  const std::string folder = FolderOf(request);
  const Manifest good = ManifestIn(folder);
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
    Replace(folder, &bad.shards[0], "bloom_blocks", {"<i8", {count}}, blocks);
    Replace(folder, &bad.shards[0], "bloom_counters", {"|u1", {count, 64}},
            std::vector<char>(blocks.size() * 64, 1));
    WriteManifest(folder, bad);
    const Status status = RestoreFrom(folder, request, options, 1).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.message();
    for (const std::string& part : {words, std::string("'items'"), std::string("bloom_blocks.npy")}) {
      EXPECT_NE(status.message().find(part), std::string::npos) << part << ": " << status.message();
    }
  }
}

TEST_F(BloomBlocksTest, AManifestWhoseSizesDoNotFitIsRefused) {
  const Tables tables = Trained(BloomOptions(), 1);
  const SaveRequest request = NthSave(1, false, &files_);
  ASSERT_TRUE(Save(tables, request).ok());
  const Manifest good = ManifestIn(FolderOf(request));
  const std::string text = EncodeManifest(good);
  EXPECT_NE(text.find("\"version\": 4,"), std::string::npos);
  const auto refused = [&](const std::string& words, const std::function<void(Manifest*)>& change) {
    Manifest bad = good;
    change(&bad);
    const Status status = ParseManifest(EncodeManifest(bad), "m").status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << words;
    EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
  };
  const auto shape = [](Manifest* manifest, const char* name, std::vector<int64_t> sizes) {
    ArrayFile& array = manifest->shards[0].arrays.at(name);
    array.type.shape = std::move(sizes);
    const int64_t data = DataBytes(array.type);
    array.bytes = data < 0 ? 0 : static_cast<int64_t>(EncodeNpyHeader(array.type).size()) + data;
    array.crc32.assign(static_cast<size_t>(BlocksOf(array.bytes)), 1);
  };
  const int64_t count = good.shards[0].arrays.at("bloom_blocks").type.shape[0];
  refused("bloom_counters.npy", [&](Manifest* bad) { shape(bad, "bloom_counters", {count + 1, 64}); });
  refused("bloom_counters.npy", [&](Manifest* bad) { shape(bad, "bloom_counters", {count, 63}); });
  refused("bloom_counters.npy", [&](Manifest* bad) { shape(bad, "bloom_counters", {count * 64}); });
  refused("bloom_counters.npy", [&](Manifest* bad) {
    shape(bad, "bloom_counters", {std::numeric_limits<int64_t>::max() / 32, 64});
  });
  refused("bloom_blocks.npy", [&](Manifest* bad) { shape(bad, "bloom_blocks", {count, 1}); });
  refused("lacks the array \"bloom_blocks\"",
          [&](Manifest* bad) { bad->shards[0].arrays.erase("bloom_blocks"); });
  refused("bloom_counters.npy", [&](Manifest* bad) { bad->table.counters_in_blocks = false; });
}

}  // namespace
}  // namespace sok

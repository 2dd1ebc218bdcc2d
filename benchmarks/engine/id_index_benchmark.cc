// Lookups in the index, in M ids/s, compared with the machine's limit: a bare linear probe over the same
// layout, for ids that are present and not negative. The goal for present ids is 80 % of its speed.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/engine/bare_loops.h"
#include "benchmarks/engine/comparison.h"
#include "cc/base/hash.h"
#include "cc/base/testing/test_ids.h"
#include "cc/index/id_index.h"
#include "cc/index/testing/id_index_reference.h"

namespace sok {
namespace {

constexpr int kRounds = 11;
constexpr int64_t kLookups = 2 << 20;

void Compare(int64_t num_keys) {
  std::vector<int64_t> keys = DistinctIds(num_keys, 1);
  for (int64_t& key : keys) key &= INT64_MAX;
  std::vector<int64_t> rows(num_keys);
  for (int64_t row = 0; row < num_keys; ++row) rows[row] = row;
  IdIndex index;
  if (!index.Insert(keys, rows).ok()) std::exit(1);
  const StatusOr<BareTable> bare = BareTable::Make(keys);
  if (!bare.ok()) std::exit(1);
  ReferenceIdIndex standard;
  standard.Insert(keys, rows);

  std::vector<int64_t> ids(kLookups);
  for (int64_t i = 0; i < kLookups; ++i) ids[i] = keys[Mix64(i) % num_keys];
  const std::vector<int64_t> absent = DistinctIds(kLookups, 3);
  std::vector<int64_t> found(kLookups);
  Comparison comparison("Find, 1 thread, " + std::to_string(num_keys) + " keys", kLookups);
  const int64_t lines =
      BestLines([&](int64_t tried) { bare.value().Find(ids, tried, Span<int64_t>(found)); });
  comparison.Add("bare linear probe, " + std::to_string(lines) + " lines in flight",
                 [&] { bare.value().Find(ids, lines, Span<int64_t>(found)); });
  comparison.Add("IdIndex::Find, present", [&] { index.Find(ids, Span<int64_t>(found)); });
  comparison.Add("IdIndex::Find, absent", [&] { index.Find(absent, Span<int64_t>(found)); });
  comparison.Add("std::unordered_map", [&] { standard.Find(ids, Span<int64_t>(found)); });
  comparison.Run(kRounds);
}

void CompareInsertion(int64_t num_keys) {
  const std::vector<int64_t> keys = DistinctIds(num_keys, 1);
  std::vector<int64_t> rows(num_keys);
  for (int64_t row = 0; row < num_keys; ++row) rows[row] = row;
  Comparison comparison("Insert, 1 thread, " + std::to_string(num_keys) + " keys", num_keys);
  const auto insert = [&](IdIndex* index, int64_t batch) {
    for (int64_t i = 0; i < num_keys; i += batch) {
      const int64_t count = std::min(batch, num_keys - i);
      const Span<const int64_t> some(keys.data() + i, count);
      if (!index->Insert(some, Span<const int64_t>(rows.data() + i, count)).ok()) std::exit(1);
    }
  };
  comparison.Add("std::unordered_map", [&] { ReferenceIdIndex().Insert(keys, rows); });
  comparison.Add("IdIndex::Insert, growing by 4096", [&] {
    IdIndex index;
    insert(&index, 4096);
  });
  comparison.Add("IdIndex::Insert, reserved", [&] {
    IdIndex index;
    if (!index.Reserve(num_keys).ok()) std::exit(1);
    insert(&index, num_keys);
  });
  comparison.Run(3);
}

}  // namespace
}  // namespace sok

int main() {
  for (const int64_t keys : {10'000, 100'000, 1'000'000, 4'000'000}) sok::Compare(keys);
  sok::CompareInsertion(2'000'000);
  return 0;
}

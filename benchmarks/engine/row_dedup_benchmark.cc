// Finding the distinct rows of a batch in a table of known size, on one thread: RowDeduplicator, which may
// use an array, compared with Deduplicator, which uses a hash table.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "benchmarks/engine/comparison.h"
#include "cc/base/testing/test_ids.h"
#include "cc/dedup/dedup.h"
#include "cc/dense_tables/row_dedup.h"

namespace sok {
namespace {

constexpr int kRounds = 101;

void Compare(int64_t table_rows, int64_t batch) {
  const std::vector<int64_t> rows = ZipfIds(batch, table_rows, 1.05, 1);
  InlineExecutor one;
  Deduplicator by_hash;
  RowDeduplicator by_row;
  std::vector<int64_t> unique;
  std::vector<int32_t> inverse(rows.size());
  if (!by_hash.Run(one, rows, &unique, Span<int32_t>(inverse)).ok()) std::exit(1);
  Comparison comparison(std::to_string(batch) + " of " + std::to_string(table_rows) + " rows, Zipf 1.05, " +
                            std::to_string(unique.size()) + " distinct",
                        batch);
  comparison.Add("Deduplicator", [&] {
    if (!by_hash.Run(one, rows, &unique, Span<int32_t>(inverse)).ok()) std::exit(1);
  });
  comparison.Add("RowDeduplicator", [&] {
    if (!by_row.Run(one, rows, table_rows, &unique, Span<int32_t>(inverse)).ok()) std::exit(1);
  });
  comparison.Run(kRounds);
}

}  // namespace
}  // namespace sok

int main() {
  // Up to 32 rows of the table for each row of the batch, and more.
  for (const int64_t batch : {2048, 53248, 90112}) {
    for (const int64_t rows_per_occurrence : {1, 4, 16, 32, 64}) {
      sok::Compare(batch * rows_per_occurrence, batch);
    }
  }
  return 0;
}

#include "cc/sharded/request.h"

#include <algorithm>
#include <cstring>

namespace sok {
namespace {

constexpr int64_t kWordsPerTable = 4;

int64_t LengthWords(int64_t lengths) { return WordsOf(lengths * static_cast<int64_t>(sizeof(int32_t))); }

}  // namespace

int64_t RequestWords(Span<const TableRequest> tables) {
  int64_t words = kWordsPerTable * tables.size();
  for (const TableRequest& table : tables) {
    words += table.ids.size() + LengthWords(static_cast<int64_t>(table.lengths.size()));
  }
  return words;
}

void WriteRequest(Span<const TableRequest> tables, int64_t* payload) {
  int64_t* next = payload + kWordsPerTable * tables.size();
  for (const TableRequest& table : tables) {
    payload[0] = static_cast<int64_t>(table.definition);
    payload[1] = static_cast<int64_t>(table.optimizer);
    payload[2] = table.ids.size();
    payload[3] = static_cast<int64_t>(table.lengths.size());
    payload += kWordsPerTable;
    next = std::copy(table.ids.begin(), table.ids.end(), next);
    if (table.lengths.empty()) continue;
    const int64_t words = LengthWords(static_cast<int64_t>(table.lengths.size()));
    next[words - 1] = 0;
    std::memcpy(next, table.lengths.data(), table.lengths.size() * sizeof(int32_t));
    next += words;
  }
}

Status ReadRequest(Span<const int64_t> payload, int64_t num_tables, std::vector<TableRequest>* tables) {
  const Status damaged =
      Internal("a request of ", payload.size(), " words for ", num_tables, " tables is damaged");
  if (payload.size() < kWordsPerTable * num_tables) return damaged;
  int64_t next = kWordsPerTable * num_tables;
  tables->assign(num_tables, {});
  for (int64_t t = 0; t < num_tables; ++t) {
    TableRequest& table = (*tables)[t];
    const int64_t* entry = payload.data() + kWordsPerTable * t;
    const int64_t ids = entry[2];
    const int64_t lengths = entry[3];
    const int64_t left = payload.size() - next;
    if (ids < 0 || lengths < 0 || ids > left || lengths > 2 * left || LengthWords(lengths) > left - ids) {
      return damaged;
    }
    table.definition = static_cast<uint64_t>(entry[0]);
    table.optimizer = static_cast<uint64_t>(entry[1]);
    table.ids = payload.subspan(next, ids);
    next += ids;
    table.lengths.resize(lengths);
    if (lengths > 0) std::memcpy(table.lengths.data(), payload.data() + next, lengths * sizeof(int32_t));
    next += LengthWords(lengths);
    int64_t sum = 0;
    for (const int32_t length : table.lengths) sum += length > 0 ? length : ids + 1;
    if (lengths > 0 && sum != ids) return damaged;
  }
  return next == payload.size() ? OkStatus() : damaged;
}

}  // namespace sok

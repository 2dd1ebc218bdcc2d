#include "cc/sharded/request.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace sok {
namespace {

constexpr int64_t kWordsPerTable = 4;
constexpr int kHalfWord = 32;

int64_t WordsOfNumbers(int64_t numbers) { return WordsOf(numbers * static_cast<int64_t>(sizeof(int32_t))); }

int64_t* WriteNumbers(const std::vector<int32_t>& numbers, int64_t* next) {
  if (numbers.empty()) return next;
  const int64_t words = WordsOfNumbers(static_cast<int64_t>(numbers.size()));
  next[words - 1] = 0;
  std::memcpy(next, numbers.data(), numbers.size() * sizeof(int32_t));
  return next + words;
}

// Removes `count` numbers from the front of *left. False if *left is too short or a number is not positive.
bool TakeNumbers(int64_t count, Span<const int64_t>* left, std::vector<int32_t>* numbers) {
  const int64_t words = WordsOfNumbers(count);
  if (words > left->size()) return false;
  numbers->resize(count);
  if (count > 0) std::memcpy(numbers->data(), left->data(), count * sizeof(int32_t));
  *left = left->subspan(words, left->size() - words);
  return std::all_of(numbers->begin(), numbers->end(), [](int32_t number) { return number > 0; });
}

// Removes the data of one table from the front of *left. False if its sizes do not fit.
bool TakeTable(const int64_t* entry, Span<const int64_t>* left, TableRequest* table) {
  const int64_t ids = entry[2];
  const auto lengths = static_cast<int64_t>(static_cast<uint64_t>(entry[3]) & UINT32_MAX);
  const auto counts = static_cast<int64_t>(static_cast<uint64_t>(entry[3]) >> kHalfWord);
  if (ids < 0 || ids > left->size() || (counts > 0 && counts != ids)) return false;
  table->definition = static_cast<uint64_t>(entry[0]);
  table->optimizer = static_cast<uint64_t>(entry[1]);
  table->ids = left->subspan(0, ids);
  *left = left->subspan(ids, left->size() - ids);
  if (!TakeNumbers(lengths, left, &table->lengths)) return false;
  const int64_t sum = std::accumulate(table->lengths.begin(), table->lengths.end(), int64_t{0});
  return (lengths == 0 || sum == ids) && TakeNumbers(counts, left, &table->counts);
}

}  // namespace

int64_t RequestWords(Span<const TableRequest> tables) {
  int64_t words = kWordsPerTable * tables.size();
  for (const TableRequest& table : tables) {
    words += table.ids.size() + WordsOfNumbers(static_cast<int64_t>(table.lengths.size())) +
             WordsOfNumbers(static_cast<int64_t>(table.counts.size()));
  }
  return words;
}

void WriteRequest(Span<const TableRequest> tables, int64_t* payload) {
  int64_t* next = payload + kWordsPerTable * tables.size();
  for (const TableRequest& table : tables) {
    payload[0] = static_cast<int64_t>(table.definition);
    payload[1] = static_cast<int64_t>(table.optimizer);
    payload[2] = table.ids.size();
    payload[3] = static_cast<int64_t>(table.lengths.size() | table.counts.size() << kHalfWord);
    payload += kWordsPerTable;
    next = std::copy(table.ids.begin(), table.ids.end(), next);
    next = WriteNumbers(table.counts, WriteNumbers(table.lengths, next));
  }
}

Status ReadRequest(Span<const int64_t> payload, int64_t num_tables, std::vector<TableRequest>* tables) {
  const Status damaged =
      Internal("a request of ", payload.size(), " words for ", num_tables, " tables is damaged");
  if (payload.size() < kWordsPerTable * num_tables) return damaged;
  Span<const int64_t> left =
      payload.subspan(kWordsPerTable * num_tables, payload.size() - kWordsPerTable * num_tables);
  tables->assign(num_tables, {});
  for (int64_t t = 0; t < num_tables; ++t) {
    if (!TakeTable(payload.data() + kWordsPerTable * t, &left, &(*tables)[t])) return damaged;
  }
  return left.empty() ? OkStatus() : damaged;
}

}  // namespace sok

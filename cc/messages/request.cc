#include "cc/messages/request.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "cc/messages/message.h"

namespace sok {
namespace {

// Two numbers below 2^32 in a word.
constexpr int kHalfWord = 32;
int64_t Pair(int64_t first, int64_t second) {
  return static_cast<int64_t>(static_cast<uint64_t>(first) | static_cast<uint64_t>(second) << kHalfWord);
}
int64_t First(int64_t word) { return word & UINT32_MAX; }
int64_t Second(int64_t word) { return static_cast<int64_t>(static_cast<uint64_t>(word) >> kHalfWord); }

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

// Removes the data of one table from the front of *left. False if it does not fit its entry.
bool TakeTable(const int64_t* words, Span<const int64_t>* left, TableRequest* table) {
  const RequestEntry entry = ReadEntry(words);
  if (!entry.Fits(left->size())) return false;
  table->fingerprints = entry.fingerprints;
  table->occurrences = entry.occurrences;
  table->ids = left->subspan(0, entry.ids);
  *left = left->subspan(entry.ids, left->size() - entry.ids);
  if (!TakeNumbers(entry.lengths, left, &table->lengths)) return false;
  const int64_t sum = std::accumulate(table->lengths.begin(), table->lengths.end(), int64_t{0});
  return (entry.lengths == 0 || sum == entry.ids) && TakeNumbers(entry.counts, left, &table->counts);
}

}  // namespace

int64_t RequestEntry::data_words() const { return ids + WordsOfNumbers(lengths) + WordsOfNumbers(counts); }

int64_t RequestEntry::bytes() const {
  return (kRequestEntryWords + data_words()) * static_cast<int64_t>(sizeof(int64_t));
}

bool RequestEntry::Fits(int64_t left) const {
  return ids <= left && (counts == 0 || counts == ids) && data_words() <= left;
}

bool RequestEntry::FitsMode(ExchangeMode mode) const {
  if (mode == ExchangeMode::kRows) return lengths == 0;
  return counts == 0 && (lengths > 0) == (ids > 0);
}

void WriteEntry(const RequestEntry& entry, int64_t* words) {
  words[0] = static_cast<int64_t>(entry.fingerprints.definition);
  words[1] = static_cast<int64_t>(entry.fingerprints.optimizer);
  words[2] = Pair(entry.ids, entry.occurrences);
  words[3] = Pair(entry.lengths, entry.counts);
}

RequestEntry ReadEntry(const int64_t* words) {
  RequestEntry entry;
  entry.fingerprints = {static_cast<uint64_t>(words[0]), static_cast<uint64_t>(words[1])};
  entry.ids = First(words[2]);
  entry.occurrences = Second(words[2]);
  entry.lengths = First(words[3]);
  entry.counts = Second(words[3]);
  return entry;
}

Status DamagedRequest(int64_t words, int64_t num_tables) {
  return Internal("a request of ", words, " words for ", num_tables, " tables is damaged");
}

Status CheckModes(const Inbox& requests, Span<const ExchangeMode> modes,
                  FunctionRef<RequestEntry(int, int64_t)> entry_of) {
  for (int r = 0; r < requests.size(); ++r) {
    for (int64_t t = 0; t < modes.size(); ++t) {
      if (entry_of(r, t).FitsMode(modes[t])) continue;
      return requests.ErrorOf(r, DamagedRequest(requests[r].size() - kHeaderWords, modes.size()));
    }
  }
  return OkStatus();
}

int64_t RequestWords(Span<const TableRequest> tables) {
  int64_t words = kRequestEntryWords * tables.size();
  for (const TableRequest& table : tables) words += table.entry().data_words();
  return words;
}

void WriteRequest(Span<const TableRequest> tables, int64_t* payload) {
  int64_t* next = payload + kRequestEntryWords * tables.size();
  for (const TableRequest& table : tables) {
    WriteEntry(table.entry(), payload);
    payload += kRequestEntryWords;
    next = std::copy(table.ids.begin(), table.ids.end(), next);
    next = WriteNumbers(table.counts, WriteNumbers(table.lengths, next));
  }
}

Status ReadRequest(Span<const int64_t> payload, int64_t num_tables, std::vector<TableRequest>* tables) {
  const Status damaged = DamagedRequest(payload.size(), num_tables);
  const int64_t entries = kRequestEntryWords * num_tables;
  if (payload.size() < entries) return damaged;
  Span<const int64_t> left = payload.subspan(entries, payload.size() - entries);
  tables->assign(num_tables, {});
  for (int64_t t = 0; t < num_tables; ++t) {
    if (!TakeTable(payload.data() + kRequestEntryWords * t, &left, &(*tables)[t])) return damaged;
  }
  return left.empty() ? OkStatus() : damaged;
}

}  // namespace sok

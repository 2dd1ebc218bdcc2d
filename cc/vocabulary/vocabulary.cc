#include "cc/vocabulary/vocabulary.h"

#include <algorithm>
#include <atomic>

#include "cc/base/hash.h"
#include "cc/base/prefetch.h"

namespace sok {
namespace {

// Keys whose slots are prefetched before the first of them is examined.
constexpr int64_t kBlock = kLinesInFlight;
// Two reads of memory, many at a time.
constexpr int64_t kNsPerKey = 20;
constexpr int64_t kDamaged = -1;

uint64_t Home(const Vocabulary& vocabulary, int64_t key) {
  return Mix64(static_cast<uint64_t>(key)) & static_cast<uint64_t>(vocabulary.slots.size() - 1);
}

// The slot at which the search for `key` from `slot` on ends: that of the key, or a free one. kDamaged if a
// slot has a number that is not in use, or if no slot is free.
int64_t EndOfSearch(const Vocabulary& vocabulary, int64_t key, uint64_t slot) {
  const int64_t num_slots = vocabulary.slots.size();
  for (int64_t probes = 0; probes < num_slots; ++probes) {
    const int64_t number = vocabulary.slots[slot];
    if (number < 0 || number > *vocabulary.size) return kDamaged;
    if (number == 0 || vocabulary.keys[number] == key) return static_cast<int64_t>(slot);
    slot = (slot + 1) & static_cast<uint64_t>(num_slots - 1);
  }
  return kDamaged;
}

Status Damaged() {
  return DataLoss("The vocabulary is damaged: a slot has a number that is not in use, or no slot is free");
}

Status Check(const Vocabulary& vocabulary) {
  const int64_t max = vocabulary.keys.size() - 1;
  if (max < 1 || max > kLargestVocabulary || vocabulary.counts.size() != max + 1 ||
      vocabulary.slots.size() != VocabularySlots(max)) {
    return InvalidArgument("The vocabulary has ", vocabulary.keys.size(), " keys, ", vocabulary.counts.size(),
                           " counts and ", vocabulary.slots.size(),
                           " slots, which is not possible for any number of tokens");
  }
  if (*vocabulary.size < 0 || *vocabulary.size > max) {
    return DataLoss("The vocabulary is damaged: it has ", *vocabulary.size, " of at most ", max, " tokens");
  }
  return OkStatus();
}

// The numbers of at most kBlock keys, whose memory reads overlap. False if the vocabulary is damaged.
bool FindBlock(const Vocabulary& vocabulary, Span<const int64_t> keys, Span<int64_t> numbers) {
  uint64_t homes[kBlock];
  for (int64_t i = 0; i < keys.size(); ++i) {
    homes[i] = Home(vocabulary, keys[i]);
    Prefetch(&vocabulary.slots[static_cast<int64_t>(homes[i])]);
  }
  for (int64_t i = 0; i < keys.size(); ++i) {
    const int64_t number = vocabulary.slots[static_cast<int64_t>(homes[i])];
    if (number > 0 && number <= *vocabulary.size) Prefetch(&vocabulary.keys[number]);
  }
  for (int64_t i = 0; i < keys.size(); ++i) {
    const int64_t slot = EndOfSearch(vocabulary, keys[i], homes[i]);
    if (slot == kDamaged) return false;
    numbers[i] = keys[i] == kUnknownKey ? 0 : vocabulary.slots[slot];
  }
  return true;
}

// The number of a key that FindBlock did not find, after giving it one if any is left.
int64_t NumberOfNew(const Vocabulary& vocabulary, int64_t key) {
  const int64_t slot = EndOfSearch(vocabulary, key, Home(vocabulary, key));
  if (slot == kDamaged) return kDamaged;
  // It may have been added since.
  if (vocabulary.slots[slot] != 0) return vocabulary.slots[slot];
  if (*vocabulary.size == vocabulary.keys.size() - 1) return 0;
  const int64_t number = ++*vocabulary.size;
  vocabulary.keys[number] = key;
  vocabulary.slots[slot] = static_cast<int32_t>(number);
  return number;
}

}  // namespace

int64_t VocabularySlots(int64_t max) {
  int64_t slots = 2;
  while (slots < 2 * max) slots *= 2;
  return slots;
}

Status FindInVocabulary(const Vocabulary& vocabulary, Executor* executor, Span<const int64_t> keys,
                        Span<int64_t> numbers) {
  if (Status status = Check(vocabulary); !status.ok()) return status;
  std::atomic<bool> damaged{false};
  executor->ParallelFor(keys.size(), kNsPerKey, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kBlock) {
      const int64_t count = std::min(kBlock, end - i);
      if (!FindBlock(vocabulary, keys.subspan(i, count), numbers.subspan(i, count))) damaged = true;
    }
  });
  return damaged ? Damaged() : OkStatus();
}

Status AddToVocabulary(const Vocabulary& vocabulary, Executor* executor, Span<const int64_t> keys,
                       Span<const int64_t> occurrences, Span<int64_t> numbers) {
  if (Status status = FindInVocabulary(vocabulary, executor, keys, numbers); !status.ok()) return status;
  const bool full = *vocabulary.size == vocabulary.keys.size() - 1;
  for (int64_t i = 0; i < keys.size(); ++i) {
    const bool may_be_new = numbers[i] == 0 && keys[i] != kUnknownKey && !full;
    if (may_be_new) numbers[i] = NumberOfNew(vocabulary, keys[i]);
    if (numbers[i] == kDamaged) return Damaged();
    vocabulary.counts[numbers[i]] += occurrences.empty() ? 1 : occurrences[i];
  }
  return OkStatus();
}

}  // namespace sok

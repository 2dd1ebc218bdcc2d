#ifndef SOK_CC_VOCABULARY_VOCABULARY_H_
#define SOK_CC_VOCABULARY_VOCABULARY_H_

#include <cstdint>

#include "cc/base/executor.h"
#include "cc/base/span.h"
#include "cc/base/status.h"

namespace sok {

// The key that stands for all keys without a number. It never gets one.
constexpr int64_t kUnknownKey = -1;

// The numbers of 64-bit keys: 1, 2, 3, … in the order of their first occurrence, up to a maximum. All other
// keys have number 0.
//
// The state is in arrays that someone else owns, so that it can be saved and restored as it is. An empty
// vocabulary is keys[0] = kUnknownKey and zeros. `slots` is a hash table of numbers with linear probing,
// at most half full. Any number of threads may find keys at the same time; adding needs exclusive access.
struct Vocabulary {
  Span<int64_t> keys;    // [max + 1]: the key with each number; keys[0] and those after `*size` are not read
  Span<int64_t> counts;  // [max + 1]: the occurrences of each number's keys in calls of AddToVocabulary
  Span<int32_t> slots;   // [VocabularySlots(max)]: a number, or 0 for a free slot
  int64_t* size;         // the numbers in use, up to max
};

// The largest possible maximum.
constexpr int64_t kLargestVocabulary = (int64_t{1} << 30) - 1;

// The length of `slots` for a maximum in [1, kLargestVocabulary]: a power of two.
int64_t VocabularySlots(int64_t max);

// numbers[i] = the number of keys[i], or 0. DataLoss if the arrays contradict each other; InvalidArgument if
// their lengths do. `keys` and `numbers` have the same length.
Status FindInVocabulary(const Vocabulary& vocabulary, Executor* executor, Span<const int64_t> keys,
                        Span<int64_t> numbers);

// Like FindInVocabulary, but first gives numbers to new keys, in their order, while there are any left.
//
// Adds 1 to the count of each key's number for each of its occurrences: occurrences[i] for keys[i], or one
// each if `occurrences` is empty. After an error, numbers[i] are undefined, and some keys may have
// been added.
Status AddToVocabulary(const Vocabulary& vocabulary, Executor* executor, Span<const int64_t> keys,
                       Span<const int64_t> occurrences, Span<int64_t> numbers);

}  // namespace sok

#endif  // SOK_CC_VOCABULARY_VOCABULARY_H_

#include "cc/dense_tables/merge_ids.h"

#include <algorithm>
#include <limits>

#include "cc/base/vectorize.h"

namespace sok {
namespace {

// A key wraps around for ids that are not in the table, which nobody looks up.
int64_t Key(int64_t id, int64_t base) {
  return static_cast<int64_t>(static_cast<uint64_t>(id) + static_cast<uint64_t>(base));
}

struct Extremes {
  int64_t lowest = 0;
  int64_t highest_above = -1;  // of the ids that are too large
};

// Ids of one feature. Without a branch, so that the loop vectorizes.
Extremes MakeKeysOfOne(Span<const int64_t> ids, int64_t size, int64_t base, int64_t* keys) {
  int64_t lowest = 0;
  int64_t highest = -1;
  RunVectorized([&] {
    for (int64_t i = 0; i < ids.size(); ++i) {
      lowest = std::min(lowest, ids[i]);
      highest = std::max(highest, ids[i]);
      keys[i] = Key(ids[i], base);
    }
  });
  return {lowest, highest >= size ? highest : -1};
}

Extremes MakeKeysOfSome(const InputIds& input, int64_t* keys) {
  Extremes extremes;
  const int64_t features = input.sizes.size();
  int64_t feature = 0;
  int64_t base = input.base;
  for (int64_t i = 0; i < input.ids.size(); ++i) {
    const int64_t id = input.ids[i];
    extremes.lowest = std::min(extremes.lowest, id);
    if (id >= input.sizes[feature]) extremes.highest_above = std::max(extremes.highest_above, id);
    keys[i] = Key(id, base);
    base = Key(input.sizes[feature], base);
    if (++feature == features) {
      feature = 0;
      base = input.base;
    }
  }
  return extremes;
}

}  // namespace

bool MakeKeys(const InputIds& input, Span<int64_t> keys, int64_t* worst) {
  const Extremes extremes = input.sizes.size() == 1
                                ? MakeKeysOfOne(input.ids, input.sizes[0], input.base, keys.data())
                                : MakeKeysOfSome(input, keys.data());
  *worst = extremes.lowest < 0 ? extremes.lowest : extremes.highest_above;
  return extremes.lowest >= 0 && extremes.highest_above < 0;
}

int64_t KeysEnd(Span<const int64_t> sizes, int64_t base) {
  int64_t end = base;
  for (const int64_t size : sizes) {
    if (__builtin_add_overflow(end, size, &end)) return std::numeric_limits<int64_t>::max();
  }
  return end;
}

Status MergeKeys(Executor& executor, MergeIdsScratch* scratch, int64_t limit, std::vector<int64_t>* distinct,
                 Span<int32_t> places) {
  return scratch->deduplicator.Run(executor, scratch->keys, limit, distinct, places);
}

}  // namespace sok

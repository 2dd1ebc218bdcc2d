#include "cc/cpu/dense_tables/combine_rows.h"

#include <algorithm>
#include <limits>
#include <string>

#include "cc/base/vectorize.h"
#include "cc/cpu/pooling/pool.h"
#include "cc/cpu/pooling/segment_sum.h"

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

namespace {

InputBags NoBags(int64_t occurrences) {
  InputBags bags;
  bags.occurrences = occurrences;
  return bags;
}

}  // namespace

StatusOr<InputBags> FixedBags(Span<const int64_t> shape, Combiner combiner, bool pools) {
  if (shape.empty()) return InvalidArgument("ids without a shape are in no bags");
  int64_t occurrences = 1;
  int64_t count = 1;
  for (const int64_t size : shape) {
    count = occurrences;
    if (size < 0 || __builtin_mul_overflow(occurrences, size, &occurrences)) {
      return InvalidArgument("there is no dimension of ", size, " after ", count, " bags");
    }
  }
  const int64_t size = shape[shape.size() - 1];
  if (!pools || size == 1) return NoBags(occurrences);
  InputBags bags{occurrences, true, combiner, std::vector<int64_t>(count + 1)};
  for (int64_t b = 0; b <= count; ++b) bags.offsets[b] = b * size;
  return bags;
}

StatusOr<InputBags> SplitBags(Span<const int64_t> splits, Combiner combiner, bool pools) {
  if (splits.empty() || splits[0] != 0) return InvalidArgument("row splits do not begin with 0");
  for (int64_t b = 1; b < splits.size(); ++b) {
    if (splits[b] < splits[b - 1]) {
      return InvalidArgument("row splits fall from ", splits[b - 1], " to ", splits[b]);
    }
  }
  const int64_t occurrences = splits[splits.size() - 1];
  if (!pools) return NoBags(occurrences);
  return InputBags{occurrences, true, combiner, {splits.begin(), splits.end()}};
}

StatusOr<InputBags> NumberedBags(int64_t count, Span<const int64_t> bags, Combiner combiner) {
  if (count < 0) return InvalidArgument("there are ", count, " rows of ids");
  InputBags result{bags.size(), true, combiner, std::vector<int64_t>(count + 1)};
  int64_t next = 0;  // the first bag without a beginning
  for (int64_t i = 0; i < bags.size(); ++i) {
    if (bags[i] < next - 1 || bags[i] < 0 || bags[i] >= count) {
      return InvalidArgument("id ", i, " is in row ", bags[i], " of ", count,
                             next > 0 ? ", after one in row " + std::to_string(next - 1) : std::string());
    }
    while (next <= bags[i]) result.offsets[next++] = i;
  }
  while (next <= count) result.offsets[next++] = bags.size();
  return result;
}

void CombineRows(Executor& executor, Span<const float* const> rows, Span<const int32_t> places,
                 const InputBags& bags, int64_t dim, float* out) {
  if (bags.pools) {
    PoolForward(executor, rows, places, bags.offsets, {}, bags.combiner, dim, out, dim);
  } else {
    GatherForward(executor, rows, places, dim, out, dim);
  }
}

void RowGradientSums::Add(const InputBags& bags, const float* gradients, int64_t dim) {
  const size_t before = of_occurrences_.size();
  if (!bags.pools) {
    for (int64_t i = 0; i < bags.occurrences; ++i) of_occurrences_.push_back(gradients + i * dim);
  } else {
    for (int64_t b = 0; b < bags.outputs(); ++b) {
      of_occurrences_.insert(of_occurrences_.end(), bags.offsets[b + 1] - bags.offsets[b],
                             gradients + b * dim);
    }
  }
  const bool has_scales = bags.pools && bags.combiner != Combiner::kSum;
  if (!has_scales && scales_.empty()) return;
  scales_.resize(before, 1.0f);
  scales_.resize(of_occurrences_.size(), 1.0f);
  if (!has_scales) return;
  BagScales(bags.combiner, bags.offsets, {}, Span<float>(scales_).subspan(before, bags.occurrences));
}

void RowGradientSums::Sum(Executor& executor, Span<const int32_t> places, int64_t num_rows, int64_t dim,
                          float* out) {
  BuildSegments(places, num_rows, &segments_);
  SegmentSum(executor, segments_.offsets, segments_.positions, of_occurrences_, scales_, dim, out);
  of_occurrences_.clear();
  scales_.clear();
}

}  // namespace sok

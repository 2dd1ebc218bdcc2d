#include "cc/cpu/dense_tables/train_rows.h"

#include <algorithm>
#include <limits>
#include <new>

#include "cc/base/prefetch.h"
#include "cc/base/vectorize.h"
#include "cc/cpu/pooling/segment_sum.h"
#include "cc/optimizers/rules.h"

namespace sok {
namespace {

// The array is used for at most this many rows of the table per row of the batch, so the batch bounds its
// memory, which is that of a few hash tables.
constexpr int64_t kMostRowsPerOccurrence = 32;
// One thread fills the array, whereas all threads fill the hash table of a large batch.
constexpr int kMostThreads = 4;
constexpr int64_t kFewOccurrences = 16 << 10;
// How many rows ahead a place is prefetched.
constexpr int64_t kAhead = 16;

bool AllBelow(Span<const int64_t> rows, int64_t limit) {
  bool all = true;
  RunVectorized([&] {
    // A negative number is a large one without its sign.
    for (const int64_t row : rows) all &= static_cast<uint64_t>(row) < static_cast<uint64_t>(limit);
  });
  return all;
}

}  // namespace

Status RowDeduplicator::Run(Executor& executor, Span<const int64_t> rows, int64_t limit,
                            std::vector<int64_t>* unique, Span<int32_t> inverse) {
  const bool is_array_small = limit >= 0 && limit / kMostRowsPerOccurrence <= rows.size() &&
                              rows.size() < std::numeric_limits<int32_t>::max();
  const bool is_one_thread_enough = executor.concurrency() <= kMostThreads || rows.size() < kFewOccurrences;
  if (is_array_small && is_one_thread_enough && AllBelow(rows, limit)) {
    return RunByPlaces(rows, limit, unique, inverse);
  }
  return by_hash_.Run(executor, rows, unique, inverse);
}

Status RowDeduplicator::RunByPlaces(Span<const int64_t> rows, int64_t limit, std::vector<int64_t>* unique,
                                    Span<int32_t> inverse) {
  const int64_t most = std::min(rows.size(), limit);
  try {
    // One more than the distinct rows: each is written before it is known whether it is new.
    if (static_cast<int64_t>(distinct_.size()) < most + 1) distinct_.resize(most + 1);
    if (static_cast<int64_t>(places_.size()) < limit) places_.resize(limit);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("cannot allocate memory for the distinct ones of ", rows.size(), " rows");
  }
  int32_t count = 0;
  // Whether a row is new is hard to predict, so the code does not branch on it.
  for (int64_t i = 0; i < rows.size(); ++i) {
    if (i + kAhead < rows.size()) __builtin_prefetch(&places_[rows[i + kAhead]], 1);
    int32_t& place = places_[rows[i]];
    const bool is_new = place == 0;
    distinct_[count] = rows[i];
    count += is_new;
    place = is_new ? count : place;
    inverse[i] = place - 1;
  }
  for (int32_t u = 0; u < count; ++u) places_[distinct_[u]] = 0;
  try {
    unique->assign(distinct_.begin(), distinct_.begin() + count);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("cannot allocate memory for ", count, " distinct rows");
  }
  return OkStatus();
}

namespace {

// The most rows of gradients that are asked for at once.
constexpr int64_t kMostRows = 64;

// Rows of a table, `dim` apart.
struct Matrices {
  explicit Matrices(const DenseTable& table) : dim(table.dim), weights(table.weights) {
    std::copy(table.slots.begin(), table.slots.end(), slots);
  }

  int64_t dim;
  float* weights;
  float* slots[kMaxSlots] = {};
};

// ApplyToElements of rule.h, with slots in memory of their own.
template <int kSlots, typename Step, typename Dim>
void ApplyToColumns(const Step& step, const float* __restrict g, const Matrices& to, int64_t row, Dim dim) {
  float* __restrict w = to.weights + row * dim;
  float* __restrict s0 = kSlots > 0 ? to.slots[0] + row * dim : nullptr;
  float* __restrict s1 = kSlots > 1 ? to.slots[1] + row * dim : nullptr;
  float* __restrict s2 = kSlots > 2 ? to.slots[2] + row * dim : nullptr;
  for (int64_t c = 0; c < dim; ++c) {
    if constexpr (kSlots == 0) step(g[c], w[c]);
    if constexpr (kSlots == 1) step(g[c], w[c], s0[c]);
    if constexpr (kSlots == 2) step(g[c], w[c], s0[c], s1[c]);
    if constexpr (kSlots == 3) step(g[c], w[c], s0[c], s1[c], s2[c]);
  }
}

template <int kSlots>
void PrefetchRow(const Matrices& of, int64_t row) {
  PrefetchFloats<true>(of.weights + row * of.dim, of.dim);
  for (int k = 0; k < kSlots; ++k) PrefetchFloats<true>(of.slots[k] + row * of.dim, of.dim);
}

// Rows [begin, end) on one thread. While it works on one block of them, the next is on its way from memory.
template <int kSlots, typename Step>
void LoopOverRows(const Step& step, const Matrices& table, Span<const int64_t> rows,
                  const RowGradients& gradients, int64_t begin, int64_t end) {
  const int64_t dim = table.dim;
  const int64_t block = std::min(PrefetchDistance((1 + kSlots) * dim), kMostRows);
  const auto prefetch = [&](int64_t first) {
    for (int64_t i = first; i < std::min(end, first + block); ++i) PrefetchRow<kSlots>(table, rows[i]);
  };
  prefetch(begin);
  for (int64_t first = begin; first < end; first += block) {
    const int64_t last = std::min(end, first + block);
    prefetch(last);
    const float* g = gradients.Block(first, last, nullptr);
    WithColumns(dim, [&](auto columns) {
      for (int64_t i = first; i < last; ++i, g += dim) {
        ApplyToColumns<kSlots>(step, g, table, rows[i], columns);
      }
    });
  }
}

template <typename Rule>
void Train(Executor& executor, const float* hyper, const DenseTable& table, Span<const int64_t> rows,
           const RowGradients& gradients) {
  constexpr int kSlots = kElementSlots<Rule>;
  const Matrices matrices(table);
  // Weights and slots are read and written, at about 10 bytes per nanosecond.
  const int64_t ns_per_row = 10 + (1 + kSlots) * table.dim;
  WithStep<Rule>(hyper, [&](const auto& step) {
    executor.ParallelFor(rows.size(), ns_per_row, [&](int64_t begin, int64_t end) {
      RunVectorized([&] { LoopOverRows<kSlots>(step, matrices, rows, gradients, begin, end); });
    });
  });
}

template <typename Rule>
constexpr bool kTrainsDenseTables = Rule::kUntouched == UntouchedRows::kStay && !kMixesElements<Rule>;

template <typename Rule>
void FindRule(std::string_view name, StatusOr<DenseRule>* found) {
  if (name != Rule::kName) return;
  if constexpr (kTrainsDenseTables<Rule>) {
    *found = DenseRule{&RuleInfoOf<Rule>(), Train<Rule>};
  } else if constexpr (Rule::kUntouched != UntouchedRows::kStay) {
    *found = InvalidArgument("Optimizer '", name, "' changes rows without a gradient");
  } else if constexpr (Rule::kNormOfSlot >= 0) {
    *found = InvalidArgument("Optimizer '", name, "' needs the norm of a slot");
  } else {
    *found = InvalidArgument("Optimizer '", name, "' has a slot of one number per row");
  }
}

template <typename... Rules>
StatusOr<DenseRule> FindAmong(RuleList<Rules...>, std::string_view name) {
  StatusOr<DenseRule> found = InvalidArgument("Unknown optimizer '", name, "'");
  (FindRule<Rules>(name, &found), ...);
  return found;
}

Status CheckRows(Span<const int64_t> rows, int64_t limit) {
  for (const int64_t row : rows) {
    if (row < 0 || row >= limit) return InvalidArgument("row ", row, " is not in [0, ", limit, ")");
  }
  return OkStatus();
}

// The distinct rows, in scratch->distinct, and the sums of their gradients, in scratch->sums.
Status SumPerRow(Executor& executor, Span<const int64_t> rows, const float* gradients, int64_t dim,
                 TrainRowsScratch* scratch) {
  const int64_t distinct = static_cast<int64_t>(scratch->distinct.size());
  try {
    BuildSegments(scratch->inverse, distinct, &scratch->segments);
    scratch->gradient_rows.resize(rows.size());
    scratch->sums.resize(distinct * dim);
    for (int64_t i = 0; i < rows.size(); ++i) scratch->gradient_rows[i] = gradients + i * dim;
    SegmentSum(executor, scratch->segments.offsets, scratch->segments.positions, scratch->gradient_rows, {},
               dim, scratch->sums.data());
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("cannot allocate the sums of ", distinct, " gradients");
  }
  return OkStatus();
}

}  // namespace

StatusOr<DenseRule> FindDenseRule(std::string_view name) { return FindAmong(AllRules(), name); }

Status TrainRows(Executor& executor, const DenseRule& rule, Span<const float> hyper, const DenseTable& table,
                 Span<const int64_t> rows, const float* gradients, TrainRowsScratch* scratch) {
  SOK_RETURN_IF_ERROR(rule.info->CheckHyper(hyper));
  const int64_t slots = static_cast<int64_t>(rule.info->slots.size());
  if (table.slots.size() != slots) {
    return InvalidArgument("Optimizer '", rule.info->name, "' has ", slots, " slots, not ",
                           table.slots.size());
  }
  SOK_RETURN_IF_ERROR(CheckRows(rows, table.rows));
  if (rows.empty() || table.dim == 0) return OkStatus();
  try {
    scratch->inverse.resize(rows.size());
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("cannot allocate memory for ", rows.size(), " rows");
  }
  SOK_RETURN_IF_ERROR(scratch->deduplicator.Run(executor, rows, table.rows, &scratch->distinct,
                                                Span<int32_t>(scratch->inverse)));
  if (static_cast<int64_t>(scratch->distinct.size()) != rows.size()) {
    SOK_RETURN_IF_ERROR(SumPerRow(executor, rows, gradients, table.dim, scratch));
    rows = scratch->distinct;
    gradients = scratch->sums.data();
  }
  rule.train(executor, hyper.data(), table, rows, StoredRowGradients(gradients, table.dim));
  return OkStatus();
}

}  // namespace sok

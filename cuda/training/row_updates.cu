#include <type_traits>
#include <utility>
#include <vector>

#include "cc/optimizers/rules.h"
#include "cc/table/row_reference.h"
#include "cuda/dynamic_shared.h"
#include "cuda/rows/floats.h"
#include "cuda/rows/part_launch.h"
#include "cuda/rows/prefetch.h"
#include "cuda/training/row_step.h"
#include "cuda/training/row_updates.h"
#include "cuda/training/sum_segment.h"

namespace sok {
namespace {

// The part of PastView that each kind of rule needs.
struct NoPast {};
template <typename Rule>
using PastOf = std::conditional_t<
    Rule::kUntouched == UntouchedRows::kStay, NoPast,
    std::conditional_t<Rule::kUntouched == UntouchedRows::kSlotsDecay, DecayView, AdamPastView>>;

template <typename Rule>
PastOf<Rule> TakePast(const PastView& past) {
  if constexpr (Rule::kUntouched == UntouchedRows::kSlotsDecay) {
    return past.decay;
  } else if constexpr (Rule::kUntouched == UntouchedRows::kMove) {
    return past.adam;
  } else {
    return {};
  }
}

// A rule that mixes a row's elements keeps a gradient of up to this many floats in shared memory, so that
// eight of them, one for each warp of a block, take 32 kB. Longer gradients are summed into memory first.
constexpr int64_t kMaxStagedFloats = 1024;
constexpr int64_t StagedFloats(int64_t dim) { return (dim + 3) / 4 * 4; }

template <typename Rule, typename Step>
struct UpdatePart {
  RowStoreView table;
  const int64_t* rows;
  const float* stored;
  SumsView sums;
  Step step;
  PastOf<Rule> past;
  PartPlace place;
};

template <int kWidth, typename Part>
__device__ __forceinline__ Floats<kWidth> GradientOf(const Part& part, int64_t k, int64_t column) {
  if (part.stored != nullptr) return LoadFloats<kWidth>(part.stored + k * part.table.dim + column);
  return SumSegment<kWidth>(part.sums, k, column);
}

// Stores the whole gradient number k where all lanes see it after a Sync.
template <int kWidth, typename Part>
__device__ __forceinline__ const float* StageGradient(const LaneGroup& group, const Part& part, int64_t k) {
  const int64_t dim = part.table.dim;
  if (part.stored != nullptr) return part.stored + k * dim;
  float* const staged = DynamicShared<float>() + group.in_block() * StagedFloats(dim);
  ForColumns<kWidth>(
      group, dim, [&](int64_t column) { StoreFloats(GradientOf<kWidth>(part, k, column), staged + column); });
  return staged;
}

// The number of resident blocks to compile for; 0 lets ptxas choose. Rules whose slots decay need nearly the
// registers of four blocks, so without a number ptxas spills a few; other rules would spill with a number.
template <typename Rule, int kWidth>
constexpr int kResidentBlocks = kWidth == 4 && Rule::kUntouched == UntouchedRows::kSlotsDecay ? 4 : 0;

// One group of lanes per row.
template <typename Rule, typename Step, int kWidth>
__global__ void __launch_bounds__(kThreadsPerBlock, kResidentBlocks<Rule, kWidth>)
    UpdateRows(const __grid_constant__ PartBatch<UpdatePart<Rule, Step>> batch) {
  const auto& part = PartOfBlock(batch);
  const LaneGroup group(part.place);
  const int64_t k = group.item();
  if (k >= part.place.items || part.rows[k] < 0) return;
  const int64_t row = RowOf(part.rows[k]);
  const int64_t dim = part.table.dim;
  float* const record = part.table.Record(row);
  // Prefetches the record while the gradient is summed, by loads that depend on one another.
  PrefetchFloats(group, record, part.table.width);
  const auto gradient = [&](int64_t column) { return GradientOf<kWidth>(part, k, column); };
  if constexpr (Rule::kNormOfSlot >= 0) {
    StepRowWithNorm<Rule, kWidth>(group, part.step, StageGradient<kWidth>(group, part, k), record, dim);
  } else if constexpr (kRowSlots<Rule> > 0) {
    StepRowWithRowSlots<Rule, kWidth>(group, part.step, StageGradient<kWidth>(group, part, k), record, dim);
  } else if constexpr (Rule::kUntouched == UntouchedRows::kSlotsDecay) {
    StepDecayingRow<Rule, kWidth>(group, part.past, part.step, row, gradient, record, dim);
  } else if constexpr (Rule::kUntouched == UntouchedRows::kMove) {
    StepAdamRow<kWidth>(group, part.past, part.step, row, gradient, record, dim);
  } else {
    ChangeRow<kElementSlots<Rule>, kWidth>(group, part.step, gradient, record, dim);
  }
}

template <typename Rule>
struct CatchUpPart {
  RowStoreView table;
  RowList rows;
  PastOf<Rule> past;
  PartPlace place;
};

// The same without a gradient.
template <typename Rule, int kWidth>
__global__ void __launch_bounds__(kThreadsPerBlock)
    CatchUpRows(const __grid_constant__ PartBatch<CatchUpPart<Rule>> batch) {
  const auto& part = PartOfBlock(batch);
  const LaneGroup group(part.place);
  const int64_t k = group.item();
  if (k >= part.place.items) return;
  const int64_t reference = part.rows.rows == nullptr ? part.rows.first + k : part.rows.rows[k];
  if (reference < 0) return;
  const int64_t row = RowOf(reference);
  float* const record = part.table.Record(row);
  const int64_t dim = part.table.dim;
  if constexpr (Rule::kUntouched == UntouchedRows::kSlotsDecay) {
    DecayRow<kElementSlots<Rule>, kWidth>(group, part.past, row, record, dim);
  } else {
    CatchUpAdamRow<kWidth>(group, part.past, row, part.past.row_steps.now, record, dim);
  }
}

// An update whose gradients can be read: pieces are summed, or all sums are in memory.
struct ReadyUpdate {
  const RowUpdate* update;
  const float* stored;
  SumsView sums;

  int width() const {
    const int64_t dim = update->table.dim;
    const bool in_fours = stored == nullptr ? update->gradients.in_fours : FitsFours(stored, dim, dim);
    return in_fours && update->table.stride % 4 == 0 ? 4 : 1;
  }
};

template <typename Rule, typename Step>
class UpdateLauncher {
 public:
  explicit UpdateLauncher(cudaStream_t stream)
      : in_fours_("UpdateRows", stream, UpdateRows<Rule, Step, 4>),
        one_by_one_("UpdateRows", stream, UpdateRows<Rule, Step, 1>) {}

  Status Add(const ReadyUpdate& ready, const Step& step) {
    const RowUpdate& update = *ready.update;
    const int lanes_log2 = LanesLog2(update.table.dim, ready.width());
    int64_t shared_bytes = 0;
    if (kMixesElements<Rule> && ready.stored == nullptr) {
      const int64_t groups = kThreadsPerBlock >> lanes_log2;
      shared_bytes = groups * StagedFloats(update.table.dim) * static_cast<int64_t>(sizeof(float));
    }
    return (ready.width() == 4 ? in_fours_ : one_by_one_)
        .Add({update.table, update.rows, ready.stored, ready.sums, step, TakePast<Rule>(update.past), {}},
             update.count, lanes_log2, shared_bytes);
  }
  Status Launch() {
    SOK_RETURN_IF_ERROR(in_fours_.Launch());
    return one_by_one_.Launch();
  }

 private:
  PartLauncher<UpdatePart<Rule, Step>> in_fours_;
  PartLauncher<UpdatePart<Rule, Step>> one_by_one_;
};

// nvcc mistakes the assignment for an ignored status.
void Keep(Status status, Status* kept) { static_cast<void>(*kept = std::move(status)); }

// Launches the updates from *next on whose step is of this type, until one is not.
template <typename Rule, typename Step>
Status EnqueueRun(cudaStream_t stream, Span<const ReadyUpdate> updates, int64_t* next) {
  UpdateLauncher<Rule, Step> launcher(stream);
  Status status;
  bool same = true;
  while (*next < updates.size() && same && status.ok()) {
    const ReadyUpdate& update = updates[*next];
    WithStep<Rule>(update.update->hyper, [&](const auto& step) {
      if constexpr (std::is_same_v<std::decay_t<decltype(step)>, Step>) {
        Keep(launcher.Add(update, step), &status);
        ++*next;
      } else {
        same = false;
      }
    });
  }
  SOK_RETURN_IF_ERROR(status);
  return launcher.Launch();
}

template <typename Rule>
Status EnqueueUpdatesOf(cudaStream_t stream, Span<const ReadyUpdate> updates) {
  Status status;
  for (int64_t next = 0; next < updates.size() && status.ok();) {
    WithStep<Rule>(updates[next].update->hyper, [&](const auto& step) {
      Keep(EnqueueRun<Rule, std::decay_t<decltype(step)>>(stream, updates, &next), &status);
    });
  }
  return status;
}

template <typename Rule>
Status EnqueueCatchUpsOf(cudaStream_t stream, Span<const RowCatchUp> catch_ups) {
  if constexpr (Rule::kUntouched != UntouchedRows::kStay) {
    PartLauncher<CatchUpPart<Rule>> in_fours("CatchUpRows", stream, CatchUpRows<Rule, 4>);
    PartLauncher<CatchUpPart<Rule>> one_by_one("CatchUpRows", stream, CatchUpRows<Rule, 1>);
    for (const RowCatchUp& catch_up : catch_ups) {
      const bool fits = catch_up.table.dim % 4 == 0 && catch_up.table.stride % 4 == 0;
      SOK_RETURN_IF_ERROR((fits ? in_fours : one_by_one)
                              .Add({catch_up.table, catch_up.rows, TakePast<Rule>(catch_up.past), {}},
                                   catch_up.rows.n, LanesLog2(catch_up.table.dim, fits ? 4 : 1)));
    }
    SOK_RETURN_IF_ERROR(in_fours.Launch());
    SOK_RETURN_IF_ERROR(one_by_one.Launch());
  }
  return OkStatus();
}

// The launchers of the rule with a given name.
struct RuleLaunchers {
  bool takes_whole_gradients = false;
  Status (*update)(cudaStream_t, Span<const ReadyUpdate>) = nullptr;
  Status (*catch_up)(cudaStream_t, Span<const RowCatchUp>) = nullptr;
};

template <typename... Rules>
RuleLaunchers FindLaunchers(std::string_view name, RuleList<Rules...>) {
  RuleLaunchers found;
  ((found = name == Rules::kName
                ? RuleLaunchers{kMixesElements<Rules>, EnqueueUpdatesOf<Rules>, EnqueueCatchUpsOf<Rules>}
                : found),
   ...);
  return found;
}

Status UnknownRule(std::string_view name) { return InvalidArgument("Unknown optimizer '", name, "'"); }

}  // namespace

Status EnqueueRowUpdates(cudaStream_t stream, DeviceAllocator* scratch, std::string_view optimizer,
                         const OccurrenceSegments& group, Span<const RowUpdate> updates) {
  const RuleLaunchers launchers = FindLaunchers(optimizer, AllRules());
  if (launchers.update == nullptr) return UnknownRule(optimizer);
  std::vector<TableGradients> summed;  // where rows are updated
  std::vector<TableGradients> long_ones;
  std::vector<SumsOutput> outputs;  // the sums for long_ones
  std::vector<DeviceBuffer<float>> memory;
  std::vector<ReadyUpdate> ready;
  for (const RowUpdate& update : updates) {
    ready.push_back({&update, update.stored, {}});
    if (update.stored != nullptr) continue;
    if (!launchers.takes_whole_gradients || update.table.dim <= kMaxStagedFloats) {
      summed.push_back(update.gradients);
      continue;
    }
    auto sums = DeviceBuffer<float>::Allocate(scratch, stream, update.count * update.table.dim);
    if (!sums.ok()) return sums.status();
    memory.push_back(std::move(sums.value()));
    ready.back().stored = memory.back().data();
    outputs.push_back({static_cast<int64_t>(long_ones.size()), nullptr, update.count, memory.back().data()});
    long_ones.push_back(update.gradients);
  }
  SOK_RETURN_IF_ERROR(EnqueueGradientSums(stream, scratch, group, long_ones, outputs));
  const StatusOr<PieceSums> pieces = PieceSums::Enqueue(stream, scratch, group, summed);
  if (!pieces.ok()) return pieces.status();
  int64_t next = 0;
  for (ReadyUpdate& update : ready) {
    if (update.stored == nullptr) update.sums = pieces.value().view(next++);
  }
  return launchers.update(stream, ready);
}

Status EnqueueRowCatchUps(cudaStream_t stream, std::string_view optimizer, Span<const RowCatchUp> catch_ups) {
  const RuleLaunchers launchers = FindLaunchers(optimizer, AllRules());
  if (launchers.catch_up == nullptr) return UnknownRule(optimizer);
  return launchers.catch_up(stream, catch_ups);
}

}  // namespace sok

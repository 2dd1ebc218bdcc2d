#include <type_traits>
#include <utility>
#include <vector>

#include "cc/optimizers/rules.h"
#include "cc/table/record_layout.h"
#include "cuda/base/floats.h"
#include "cuda/base/launch.h"
#include "cuda/base/part_launch.h"
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

// Rows that a warp takes, a power of two, where groups of 2^lanes_log2 lanes of the warp take a row each at a
// time. Each lane of a warp finds a row's addresses, so a warp with many rows waits less for each; but a
// device needs many warps, and many more than it runs at a time, so that they end together.
int RowsOfWarp(int64_t rows, int lanes_log2) {
  constexpr int64_t kEnoughWarps = 4096;
  int log2 = 5 - lanes_log2;
  while (log2 < 4 && rows >> log2 > kEnoughWarps) ++log2;
  return 1 << log2;
}

// How a part's rows are distributed: a warp is an item of the launch, and takes rows_of_warp rows. In it,
// groups of 2^lanes_log2 lanes take a row each at a time.
struct WarpRows {
  int64_t count = 0;
  int rows_of_warp = 0;
  int lanes_log2 = 0;

  WarpRows(int64_t count, int lanes_log2)
      : count(count), rows_of_warp(RowsOfWarp(count, lanes_log2)), lanes_log2(lanes_log2) {}
  int64_t warps() const { return (count + rows_of_warp - 1) / rows_of_warp; }
  // The row of a lane of a warp, one of `warps`. A warp takes some adjacent rows, whose numbers are in one
  // sector, and some from other places: the frequent ids of a batch have adjacent rows, and take longer.
  __device__ int64_t Number(int64_t warp, int64_t warps, int lane) const {
    const int adjacent = rows_of_warp < 4 ? rows_of_warp : 4;
    return (lane / adjacent * warps + warp) * adjacent + lane % adjacent;
  }
};

template <typename Rule, typename Step>
struct UpdatePart {
  RowStoreView table;
  const int64_t* rows;
  const float* stored;
  SumsView sums;
  Step step;
  PastOf<Rule> past;
  WarpRows warp_rows;
  PartPlace place;
};

// A part whose records have numbers in 16 bits.
template <typename Rule, typename Step>
struct RoundedUpdatePart : UpdatePart<Rule, Step> {
  int64_t step_number;
  bool records_in_fours;
  bool gradients_in_fours;
};

template <typename Rule>
struct CatchUpPart {
  RowStoreView table;
  RowList rows;
  PastOf<Rule> past;
  WarpRows warp_rows;
  PartPlace place;
};

// What has to be known about a row to change it. Finding it takes several loads that depend on one another,
// so each lane of a warp finds one row, for the lanes that change it.
struct alignas(16) FoundRow {
  char* record;           // null: there is nothing to do
  const float* gradient;  // of the segment's first occurrence, if it has any; before it is scaled
  int32_t begin, end;     // the segment of its occurrences
  float scale;            // of the gradient
  uint32_t missed;        // steps; for rules with a past
};

// The steps that a row has missed. From now on, its last current step is `step`.
__device__ __forceinline__ uint32_t BringTo(uint32_t step, const RowStepsView& row_steps, int64_t row) {
  uint32_t& last_current = row_steps.last_current[row];
  const uint32_t missed = row_steps.now - last_current;
  if (missed > 0 || step != row_steps.now) last_current = step;
  return missed;
}

// Row number k of an update.
template <typename Rule, typename Part>
__device__ __forceinline__ FoundRow FindUpdated(const Part& part, int64_t k) {
  FoundRow found = {};
  const int64_t reference = part.rows[k];
  if (reference < 0) return found;
  const int64_t row = RowOf(reference);
  found.record = part.table.Record(row);
  if constexpr (Rule::kUntouched == UntouchedRows::kSlotsDecay) {
    found.missed = BringTo(part.past.row_steps.now + 1, part.past.row_steps, row);
  } else if constexpr (Rule::kUntouched == UntouchedRows::kMove) {
    part.past.row_steps.last_current[row] = part.past.row_steps.now + 1;
  }
  OccurrenceGradient first;
  if (part.stored != nullptr) {
    found.end = 1;
    first = {part.stored + k * part.table.dim, 1.0f};
  } else {
    found.begin = static_cast<int32_t>(part.sums.begin[k] - part.sums.first_occurrence);
    found.end = static_cast<int32_t>(part.sums.begin[k + 1] - part.sums.first_occurrence);
    if (found.begin < found.end) first = GradientAt(part.sums, found.begin);
  }
  found.gradient = first.row;
  found.scale = first.scale;
  return found;
}

// Row number k of a catch-up; there is nothing to do if it has missed no step.
template <typename Rule>
__device__ __forceinline__ FoundRow FindLate(const CatchUpPart<Rule>& part, int64_t k) {
  FoundRow found = {};
  const int64_t reference = part.rows.rows == nullptr ? part.rows.first + k : part.rows.rows[k];
  if (reference < 0) return found;
  const int64_t row = RowOf(reference);
  found.missed = BringTo(part.past.row_steps.now, part.past.row_steps, row);
  if (found.missed > 0) found.record = part.table.Record(row);
  return found;
}

// How kernels access a part's records and whole gradients, in memory or shared.
template <typename Rule, typename Step>
__device__ __forceinline__ FloatRecord RecordOf(const UpdatePart<Rule, Step>& part, const FoundRow& row) {
  return {row.record, part.table.dim};
}
template <typename Rule, typename Step>
__device__ __forceinline__ RoundedRecord RecordOf(const RoundedUpdatePart<Rule, Step>& part,
                                                  const FoundRow& row) {
  return {part.table, row.record, part.step_number, part.records_in_fours};
}

template <int kWidth, typename Rule, typename Step>
__device__ __forceinline__ Floats<kWidth> LoadGradient(const UpdatePart<Rule, Step>& /*part*/, const float* g,
                                                       int64_t column) {
  return LoadFloats<kWidth>(g + column);
}
template <int kWidth, typename Rule, typename Step>
__device__ __forceinline__ Floats<kWidth> LoadGradient(const RoundedUpdatePart<Rule, Step>& part,
                                                       const float* g, int64_t column) {
  if (part.gradients_in_fours) return LoadFloats<kWidth>(g + column);
  return LoadSome(FloatType::kFloat32, reinterpret_cast<const char*>(g), column, part.table.dim - column);
}

// The first gradient only, which costs no further search, or the whole segment's.
template <int kWidth, typename Part>
__device__ __forceinline__ Floats<kWidth> GradientOf(const Part& part, const FoundRow& row, int64_t column) {
  if (row.end - row.begin != 1) return SumSegment<kWidth>(part.sums, row.begin, row.end, column);
  Floats<kWidth> sum = EmptySum<kWidth>();
  AddScaledTo(row.scale, LoadGradient<kWidth>(part, row.gradient, column), &sum);
  if (part.sums.divisor != 1.0f) DivideBy(part.sums.divisor, &sum);
  return sum;
}

// Stores the row's whole gradient where all lanes see it after a Sync.
template <int kWidth, typename Part>
__device__ __forceinline__ const float* StageGradient(const LaneGroup& group, const Part& part,
                                                      const FoundRow& row) {
  if (part.stored != nullptr) return row.gradient;
  // Other lanes may still read the gradient of the previous row.
  group.Sync();
  const int64_t dim = part.table.dim;
  float* const staged = DynamicShared<float>() + group.in_block() * StagedFloats(dim);
  ForColumns<kWidth>(group, dim, [&](int64_t column) {
    StoreFloats(GradientOf<kWidth>(part, row, column), staged + column);
  });
  return staged;
}

// Calls change(group, row) for the rows of this thread's warp, where find(k) finds row number k. `found` is
// the block's shared memory, an element for each thread.
template <typename Find, typename Prefetch, typename Change>
__device__ __forceinline__ void ForRowsOfWarp(const WarpRows& rows, const PartPlace& place, FoundRow* found,
                                              const Find& find, const Prefetch& prefetch,
                                              const Change& change) {
  const LaneGroup warp(place);
  if (warp.item() >= place.items) return;
  const int64_t k = rows.Number(warp.item(), place.items, warp.lane());
  const bool finds = warp.lane() < rows.rows_of_warp && k < rows.count;
  found[threadIdx.x] = finds ? find(k) : FoundRow{};
  warp.Sync();
  const LaneGroup group(rows.lanes_log2, warp);
  const int groups = kLanesOfWarp >> rows.lanes_log2;
  const FoundRow* const of_warp = found + warp.in_block() * kLanesOfWarp;
  for (int first = 0; first < rows.rows_of_warp; first += groups) {
    // The next rows are on their way while these are changed.
    const int ahead = warp.lane() - first - groups;
    const FoundRow& mine = of_warp[warp.lane()];
    if (ahead >= 0 && ahead < groups && mine.record != nullptr) prefetch(mine);
    const FoundRow& row = of_warp[first + (warp.lane() >> rows.lanes_log2)];
    if (row.record != nullptr) change(group, row);
  }
}

// The numbers of resident blocks to compile for. Without them, or with larger ones, ptxas spills some
// registers.
template <typename Rule>
constexpr int kResidentUpdates =
    kMixesElements<Rule> || Rule::kUntouched == UntouchedRows::kSlotsDecay || std::is_same_v<Rule, Ftrl> ? 3
                                                                                                         : 4;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int kMostResidentRounded = 3;
#else
constexpr int kMostResidentRounded = 4;
#endif
template <typename Rule>
constexpr int kResidentRoundedUpdates = Rule::kNormOfSlot >= 0 ? 3 : kMostResidentRounded;
template <typename Rule>
constexpr int kResidentCatchUps = Rule::kUntouched == UntouchedRows::kMove ? 2 : 4;

// The part of a block. Rows have missed no step of a UntouchedRows::kMove rule.
template <typename Rule, int kWidth, typename Part>
__device__ __forceinline__ void UpdateRowsOf(const Part& part, FoundRow* found) {
  const int64_t dim = part.table.dim;
  const auto find = [&](int64_t k) { return FindUpdated<Rule>(part, k); };
  const auto prefetch = [&](const FoundRow& row) {
    PrefetchFloats(reinterpret_cast<const float*>(row.record), part.table.record_bytes / 4);
    if (kWidth == 4 && row.gradient != nullptr) PrefetchFloats(row.gradient, dim);
  };
  const auto change = [&](const LaneGroup& group, const FoundRow& row) {
    const auto record = RecordOf(part, row);
    const auto gradient = [&](int64_t column) { return GradientOf<kWidth>(part, row, column); };
    if constexpr (Rule::kNormOfSlot >= 0) {
      const float* const g = StageGradient<kWidth>(group, part, row);
      const auto staged = [&](int64_t column) { return LoadGradient<kWidth>(part, g, column); };
      StepRowWithNorm<Rule, kWidth>(group, part.step, g, staged, record, dim);
    } else if constexpr (kRowSlots<Rule> > 0) {
      const float* const g = StageGradient<kWidth>(group, part, row);
      const auto staged = [&](int64_t column) { return LoadGradient<kWidth>(part, g, column); };
      StepRowWithRowSlots<Rule, kWidth>(group, part.step, g, staged, record, dim);
    } else if constexpr (Rule::kUntouched == UntouchedRows::kSlotsDecay) {
      StepDecayingRow<Rule, kWidth>(group, part.past, part.step, row.missed, gradient, record, dim);
    } else {
      ChangeRow<kElementSlots<Rule>, kWidth>(group, part.step, gradient, record, dim);
    }
  };
  ForRowsOfWarp(part.warp_rows, part.place, found, find, prefetch, change);
}

template <typename Rule, typename Step, int kWidth>
__global__ void __launch_bounds__(kThreadsPerBlock, kResidentUpdates<Rule>)
    UpdateRows(const __grid_constant__ PartBatch<UpdatePart<Rule, Step>> batch) {
  AwaitPreviousKernels();
  __shared__ FoundRow found[kThreadsPerBlock];
  UpdateRowsOf<Rule, kWidth>(PartOfBlock(batch), found);
}

// Of records with numbers in 16 bits. Rows of any length take this kernel, which is for those that fit
// vectors.
template <typename Rule, typename Step>
__global__ void __launch_bounds__(kThreadsPerBlock, kResidentRoundedUpdates<Rule>)
    UpdateRoundedRows(const __grid_constant__ PartBatch<RoundedUpdatePart<Rule, Step>> batch) {
  AwaitPreviousKernels();
  __shared__ FoundRow found[kThreadsPerBlock];
  UpdateRowsOf<Rule, 4>(PartOfBlock(batch), found);
}

template <typename Rule, int kWidth>
__global__ void __launch_bounds__(kThreadsPerBlock, kResidentCatchUps<Rule>)
    CatchUpRows(const __grid_constant__ PartBatch<CatchUpPart<Rule>> batch) {
  AwaitPreviousKernels();
  __shared__ FoundRow found[kThreadsPerBlock];
  const auto& part = PartOfBlock(batch);
  const int64_t dim = part.table.dim;
  const auto find = [&](int64_t k) { return FindLate(part, k); };
  const auto prefetch = [&](const FoundRow& row) {
    PrefetchFloats(reinterpret_cast<const float*>(row.record), part.table.record_bytes / 4);
  };
  const auto change = [&](const LaneGroup& group, const FoundRow& row) {
    const FloatRecord record(row.record, dim);
    if constexpr (Rule::kUntouched == UntouchedRows::kSlotsDecay) {
      DecayRow<kElementSlots<Rule>, kWidth>(group, part.past, row.missed, record, dim);
    } else {
      const int64_t t0 = part.past.row_steps.now - row.missed;
      AdamCatchUpOfRow<kWidth>(group, part.past, record, dim).CatchUp(t0);
    }
  };
  ForRowsOfWarp(part.warp_rows, part.place, found, find, prefetch, change);
}

// An update whose gradients can be read: pieces are summed, or all sums are in memory.
struct ReadyUpdate {
  const RowUpdate* update;
  const float* stored;
  SumsView sums;

  bool gradients_in_fours() const {
    const int64_t dim = update->table.dim;
    return stored == nullptr ? update->gradients.in_fours : FitsFours(stored, dim, dim);
  }
  bool is_rounded() const { return !update->table.shape.is_plain(); }
  // How many columns a lane takes at a time.
  int width() const { return is_rounded() || gradients_in_fours() ? 4 : 1; }
};

// Whether four adjacent numbers of the weights or of a slot are aligned to their size.
bool FitsFours(const RowStoreView& table) {
  const bool slots_fit = table.width == table.dim || table.shape.slot_type() != FloatType::kFloat32 ||
                         table.shape.SlotsAt(table.dim) % 16 == 0;
  return table.dim % 4 == 0 && slots_fit;
}

template <typename Rule, typename Step>
class RoundedUpdates {
 public:
  explicit RoundedUpdates(cudaStream_t stream)
      : launcher_("UpdateRows", stream, UpdateRoundedRows<Rule, Step>) {}

  Status Add(const UpdatePart<Rule, Step>& part, const ReadyUpdate& ready, int64_t shared_bytes) {
    const RoundedUpdatePart<Rule, Step> rounded = {part, ready.update->step, FitsFours(part.table),
                                                   ready.gradients_in_fours()};
    return launcher_.Add(rounded, part.warp_rows.warps(), /*lanes_log2=*/5, shared_bytes);
  }
  Status Launch() { return launcher_.Launch(); }

 private:
  PartLauncher<RoundedUpdatePart<Rule, Step>> launcher_;
};

// Of rules with a catch-up, which round no records.
struct NoRoundedUpdates {
  explicit NoRoundedUpdates(cudaStream_t /*stream*/) {}
  template <typename Part>
  Status Add(const Part& /*part*/, const ReadyUpdate& /*ready*/, int64_t /*shared_bytes*/) {
    return InvalidArgument("a rule with a catch-up needs records of floats");
  }
  Status Launch() { return OkStatus(); }
};

template <typename Rule, typename Step>
class UpdateLauncher {
 public:
  explicit UpdateLauncher(cudaStream_t stream)
      : in_fours_("UpdateRows", stream, UpdateRows<Rule, Step, 4>),
        one_by_one_("UpdateRows", stream, UpdateRows<Rule, Step, 1>),
        rounded_(stream) {}

  Status Add(const ReadyUpdate& ready, const Step& step) {
    const RowUpdate& update = *ready.update;
    const int lanes_log2 = LanesLog2(update.table.dim, ready.width());
    int64_t shared_bytes = 0;
    if (kMixesElements<Rule> && ready.stored == nullptr) {
      const int64_t groups = kThreadsPerBlock >> lanes_log2;
      shared_bytes = groups * StagedFloats(update.table.dim) * static_cast<int64_t>(sizeof(float));
    }
    const WarpRows warp_rows(update.count, lanes_log2);
    const UpdatePart<Rule, Step> part = {update.table, update.rows, ready.stored,
                                         ready.sums,   step,        TakePast<Rule>(update.past),
                                         warp_rows,    {}};
    if (ready.is_rounded()) return rounded_.Add(part, ready, shared_bytes);
    return (ready.width() == 4 ? in_fours_ : one_by_one_)
        .Add(part, warp_rows.warps(), /*lanes_log2=*/5, shared_bytes);
  }
  Status Launch() {
    SOK_RETURN_IF_ERROR(in_fours_.Launch());
    SOK_RETURN_IF_ERROR(one_by_one_.Launch());
    return rounded_.Launch();
  }

 private:
  PartLauncher<UpdatePart<Rule, Step>> in_fours_;
  PartLauncher<UpdatePart<Rule, Step>> one_by_one_;
  std::conditional_t<Rule::kUntouched == UntouchedRows::kStay, RoundedUpdates<Rule, Step>, NoRoundedUpdates>
      rounded_;
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
Status EnqueueCatchUpsOf(cudaStream_t stream, Span<const RowCatchUp> catch_ups) {
  if constexpr (Rule::kUntouched != UntouchedRows::kStay) {
    PartLauncher<CatchUpPart<Rule>> in_fours("CatchUpRows", stream, CatchUpRows<Rule, 4>);
    PartLauncher<CatchUpPart<Rule>> one_by_one("CatchUpRows", stream, CatchUpRows<Rule, 1>);
    for (const RowCatchUp& catch_up : catch_ups) {
      const bool fits = catch_up.table.dim % 4 == 0;
      const WarpRows warp_rows(catch_up.rows.n, LanesLog2(catch_up.table.dim, fits ? 4 : 1));
      SOK_RETURN_IF_ERROR(
          (fits ? in_fours : one_by_one)
              .Add({catch_up.table, catch_up.rows, TakePast<Rule>(catch_up.past), warp_rows, {}},
                   warp_rows.warps(), /*lanes_log2=*/5));
    }
    SOK_RETURN_IF_ERROR(in_fours.Launch());
    SOK_RETURN_IF_ERROR(one_by_one.Launch());
  }
  return OkStatus();
}

template <typename Rule>
Status EnqueueUpdatesOf(cudaStream_t stream, Span<const ReadyUpdate> updates) {
  if constexpr (Rule::kUntouched == UntouchedRows::kMove) {
    // A kernel that also catches up would need twice the registers.
    std::vector<RowCatchUp> late;
    for (const ReadyUpdate& ready : updates) {
      const RowUpdate& update = *ready.update;
      if (update.rows_are_current) continue;
      late.push_back({update.table, {update.rows, 0, update.count}, update.past});
    }
    SOK_RETURN_IF_ERROR(EnqueueCatchUpsOf<Rule>(stream, late));
  }
  Status status;
  for (int64_t next = 0; next < updates.size() && status.ok();) {
    WithStep<Rule>(updates[next].update->hyper, [&](const auto& step) {
      Keep(EnqueueRun<Rule, std::decay_t<decltype(step)>>(stream, updates, &next), &status);
    });
  }
  return status;
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
  std::vector<size_t>
      updates_summed;  // their positions in `ready`; other gradients may be null, too, if empty
  std::vector<TableGradients> long_ones;
  std::vector<SumsOutput> outputs;  // the sums for long_ones
  std::vector<DeviceBuffer<float>> memory;
  std::vector<ReadyUpdate> ready;
  for (const RowUpdate& update : updates) {
    ready.push_back({&update, update.stored, {}});
    if (update.stored != nullptr) continue;
    const bool is_too_long = launchers.takes_whole_gradients && update.table.dim > kMaxStagedFloats;
    const bool fits_no_vectors = !update.table.shape.is_plain() && !update.gradients.in_fours;
    if (!is_too_long && !fits_no_vectors) {
      summed.push_back(update.gradients);
      updates_summed.push_back(ready.size() - 1);
      continue;
    }
    SOK_ASSIGN_OR_RETURN(auto sums,
                         DeviceBuffer<float>::Allocate(scratch, stream, update.count * update.table.dim));
    memory.push_back(std::move(sums));
    ready.back().stored = memory.back().data();
    outputs.push_back({static_cast<int64_t>(long_ones.size()), nullptr, update.count, memory.back().data()});
    long_ones.push_back(update.gradients);
  }
  SOK_RETURN_IF_ERROR(EnqueueGradientSums(stream, scratch, group, long_ones, outputs));
  SOK_ASSIGN_OR_RETURN(const PieceSums pieces, PieceSums::Enqueue(stream, scratch, group, summed));
  for (size_t i = 0; i < summed.size(); ++i) {
    ready[updates_summed[i]].sums = pieces.view(static_cast<int64_t>(i));
  }
  return launchers.update(stream, ready);
}

Status EnqueueRowCatchUps(cudaStream_t stream, std::string_view optimizer, Span<const RowCatchUp> catch_ups) {
  const RuleLaunchers launchers = FindLaunchers(optimizer, AllRules());
  if (launchers.catch_up == nullptr) return UnknownRule(optimizer);
  return launchers.catch_up(stream, catch_ups);
}

}  // namespace sok

#include <vector>

#include "cc/cpu/dedup/dedup.h"
#include "cc/cpu/group/lookup_passes.h"
#include "cc/cpu/pooling/segment_sum.h"
#include "cc/cpu/sharded/sharded_group.h"
#include "cc/lookup/divisor.h"

namespace sok {
namespace {

// One table's gradients, before they are written to the messages.
class TableGradients {
 public:
  TableGradients(const RoutePlan& plan, int t, Span<const GradientRows> gradients)
      : mode_(plan.modes[t]), dim_(plan.dims[t]), route_(plan.routes[t]) {
    if (mode_ == ExchangeMode::kRows) {
      GradientsOfOccurrences(plan.group, t, gradients, &occurrences_);
      BuildSegments(plan.group.parts[t].inverse, route_.rows, &segments_);
      return;
    }
    const std::vector<LookupBags>& lookups = plan.group.lookups;
    for (size_t l = 0; l < lookups.size(); ++l) {
      if (lookups[l].table != t) continue;
      lookup_ = &lookups[l];
      bags_ = gradients[l];
    }
  }

  // Writes the gradients of the rows that were requested from rank `r`.
  void Write(Executor& executor, int r, float* out) const {
    const int64_t first = route_.rows_for[r].begin;
    const int64_t rows = route_.rows_for[r].size();
    if (mode_ == ExchangeMode::kRows) {
      SegmentSum(executor, Span<const int64_t>(segments_.offsets).subspan(first, rows + 1),
                 segments_.positions, occurrences_.rows, occurrences_.scales, dim_, out);
      return;
    }
    executor.ParallelFor(rows, dim_ / 4 + 4, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) CopyBag(route_.bags[first + i], out + i * dim_);
    });
  }

 private:
  // Writes the gradient of each row of the bag.
  void CopyBag(int32_t bag, float* out) const {
    const float* gradient = bags_.data + bag * bags_.stride;
    const float scale = UnweightedScale(lookup_->combiner, lookup_->offsets[bag + 1] - lookup_->offsets[bag]);
    for (int64_t d = 0; d < dim_; ++d) out[d] = scale * gradient[d];
  }

  const ExchangeMode mode_;
  const int64_t dim_;
  const PartRoute& route_;
  OccurrenceGradients occurrences_;     // kRows
  Segments segments_;                   // kRows
  const LookupBags* lookup_ = nullptr;  // kSums
  GradientRows bags_;                   // kSums
};

int64_t FloatsFor(const RoutePlan& plan, int r) {
  int64_t floats = 0;
  if (!plan.group.training) return floats;
  for (size_t t = 0; t < plan.routes.size(); ++t) {
    floats += plan.routes[t].rows_for[r].size() * plan.dims[t];
  }
  return floats;
}

void CountGradients(const RoutePlan& plan, GradientFormat format) {
  for (size_t t = 0; t < plan.routes.size(); ++t) {
    int64_t rows = 0;
    for (int r = 0; r < plan.ranks; ++r) rows += r == plan.rank ? 0 : plan.routes[t].rows_for[r].size();
    LookupCounts::Add(plan.counts[t]->bytes_sent, rows * plan.dims[t] * BytesOf(format));
  }
}

// Where one table's gradients for one owner are written.
struct Target {
  int table;
  int rank;
  float* out;
};

// The places for the tables' gradients, one after the other for each owner, from starts[r] on.
std::vector<Target> Targets(const RoutePlan& plan, const std::vector<float*>& starts) {
  std::vector<Target> targets;
  for (int r = 0; r < plan.ranks; ++r) {
    float* out = starts[r];
    for (size_t t = 0; t < plan.routes.size(); ++t) {
      targets.push_back({static_cast<int>(t), r, out});
      out += plan.routes[t].rows_for[r].size() * plan.dims[t];
    }
  }
  return targets;
}

Status WriteGradients(Executor& executor, const RoutePlan& plan, Span<const GradientRows> gradients,
                      const std::vector<float*>& starts) {
  std::vector<std::vector<Target>> by_table(plan.routes.size());
  for (const Target& target : Targets(plan, starts)) by_table[target.table].push_back(target);
  return ForEachPart(executor, static_cast<int64_t>(by_table.size()), [&](Executor& inner, int64_t t) {
    const TableGradients table(plan, static_cast<int>(t), gradients);
    for (const Target& target : by_table[t]) table.Write(inner, target.rank, target.out);
    return OkStatus();
  });
}

}  // namespace

Status ReduceGroup(Executor& executor, const RoutePlan& plan, Span<const GradientRows> gradients,
                   const Inbox& replies, GradientFormat format, AllocateWords allocate) {
  SOK_RETURN_IF_ERROR(CheckRanks(replies, plan.ranks));
  std::vector<int64_t> floats(plan.ranks);
  std::vector<int64_t> sizes(plan.ranks);
  for (int r = 0; r < plan.ranks; ++r) {
    floats[r] = FloatsFor(plan, r);
    sizes[r] = MessageWords(OkStatus(), 1 + WordsOf(floats[r] * BytesOf(format)));
  }
  std::vector<MessageHeader> headers(plan.ranks);
  for (int r = 0; r < plan.ranks; ++r) {
    Span<const int64_t> payload;
    SOK_RETURN_IF_ERROR(ReadHeader(replies[r], MessageKind::kReply, &headers[r], &payload));
  }
  int64_t* words = allocate(sizes);
  if (words == nullptr) return NoMemoryForMessages();

  std::vector<int64_t*> payloads = MessageStarts(plan.rank, sizes, words);
  for (int r = 0; r < plan.ranks; ++r) {
    int64_t* const end = payloads[r] + sizes[r];
    int64_t* payload = WriteHeader({MessageKind::kGradients, OkStatus(), headers[r].token}, payloads[r]);
    *payload++ = static_cast<int64_t>(format);
    if (payload < end) end[-1] = 0;
    payloads[r] = payload;
  }
  if (!plan.group.training) return OkStatus();
  CountGradients(plan, format);

  std::vector<float*> starts(plan.ranks);
  if (format == GradientFormat::kFloat32) {
    for (int r = 0; r < plan.ranks; ++r) starts[r] = reinterpret_cast<float*>(payloads[r]);
    return WriteGradients(executor, plan, gradients, starts);
  }
  int64_t total = 0;
  for (const int64_t count : floats) total += count;
  std::vector<float> wide(total);
  for (int64_t r = 0, next = 0; r < plan.ranks; next += floats[r++]) starts[r] = wide.data() + next;
  SOK_RETURN_IF_ERROR(WriteGradients(executor, plan, gradients, starts));
  for (int r = 0; r < plan.ranks; ++r) {
    EncodeGradients(format, starts[r], floats[r], reinterpret_cast<uint16_t*>(payloads[r]));
  }
  return OkStatus();
}

}  // namespace sok

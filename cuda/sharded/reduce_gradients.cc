#include <vector>

#include "cc/messages/message.h"
#include "cuda/base/device_buffer.h"
#include "cuda/group/group_gradients.h"
#include "cuda/sharded/message_kernels.h"
#include "cuda/sharded/messages.h"
#include "cuda/sharded/sharded_group.h"

namespace sok {
namespace {

// The word of a header that identifies the answers.
constexpr int64_t kTokenWord = 3;
static_assert(kTokenWord < kHeaderWords);

std::vector<int64_t> FloatsByRank(const GpuRoutedGroup& routed) {
  std::vector<int64_t> floats(static_cast<size_t>(routed.ranks), 0);
  if (!routed.merged.training) return floats;
  for (int r = 0; r < routed.ranks; ++r) {
    for (int t = 0; t < routed.num_tables(); ++t) floats[r] += routed.rows_for(t, r).size() * routed.dims[t];
  }
  return floats;
}

void CountGradients(const GpuRoutedGroup& routed, GradientFormat format) {
  for (int t = 0; t < routed.num_tables(); ++t) {
    int64_t rows = 0;
    for (int r = 0; r < routed.ranks; ++r) rows += r == routed.rank ? 0 : routed.rows_for(t, r).size();
    LookupCounts::Add(routed.counts[t]->bytes_sent, rows * routed.dims[t] * BytesOf(format));
  }
}

// Writes headers and formats. Sets *starts to where each rank's gradients begin.
Status WriteHeaders(GpuCall* call, const GpuRoutedGroup& routed, const std::vector<int64_t>& sizes,
                    const Inbox& replies, GradientFormat format, int64_t* words,
                    std::vector<int64_t*>* starts) {
  MessageWriter writer;
  *starts = MessageStarts(routed.rank, sizes, words);
  const auto format_word = static_cast<int64_t>(format);
  for (int r = 0; r < routed.ranks; ++r) {
    int64_t* const message = (*starts)[r];
    int64_t* const end = message + sizes[r];
    std::vector<int64_t> header(kHeaderWords);
    WriteHeader({MessageKind::kGradients, OkStatus(), 0}, header.data());
    writer.Add(Span<const int64_t>(header).subspan(0, kTokenWord), message);
    writer.Copy(replies[r].data() + kTokenWord, 1, message + kTokenWord);
    writer.Add(Span<const int64_t>(&format_word, 1), message + kHeaderWords);
    (*starts)[r] = message + kHeaderWords + 1;
    writer.ClearLast((*starts)[r], end);
  }
  return writer.Send(call, &routed.transfers->upload);
}

// Enqueues the gradients on the stream: those for rank r from starts[r] on.
class GradientsOfRanks {
 public:
  GradientsOfRanks(GpuCall* call, const GpuRoutedGroup& routed, Span<const GradientRows> gradients)
      : call_(*call), routed_(routed), gradients_(gradients) {}

  Status Enqueue(std::vector<float*> starts) {
    SOK_RETURN_IF_ERROR(SumRows());
    for (int t = 0; t < routed_.num_tables(); ++t) {
      for (int r = 0; r < routed_.ranks; ++r) {
        const RoutedRange rows = routed_.rows_for(t, r);
        routed_.sums(t) ? AddSums(t, rows, starts[r]) : AddRows(t, rows, starts[r]);
        starts[r] += rows.size() * routed_.dims[t];
      }
    }
    SOK_RETURN_IF_ERROR(
        EnqueueGradientSums(call_.stream(), call_.scratch(), merged_.group(), tables_, outputs_));
    return EnqueueSumGradients(call_.stream(), of_sums_);
  }

 private:
  // The gradients of distinct ids, for tables whose owners answer with rows.
  Status SumRows() {
    std::vector<GradientOfTable> of_rows;
    for (const GradientOfTable& gradient : GradientsOfLookups(routed_.merged, gradients_)) {
      if (!routed_.sums(gradient.table)) of_rows.push_back(gradient);
    }
    SOK_RETURN_IF_ERROR(merged_.Enqueue(call_.stream(), call_.scratch(), routed_.merged, of_rows));
    for (int t = 0; t < routed_.num_tables(); ++t) {
      place_.push_back(static_cast<int64_t>(tables_.size()));
      if (!routed_.sums(t)) tables_.push_back(merged_.table(t, routed_.merged.tables[t].unique));
    }
    return OkStatus();
  }
  void AddRows(int t, const RoutedRange& rows, float* out) {
    outputs_.push_back({place_[t], nullptr, rows.size(), out, rows.begin - routed_.merged.tables[t].first});
  }
  void AddSums(int t, const RoutedRange& rows, float* out) {
    const std::vector<BagsOfLookup>& lookups = routed_.merged.bags.lookups();
    for (size_t l = 0; l < lookups.size(); ++l) {
      if (lookups[l].table != t) continue;
      of_sums_.push_back({lookups[l].bag_begin, lookups[l].combiner, routed_.dims[t], gradients_[l],
                          routed_.bags.data() + rows.begin, rows.size(), out});
    }
  }

  GpuCall& call_;
  const GpuRoutedGroup& routed_;
  Span<const GradientRows> gradients_;
  MergedGradients merged_;
  std::vector<TableGradients> tables_;
  std::vector<int64_t> place_;  // by table: its position in tables_
  std::vector<SumsOutput> outputs_;
  std::vector<GradientsOfSums> of_sums_;
};

Status WriteEncoded(GpuCall* call, GradientsOfRanks* gradients, const std::vector<int64_t>& floats,
                    const std::vector<int64_t*>& starts, GradientFormat format) {
  int64_t total = 0;
  for (const int64_t count : floats) total += count;
  SOK_ASSIGN_OR_RETURN(auto wide, DeviceBuffer<float>::Allocate(call->scratch(), call->stream(), total));
  std::vector<float*> wide_starts;
  std::vector<EncodedGradients> encoded;
  float* next = wide.data();
  for (size_t r = 0; r < floats.size(); ++r) {
    wide_starts.push_back(next);
    encoded.push_back({format, next, reinterpret_cast<uint16_t*>(starts[r]), floats[r]});
    next += floats[r];
  }
  SOK_RETURN_IF_ERROR(gradients->Enqueue(wide_starts));
  return EnqueueEncoding(call->stream(), encoded);
}

}  // namespace

Status ReduceGradients(GpuCall* call, const GpuRoutedGroup& routed, Span<const GradientRows> gradients,
                       const Inbox& replies, GradientFormat format, AllocateWords allocate) {
  SOK_RETURN_IF_ERROR(CheckRouted(routed.num_lookups(), gradients.size()));
  SOK_RETURN_IF_ERROR(CheckRanks(replies, routed.ranks));
  const std::vector<int64_t> floats = FloatsByRank(routed);
  std::vector<int64_t> sizes;
  for (int r = 0; r < routed.ranks; ++r) {
    sizes.push_back(MessageWords(OkStatus(), 1 + WordsOf(floats[r] * BytesOf(format))));
    if (replies[r].size() >= kHeaderWords) continue;
    HeaderWords none;
    SOK_RETURN_IF_ERROR(ReadHeaderWords(nullptr, replies[r].size(), MessageKind::kReply, &none));
  }
  int64_t* const words = allocate(sizes);
  if (words == nullptr) return NoMemoryForMessages();

  const MutexLock lock(routed.transfers->mutex);
  std::vector<int64_t*> starts;
  SOK_RETURN_IF_ERROR(WriteHeaders(call, routed, sizes, replies, format, words, &starts));
  if (!routed.merged.training) return OkStatus();
  CountGradients(routed, format);
  GradientsOfRanks writer(call, routed, gradients);
  if (format != GradientFormat::kFloat32) return WriteEncoded(call, &writer, floats, starts, format);
  std::vector<float*> float_starts;
  for (int64_t* const start : starts) float_starts.push_back(reinterpret_cast<float*>(start));
  return writer.Enqueue(float_starts);
}

}  // namespace sok

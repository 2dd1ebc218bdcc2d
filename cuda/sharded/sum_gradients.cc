#include <utility>
#include <vector>

#include "cc/messages/message.h"
#include "cuda/base/device_buffer.h"
#include "cuda/sharded/message_kernels.h"
#include "cuda/sharded/messages.h"
#include "cuda/sharded/sharded_group.h"

namespace sok {
namespace {

// The gradients of all ranks.
class ArrivedGradients {
 public:
  explicit ArrivedGradients(const GpuServedGroup& served) : served_(served) {}

  // Reads the messages, and enqueues the work that decodes them.
  Status Read(GpuCall* call, const Inbox& messages, GpuScratch* scratch) {
    if (!served_.is_served) return LookupHadAnError();
    SOK_RETURN_IF_ERROR(CheckRanks(messages, served_.ranks));
    MessageHeads heads;
    SOK_RETURN_IF_ERROR(
        heads.Fetch(call, &scratch->upload, &scratch->round_trip, messages, kHeaderWords + 1));
    int64_t decoded = 0;
    for (int r = 0; r < served_.ranks; ++r) {
      MessageHeader header;
      SOK_RETURN_IF_ERROR(heads.Read(call, &scratch->round_trip, r, MessageKind::kGradients, &header));
      SOK_RETURN_IF_ERROR(header.status);
      if (header.token != served_.token) return GradientsOfAnotherStep(r);
      SOK_RETURN_IF_ERROR(ReadFormat(heads.words(r), r, messages[r].size()));
      if (formats_.back() != GradientFormat::kFloat32) decoded += PaddedFloatsFrom(r);
    }
    SOK_ASSIGN_OR_RETURN(decoded_, DeviceBuffer<float>::Allocate(call->scratch(), call->stream(), decoded));
    return Decode(call, messages);
  }

  const std::vector<GradientOfTable>& gradients() const { return gradients_; }

 private:
  int64_t FloatsFrom(int r) const {
    int64_t floats = 0;
    for (int t = 0; t < served_.num_tables(); ++t) floats += served_.RowsFrom(t, r) * served_.dims[t];
    return floats;
  }
  // Padded, so that each rank's gradients are aligned to 16 bytes.
  int64_t PaddedFloatsFrom(int r) const { return (FloatsFrom(r) + 3) / 4 * 4; }

  Status ReadFormat(Span<const int64_t> head, int r, int64_t words) {
    if (words == kHeaderWords || !IsGradientFormat(head[kHeaderWords])) return GradientsDoNotFit(r, words);
    const auto format = static_cast<GradientFormat>(head[kHeaderWords]);
    if (words - kHeaderWords != 1 + WordsOf(FloatsFrom(r) * BytesOf(format))) {
      return GradientsDoNotFit(r, words);
    }
    formats_.push_back(format);
    return OkStatus();
  }

  Status Decode(GpuCall* call, const Inbox& messages) {
    std::vector<DecodedGradients> work;
    float* next = decoded_.data();
    for (int r = 0; r < served_.ranks; ++r) {
      const int64_t* const payload = messages[r].data() + kHeaderWords + 1;
      if (formats_[r] == GradientFormat::kFloat32) {
        AddRows(r, reinterpret_cast<const float*>(payload));
        continue;
      }
      work.push_back({formats_[r], reinterpret_cast<const uint16_t*>(payload), next, FloatsFrom(r)});
      AddRows(r, next);
      next += PaddedFloatsFrom(r);
    }
    return EnqueueDecoding(call->stream(), work);
  }

  // The gradients of rank r's occurrences: those of a sum share its gradient.
  void AddRows(int r, const float* row) {
    const ServedIds& ids = served_.trained;
    for (int t = 0; t < served_.num_tables(); ++t) {
      const size_t part = static_cast<size_t>(t) * served_.ranks + r;
      const int64_t rows = served_.RowsFrom(t, r);
      if (rows == 0) continue;
      if (served_.own == kNoRank) {
        LookupCounts::Add(served_.counts[t]->bytes_sent, rows * served_.dims[t] * BytesOf(formats_[r]));
      }
      LookupGradient gradient;
      gradient.bags.first = ids.ids_begin[part];
      gradient.bags.bags = rows;
      if (served_.modes[t] == ExchangeMode::kSums) gradient.bags.begin = ids.offsets_of(part);
      gradient.occurrences = ids.num_ids(part);
      gradient.gradient = {row, served_.dims[t]};
      gradients_.push_back({t, gradient});
      row += rows * served_.dims[t];
    }
  }

  const GpuServedGroup& served_;
  std::vector<GradientFormat> formats_;  // by rank
  DeviceBuffer<float> decoded_;
  std::vector<GradientOfTable> gradients_;
};

}  // namespace

Status SumArrived(GpuCall* call, const GpuServedGroup& served, const Inbox& messages,
                  Span<float* const> grads_out, GpuScratch* scratch) {
  ArrivedGradients arrived(served);
  SOK_RETURN_IF_ERROR(arrived.Read(call, messages, scratch));
  return SumMerged(call, served.trained.merged, arrived.gradients(), grads_out);
}

Status TrainArrived(GpuCall* call, const GpuServedGroup& served, const Inbox& messages, float divisor,
                    std::string_view optimizer, Span<const DeviceTableStep> steps, GpuScratch* scratch) {
  ArrivedGradients arrived(served);
  SOK_RETURN_IF_ERROR(arrived.Read(call, messages, scratch));
  return TrainMerged(call, served.trained.merged, arrived.gradients(), divisor, optimizer, steps);
}

}  // namespace sok

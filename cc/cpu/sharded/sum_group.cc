#include "cc/cpu/group/lookup_passes.h"
#include "cc/cpu/sharded/sharded_group.h"
#include "cc/messages/message.h"

namespace sok {
namespace {

// The number of floats that rank `r` must send.
int64_t FloatsFrom(const ServedPlan& plan, Span<const int64_t> dims, int r) {
  int64_t floats = 0;
  for (int64_t t = 0; t < dims.size(); ++t) {
    floats += (plan.parts[t].rows_begin[r + 1] - plan.parts[t].rows_begin[r]) * dims[t];
  }
  return floats;
}

// Reads the floats of rank r's message, decoded if they are not float32.
Status ReadFloats(const ServedPlan& plan, int r, Span<const int64_t> message, int64_t floats,
                  std::vector<float>* decoded, const float** values) {
  MessageHeader header;
  Span<const int64_t> payload;
  SOK_RETURN_IF_ERROR(ReadHeader(message, MessageKind::kGradients, &header, &payload));
  SOK_RETURN_IF_ERROR(header.status);
  if (header.token != plan.token) return GradientsOfAnotherStep(r);
  if (payload.empty() || !IsGradientFormat(payload[0])) return GradientsDoNotFit(r, message.size());
  const auto format = static_cast<GradientFormat>(payload[0]);
  if (payload.size() != 1 + WordsOf(floats * BytesOf(format))) return GradientsDoNotFit(r, message.size());
  if (format == GradientFormat::kFloat32) {
    *values = reinterpret_cast<const float*>(payload.data() + 1);
    return OkStatus();
  }
  decoded->resize(floats);
  DecodeGradients(format, reinterpret_cast<const uint16_t*>(payload.data() + 1), floats, decoded->data());
  *values = decoded->data();
  return OkStatus();
}

// Appends pointers to the gradients of rank r's occurrences in a table, which begin at `row`. Returns their
// end.
const float* AppendRows(const ServedPart& part, ExchangeMode mode, int r, int64_t dim, const float* row,
                        std::vector<const float*>* rows) {
  for (int64_t i = part.rows_begin[r]; i < part.rows_begin[r + 1]; ++i, row += dim) {
    // All occurrences in a sum share its gradient.
    const int64_t shared_by = mode == ExchangeMode::kRows ? 1 : part.row_offsets[i + 1] - part.row_offsets[i];
    rows->insert(rows->end(), shared_by, row);
  }
  return row;
}

// The gradients that SumGradients sums, for TrainTables.
class ServedGradients final : public GroupGradients {
 public:
  ServedGradients(const ServedPlan& plan, const ArrivedGradients& arrived, float divisor)
      : plan_(plan), arrived_(arrived), divisor_(divisor) {}
  const TablePart& part(int t) const override { return plan_.parts[t].merged; }
  void Prepare(int t, PartGradients* gradients) const override {
    gradients->Prepare(part(t), arrived_.rows[t], divisor_);
  }

 private:
  const ServedPlan& plan_;
  const ArrivedGradients& arrived_;
  const float divisor_;
};

}  // namespace

Status ReadGradients(const ServedPlan& plan, Span<const int64_t> dims, const Inbox& messages,
                     ArrivedGradients* arrived) {
  SOK_RETURN_IF_ERROR(CheckRanks(messages, plan.ranks));
  arrived->rows.assign(dims.size(), {});
  for (int64_t t = 0; t < dims.size(); ++t) arrived->rows[t].reserve(plan.parts[t].merged.inverse.size());
  arrived->decoded.resize(static_cast<size_t>(messages.size()));
  for (int r = 0; r < messages.size(); ++r) {
    const float* row = nullptr;
    SOK_RETURN_IF_ERROR(
        ReadFloats(plan, r, messages[r], FloatsFrom(plan, dims, r), &arrived->decoded[r], &row));
    for (int64_t t = 0; t < dims.size(); ++t) {
      row = AppendRows(plan.parts[t], plan.modes[t], r, dims[t], row, &arrived->rows[t]);
      if (messages.own() != kNoRank) continue;
      const auto format = static_cast<GradientFormat>(messages[r][kHeaderWords]);
      const int64_t rows = plan.parts[t].rows_begin[r + 1] - plan.parts[t].rows_begin[r];
      LookupCounts::Add(plan.counts[t]->bytes_sent, rows * dims[t] * BytesOf(format));
    }
  }
  return OkStatus();
}

Status SumGradients(Executor& executor, const ServedPlan& plan, const ArrivedGradients& arrived,
                    Span<const int64_t> dims, Span<float* const> grads_out, GradientScratch* scratch) {
  const ServedGradients gradients(plan, arrived, /*divisor=*/1.0f);
  return ForEachPart(executor, dims.size(), [&](Executor& inner, int64_t t) {
    if (grads_out[t] == nullptr) return OkStatus();
    const ObjectPool<PartGradients>::Lease part = scratch->parts.Take();
    gradients.Prepare(static_cast<int>(t), part.get());
    part->Sum(inner, dims[t], grads_out[t]);
    return OkStatus();
  });
}

Status SumAndTrain(Executor& executor, const ServedPlan& plan, const ArrivedGradients& arrived, float divisor,
                   std::string_view optimizer, Span<const EngineStep> steps, GradientScratch* scratch) {
  return TrainTables(executor, ServedGradients(plan, arrived, divisor), optimizer, steps, scratch);
}

}  // namespace sok

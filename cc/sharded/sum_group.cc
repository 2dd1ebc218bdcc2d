#include "cc/sharded/sum_group.h"

#include "cc/dedup/segments.h"
#include "cc/group/parallel_parts.h"
#include "cc/pooling/segment_sum.h"
#include "cc/sharded/gradient_format.h"

namespace sok {
namespace {

Status DoesNotFit(int rank, int64_t words) {
  return Internal("the gradients of rank ", rank, ", ", words, " words, do not fit what it looked up");
}

// Floats that rank `r` has to send.
int64_t FloatsFrom(const ServedPlan& plan, Span<const int64_t> dims, int r) {
  int64_t floats = 0;
  for (int64_t t = 0; t < dims.size(); ++t) {
    floats += (plan.parts[t].rows_begin[r + 1] - plan.parts[t].rows_begin[r]) * dims[t];
  }
  return floats;
}

// The floats of rank r's message, decoded where need be.
Status ReadFloats(const ServedPlan& plan, int r, Span<const int64_t> message, int64_t floats,
                  std::vector<float>* decoded, const float** values) {
  MessageHeader header;
  Span<const int64_t> payload;
  SOK_RETURN_IF_ERROR(ReadHeader(message, MessageKind::kGradients, &header, &payload));
  SOK_RETURN_IF_ERROR(header.status);
  if (header.token != plan.token) {
    return FailedPrecondition(
        "rank ", r, " sent the gradients of another step: after an error, the ranks' ",
        "sessions no longer run the same steps. Start all ranks anew, from a checkpoint");
  }
  if (payload.empty() || !IsGradientFormat(payload[0])) return DoesNotFit(r, message.size());
  const auto format = static_cast<GradientFormat>(payload[0]);
  if (payload.size() != 1 + WordsOf(floats * BytesOf(format))) return DoesNotFit(r, message.size());
  if (format == GradientFormat::kFloat32) {
    *values = reinterpret_cast<const float*>(payload.data() + 1);
    return OkStatus();
  }
  decoded->resize(floats);
  DecodeGradients(format, reinterpret_cast<const uint16_t*>(payload.data() + 1), floats, decoded->data());
  *values = decoded->data();
  return OkStatus();
}

// The sums of one table.
void SumTable(Executor& executor, ExchangeMode mode, const ServedPart& part,
              const std::vector<const float*>& rows, int64_t dim, float* out) {
  Segments segments;
  BuildSegments(part.part.inverse, static_cast<int64_t>(part.part.unique.size()), &segments);
  const auto offsets = Span<const int64_t>(segments.offsets).subspan(0, part.part.trained + 1);
  if (mode == ExchangeMode::kRows) {
    SegmentSum(executor, offsets, segments.positions, rows, {}, dim, out);
    return;
  }
  std::vector<const float*> of_occurrences(part.part.inverse.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    for (int64_t p = part.row_offsets[i]; p < part.row_offsets[i + 1]; ++p) of_occurrences[p] = rows[i];
  }
  SegmentSum(executor, offsets, segments.positions, of_occurrences, {}, dim, out);
}

}  // namespace

Status ReadGradients(const ServedPlan& plan, Span<const int64_t> dims, const Inbox& messages,
                     ArrivedGradients* arrived) {
  SOK_RETURN_IF_ERROR(CheckRanks(messages, plan.ranks));
  arrived->rows.assign(dims.size(), {});
  arrived->decoded.resize(static_cast<int>(messages.size()));
  for (int r = 0; r < static_cast<int>(messages.size()); ++r) {
    const float* row = nullptr;
    SOK_RETURN_IF_ERROR(
        ReadFloats(plan, r, messages[r], FloatsFrom(plan, dims, r), &arrived->decoded[r], &row));
    for (int64_t t = 0; t < dims.size(); ++t) {
      const ServedPart& part = plan.parts[t];
      for (int64_t i = part.rows_begin[r]; i < part.rows_begin[r + 1]; ++i, row += dims[t]) {
        arrived->rows[t].push_back(row);
      }
    }
  }
  return OkStatus();
}

Status SumGradients(Executor& executor, const ServedPlan& plan, const ArrivedGradients& arrived,
                    Span<const int64_t> dims, Span<float* const> grads_out) {
  return ForEachPart(executor, dims.size(), [&](Executor& inner, int64_t t) {
    SumTable(inner, plan.modes[t], plan.parts[t], arrived.rows[t], dims[t], grads_out[t]);
    return OkStatus();
  });
}

}  // namespace sok

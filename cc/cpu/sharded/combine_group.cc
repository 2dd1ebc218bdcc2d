#include "cc/cpu/dedup/dedup.h"
#include "cc/cpu/group/lookup_passes.h"
#include "cc/cpu/pooling/pool.h"
#include "cc/cpu/pooling/vector_math.h"
#include "cc/cpu/sharded/sharded_group.h"
#include "cc/lookup/divisor.h"
#include "cc/messages/message.h"

namespace sok {
namespace {

// Reads the rows for all tables from one answer.
Status ReadRows(const RoutePlan& plan, int r, Span<const int64_t> payload, ReceivedRows* received) {
  const float* row = reinterpret_cast<const float*>(payload.data());
  int64_t floats = 0;
  for (size_t t = 0; t < plan.routes.size(); ++t) {
    const int64_t dim = plan.dims[t];
    const int64_t rows = plan.routes[t].rows_from[r].size();
    RowPointerList& list = (*received)[t];
    const auto* const half = reinterpret_cast<const uint16_t*>(row);
    for (int64_t i = 0; i < rows; ++i) {
      list.type == FloatType::kFloat32 ? list.floats.push_back(row + i * dim)
                                       : list.halves.push_back(half + i * dim);
    }
    row += AnswerFloats(rows, dim, list.type);
    floats += AnswerFloats(rows, dim, list.type);
  }
  if (payload.size() == WordsOf(floats * static_cast<int64_t>(sizeof(float)))) return OkStatus();
  return AnswerDoesNotFit(r, payload.size(), floats);
}

// Adds up the owners' sums of each bag, in the order of the owners.
void CombineSums(Executor& executor, const LookupBags& lookup, const PartRoute& route,
                 const RowsInPlace& rows, int64_t dim, const OutputRows& output) {
  Segments sums;
  BuildSegments(route.bags, lookup.num_bags(), &sums);
  PoolForward(executor, rows, sums.positions, sums.offsets, {}, Combiner::kSum, dim, output.data,
              output.stride);
  if (lookup.combiner == Combiner::kSum) return;
  executor.ParallelFor(lookup.num_bags(), dim / 4 + 4, [&](int64_t first, int64_t last) {
    for (int64_t bag = first; bag < last; ++bag) {
      const float divisor = BagDivisor(lookup.combiner, {}, lookup.offsets[bag], lookup.offsets[bag + 1]);
      if (divisor == 0.0f) continue;
      DivideUnweighted(divisor, lookup.offsets[bag + 1] - lookup.offsets[bag], dim,
                       output.data + bag * output.stride);
    }
  });
}

}  // namespace

Status ReadReplies(Span<Table* const> tables, const RoutePlan& plan, const Inbox& replies,
                   ReceivedRows* received) {
  SOK_RETURN_IF_ERROR(CheckRanks(replies, plan.ranks));
  std::vector<MessageHeader> headers(plan.ranks);
  std::vector<Span<const int64_t>> payloads(plan.ranks);
  for (int r = 0; r < plan.ranks; ++r) {
    SOK_RETURN_IF_ERROR(ReadHeader(replies[r], MessageKind::kReply, &headers[r], &payloads[r]));
  }
  SOK_RETURN_IF_ERROR(FirstRefusal(headers, plan.rank, tables.size(), [&](int64_t t) {
    return Describe(DefinitionOf(*tables[t], plan.modes[t]));
  }));
  received->assign(plan.routes.size(), {});
  for (size_t t = 0; t < plan.routes.size(); ++t) {
    RowPointerList& list = (*received)[t];
    list.type = AnswerType(plan.types[t], plan.modes[t]);
    list.type == FloatType::kFloat32 ? list.floats.reserve(plan.routes[t].rows)
                                     : list.halves.reserve(plan.routes[t].rows);
  }
  for (int r = 0; r < plan.ranks; ++r) SOK_RETURN_IF_ERROR(ReadRows(plan, r, payloads[r], received));
  return OkStatus();
}

Status CombineGroup(Executor& executor, const RoutePlan& plan, const ReceivedRows& received,
                    Span<const OutputRows> outputs) {
  const std::vector<LookupBags>& lookups = plan.group.lookups;
  for (const LookupBags& lookup : lookups) {
    if (plan.group.training) LookupCounts::Add(plan.counts[lookup.table]->ids, lookup.count);
  }
  return ForEachPart(executor, static_cast<int64_t>(lookups.size()), [&](Executor& inner, int64_t l) {
    const LookupBags& lookup = lookups[l];
    const int t = lookup.table;
    if (plan.modes[t] == ExchangeMode::kRows) {
      WriteOutput(inner, lookup, plan.group.parts[t], received[t].rows(), plan.dims[t], outputs[l]);
    } else {
      CombineSums(inner, lookup, plan.routes[t], received[t].rows(), plan.dims[t], outputs[l]);
    }
    return OkStatus();
  });
}

}  // namespace sok

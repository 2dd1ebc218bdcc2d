#include "cc/sharded/agreement.h"

#include "cc/base/hash.h"
#include "cc/base/mutex.h"

namespace sok {
namespace {

std::string OptimizerName(const Table& table) {
  const MutexLock lock(table.mutex());
  return table.optimizer_name();
}

bool Agrees(const TableRequest& request, uint64_t definition, uint64_t optimizer) {
  return request.definition == definition &&
         (request.optimizer == optimizer || request.optimizer == 0 || optimizer == 0);
}

}  // namespace

uint64_t DefinitionOf(const Table& table, ExchangeMode mode) {
  return table.definition_fingerprint() ^ static_cast<uint64_t>(mode);
}

uint64_t OptimizerOf(const Table& table) {
  const std::string name = OptimizerName(table);
  return name.empty() ? 0 : Fingerprint64(name);
}

std::string Describe(const Table& table, ExchangeMode mode) {
  const std::string optimizer = OptimizerName(table);
  return StrCat(Describe(table.options()), ", exchanged as ", mode == ExchangeMode::kRows ? "rows" : "sums",
                optimizer.empty() ? ", not trained yet" : StrCat(", trained by '", optimizer, "'"));
}

Status CheckAgreement(Span<Table* const> tables, Span<const ExchangeMode> modes, int rank,
                      const std::vector<std::vector<TableRequest>>& requests,
                      std::vector<Refusal>* refusals) {
  const int ranks = static_cast<int>(requests.size());
  std::vector<int64_t> differs(ranks, -1);
  int64_t first = -1;
  for (int64_t t = tables.size() - 1; t >= 0; --t) {
    const uint64_t definition = DefinitionOf(*tables[t], modes[t]);
    const uint64_t optimizer = OptimizerOf(*tables[t]);
    for (int r = 0; r < ranks; ++r) {
      if (!Agrees(requests[r][t], definition, optimizer)) differs[r] = first = t;
    }
  }
  if (first < 0) return OkStatus();

  const auto message = [&](int64_t t) {
    return StrCat("Ranks disagree about embedding variable '", tables[t]->options().name, "': rank ", rank,
                  " has ", Describe(*tables[t], modes[t]));
  };
  const Status status = FailedPrecondition(message(first), "; another rank differs");
  refusals->assign(ranks, Refusal{status});
  for (int r = 0; r < ranks; ++r) {
    if (differs[r] >= 0) (*refusals)[r] = {FailedPrecondition(message(differs[r])), differs[r]};
  }
  return status;
}

}  // namespace sok

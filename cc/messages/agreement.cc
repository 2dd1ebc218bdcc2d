#include "cc/messages/agreement.h"

#include "cc/base/hash.h"

namespace sok {
namespace {

bool Agrees(const TableFingerprints& requested, const TableFingerprints& own) {
  return DefinitionsAgree(requested.definition, own.definition) &&
         (requested.optimizer == own.optimizer || requested.optimizer == 0 || own.optimizer == 0);
}

}  // namespace

TableFingerprints FingerprintsOf(const TableDefinition& table) {
  return {table.fingerprint ^ static_cast<uint64_t>(table.mode),
          table.optimizer.empty() ? 0 : Fingerprint64(table.optimizer)};
}

std::string Describe(const TableDefinition& table) {
  return StrCat(
      Describe(*table.options), ", exchanged as ", table.mode == ExchangeMode::kRows ? "rows" : "sums",
      table.optimizer.empty() ? ", not trained yet" : StrCat(", trained by '", table.optimizer, "'"));
}

Status CheckAgreement(Span<const TableDefinition> tables, int rank, int ranks,
                      FunctionRef<TableFingerprints(int, int64_t)> requested,
                      std::vector<Refusal>* refusals) {
  std::vector<int64_t> differs(ranks, -1);
  int64_t first = -1;
  for (int64_t t = tables.size() - 1; t >= 0; --t) {
    const TableFingerprints own = FingerprintsOf(tables[t]);
    for (int r = 0; r < ranks; ++r) {
      if (!Agrees(requested(r, t), own)) differs[r] = first = t;
    }
  }
  if (first < 0) return OkStatus();

  const auto message = [&](int64_t t) {
    return StrCat("Ranks disagree about embedding variable '", tables[t].options->name, "': rank ", rank,
                  " has ", Describe(tables[t]));
  };
  const Status status = FailedPrecondition(message(first), "; another rank differs");
  refusals->assign(ranks, Refusal{status});
  for (int r = 0; r < ranks; ++r) {
    if (differs[r] >= 0) (*refusals)[r] = {FailedPrecondition(message(differs[r])), differs[r]};
  }
  return status;
}

Status FirstRefusal(Span<const MessageHeader> headers, int rank, int64_t num_tables,
                    FunctionRef<std::string(int64_t)> describe) {
  Status first;
  for (const MessageHeader& header : headers) {
    if (header.status.ok()) continue;
    const int64_t t = header.token - 1;
    if (t >= 0 && t < num_tables) {
      return Status(
          header.status.code(),
          StrCat(header.status.message(), "; ",
                 rank == kNoRank ? "the process that asks" : StrCat("rank ", rank), " has ", describe(t)));
    }
    if (first.ok()) first = header.status;
  }
  return first;
}

}  // namespace sok

// All ranks must make and train a table in the same way. They compare fingerprints in every lookup, and if
// those differ, the error says what each rank has.
#ifndef SOK_CC_SHARDED_AGREEMENT_H_
#define SOK_CC_SHARDED_AGREEMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/sharded/exchange_mode.h"
#include "cc/sharded/request.h"
#include "cc/table/table.h"

namespace sok {

// Fingerprints, equal if the definitions are. That of the optimizer is 0 if none has trained the table yet,
// which agrees with any.
uint64_t DefinitionOf(const Table& table, ExchangeMode mode);
uint64_t OptimizerOf(const Table& table);

// The same in words, for errors.
std::string Describe(const Table& table, ExchangeMode mode);

// Why an owner refuses to answer a rank.
struct Refusal {
  Status status;
  // The position of the table that differs from the owner's: the rank adds its own definition to the text.
  int64_t table = -1;

  int64_t token() const { return table + 1; }
};

// Compares the tables of this rank, the owner, with those of every rank: requests[r][t] is rank r's request
// for table t. FailedPrecondition names the first disagreement, and *refusals then has the answer for each
// rank.
Status CheckAgreement(Span<Table* const> tables, Span<const ExchangeMode> modes, int rank,
                      const std::vector<std::vector<TableRequest>>& requests, std::vector<Refusal>* refusals);

}  // namespace sok

#endif  // SOK_CC_SHARDED_AGREEMENT_H_

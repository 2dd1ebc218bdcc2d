// Ranks must have made and must train a table in the same way. They compare fingerprints with every lookup,
// and where those differ, say what each has.
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

// Fingerprints: equal where the tables are; of the optimizer 0 where none has trained the table yet, which
// agrees with any.
uint64_t DefinitionOf(const Table& table, ExchangeMode mode);
uint64_t OptimizerOf(const Table& table);

// The same in words, for errors.
std::string Describe(const Table& table, ExchangeMode mode);

// Why an owner refuses to answer a rank.
struct Refusal {
  Status status;
  // Where the rank's table differs from the owner's, its number: the rank adds to the text what it has
  // itself.
  int64_t table = -1;

  int64_t token() const { return table + 1; }
};

// Compares the tables of this rank, the owner, with those of every rank: requests[r][t] is what rank r asks
// of table t. FailedPrecondition names the first disagreement, and then *refusals has what to tell each rank.
Status CheckAgreement(Span<Table* const> tables, Span<const ExchangeMode> modes, int rank,
                      const std::vector<std::vector<TableRequest>>& requests, std::vector<Refusal>* refusals);

}  // namespace sok

#endif  // SOK_CC_SHARDED_AGREEMENT_H_

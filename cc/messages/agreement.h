// All ranks must make and train a table in the same way. They compare fingerprints in every lookup, and if
// those differ, the error says what each rank has.
#ifndef SOK_CC_MESSAGES_AGREEMENT_H_
#define SOK_CC_MESSAGES_AGREEMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/function_ref.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/messages/message.h"
#include "cc/messages/request.h"
#include "cc/table/table_options.h"

namespace sok {

// A table's options on this rank, and the optimizer that trains it.
struct TableDefinition {
  const TableOptions* options = nullptr;
  uint64_t fingerprint = 0;  // of the options
  ExchangeMode mode = ExchangeMode::kRows;
  std::string optimizer;  // "" if none has trained the table yet
};

// Fingerprints, equal if the definitions are. That of the optimizer is 0 if none has trained the table yet,
// which agrees with any.
TableFingerprints FingerprintsOf(const TableDefinition& table);

// The definition as text, for errors.
std::string Describe(const TableDefinition& table);

// Why an owner refuses to answer a rank.
struct Refusal {
  Status status;
  // The position of the table that differs from the owner's: the rank adds its own definition to the text.
  int64_t table = -1;

  // The token of the answer's header, from which FirstRefusal gets `table`; 0 if there is none.
  int64_t token() const { return table + 1; }
};

// Compares the tables of this rank, the owner, with those of every rank: requested(r, t) is what rank r's
// request says of table t. FailedPrecondition names the first disagreement, and *refusals then has the answer
// for each rank.
Status CheckAgreement(Span<const TableDefinition> tables, int rank, int ranks,
                      FunctionRef<TableFingerprints(int, int64_t)> requested, std::vector<Refusal>* refusals);

// The error in the answers to rank `rank`, if any: preferably a refusal to which this rank can add its own
// definition, describe(t) of table t, otherwise the first. headers[r] is that of rank r's answer.
Status FirstRefusal(Span<const MessageHeader> headers, int rank, int64_t num_tables,
                    FunctionRef<std::string(int64_t)> describe);

}  // namespace sok

#endif  // SOK_CC_MESSAGES_AGREEMENT_H_

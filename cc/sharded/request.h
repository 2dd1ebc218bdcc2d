// The payload of exchange 1: one rank's request to one owner.
#ifndef SOK_CC_SHARDED_REQUEST_H_
#define SOK_CC_SHARDED_REQUEST_H_

#include <cstdint>
#include <vector>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/sharded/message.h"

namespace sok {

// A rank's request for one table. On the wire: four words for each table, then for each table its ids and,
// two to a word, its int32 numbers: for kSums the lengths of its rows, for kRows the counts of its ids, if
// any.
struct TableRequest {
  uint64_t definition = 0;  // fingerprints of how this rank made the table,
  uint64_t optimizer = 0;   // and of what trains it; 0 for nothing yet
  Span<const int64_t> ids;
  std::vector<int32_t> lengths;  // kSums: how many of the ids, in order, each row sums up
  std::vector<int32_t> counts;   // kRows, tables that count: how often the rank looked each id up
};

// The number of words of the payload of a request.
int64_t RequestWords(Span<const TableRequest> tables);
void WriteRequest(Span<const TableRequest> tables, int64_t* payload);

// Reads a request for `num_tables` tables; its ids point into the payload. Internal if its sizes are
// inconsistent.
Status ReadRequest(Span<const int64_t> payload, int64_t num_tables, std::vector<TableRequest>* tables);

}  // namespace sok

#endif  // SOK_CC_SHARDED_REQUEST_H_

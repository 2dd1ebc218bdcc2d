// The payload of exchange 1: one rank's request to one owner.
#ifndef SOK_CC_MESSAGES_REQUEST_H_
#define SOK_CC_MESSAGES_REQUEST_H_

#include <cstdint>
#include <vector>

#include "cc/base/function_ref.h"
#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/messages/message.h"

namespace sok {

// Fingerprints of a table's options on a rank and of the optimizer that trains it; 0 if there is none yet.
struct TableFingerprints {
  uint64_t definition = 0;
  uint64_t optimizer = 0;
};

// The entry of one table in a request, before the data of all tables: kRequestEntryWords words.
struct RequestEntry {
  TableFingerprints fingerprints;
  int64_t ids = 0;  // below 2^32, as are the numbers below
  int64_t lengths = 0;
  int64_t counts = 0;
  // From a process that is no rank and trains, to the first owner: the ids that it looked up of all owners,
  // with duplicates. The owner counts them for it.
  int64_t occurrences = 0;

  // The number of words of the table's data.
  int64_t data_words() const;
  // The bytes of the entry and the data.
  int64_t bytes() const;
  // Whether the counts are one for each id, or none, and the data has at most `left` words.
  bool Fits(int64_t left) const;
  // Whether the entry is valid for a table of this mode: kSums has lengths if there are ids, and no counts;
  // kRows has no lengths.
  bool FitsMode(ExchangeMode mode) const;
};
constexpr int64_t kRequestEntryWords = 4;

void WriteEntry(const RequestEntry& entry, int64_t* words);
RequestEntry ReadEntry(const int64_t* words);

// The error of a request of `words` words whose sizes are inconsistent.
Status DamagedRequest(int64_t words, int64_t num_tables);

// DamagedRequest, with the rank, unless the entries of all requests fit the modes of their tables.
// entry_of(r, t) is the entry of table t in rank r's message. CheckAgreement, which runs first, has found
// ranks whose mode for a table differs.
Status CheckModes(const Inbox& requests, Span<const ExchangeMode> modes,
                  FunctionRef<RequestEntry(int, int64_t)> entry_of);

// A rank's request for one table. On the wire: four words for each table, then for each table its ids and,
// two to a word, its int32 numbers: for kSums the lengths of its rows, for kRows the counts of its ids, if
// any.
struct TableRequest {
  TableFingerprints fingerprints;
  Span<const int64_t> ids;
  std::vector<int32_t> lengths;  // kSums: how many of the ids, in order, each row sums up
  std::vector<int32_t> counts;   // kRows, tables that count: how often the rank looked each id up
  int64_t occurrences = 0;

  RequestEntry entry() const {
    return {fingerprints, ids.size(), static_cast<int64_t>(lengths.size()),
            static_cast<int64_t>(counts.size()), occurrences};
  }
};

// The number of words of the payload of a request.
int64_t RequestWords(Span<const TableRequest> tables);
void WriteRequest(Span<const TableRequest> tables, int64_t* payload);

// Reads a request for `num_tables` tables; its ids point into the payload. Internal if its sizes are
// inconsistent.
Status ReadRequest(Span<const int64_t> payload, int64_t num_tables, std::vector<TableRequest>* tables);

}  // namespace sok

#endif  // SOK_CC_MESSAGES_REQUEST_H_

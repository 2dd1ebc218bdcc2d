// The errors of a table that users cause, with the same messages for all engines. Every message names the
// embedding variable.
#ifndef SOK_CC_TABLE_TABLE_ERRORS_H_
#define SOK_CC_TABLE_TABLE_ERRORS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "cc/base/status.h"
#include "cc/table/table_options.h"

namespace sok {

// `status` with the variable's name in front of its message, unless the message begins with it already.
inline Status NamedError(const TableOptions& table, const Status& status) {
  if (status.ok()) return status;
  const std::string name = StrCat("Embedding variable '", table.name, "'");
  if (status.message().compare(0, name.size(), name) == 0) return status;
  return Status(status.code(), StrCat(name, ": ", status.message()));
}

// --- New keys ---

// A table of `rows` rows is full.
inline Status TableIsFull(const TableOptions& table, int64_t rows, int64_t new_keys) {
  return ResourceExhausted("Embedding variable '", table.name, "' is full: it holds ", rows, " of at most ",
                           table.capacity, " rows on rank ", table.rank, ", without room for ", new_keys,
                           " new keys");
}

// Whether a status, or the one that it was made from, is that of TableIsFull.
inline bool SaysTableIsFull(const TableOptions& table, const Status& status) {
  const std::string full = StrCat("Embedding variable '", table.name, "' is full: ");
  return status.code() == StatusCode::kResourceExhausted &&
         status.message().compare(0, full.size(), full) == 0;
}

// A full table evicts rows, but not those that the same lookup needs.
inline Status LookupExceedsCapacity(const TableOptions& table, int64_t needed) {
  return ResourceExhausted("Embedding variable '", table.name, "' holds at most ", table.capacity,
                           " rows on rank ", table.rank, ", but one lookup needs ", needed);
}

// `status` of a table with `rows` rows, in `bytes` of memory, that could not get more memory.
inline Status NoRoomFor(const TableOptions& table, int64_t rows, int64_t bytes, const Status& status) {
  return Status(status.code(), StrCat("Embedding variable '", table.name, "' with ", rows, " rows in ", bytes,
                                      " bytes: ", status.message()));
}

// --- Keys and rows ---

inline Status NoRowForKey(const TableOptions& table, int64_t key) {
  return InvalidArgument("Embedding variable '", table.name, "' has no row for key ", key,
                         ": without a hash table keys are in [0, ",
                         table.placement.StaticKeys(table.ranks, table.capacity), ")");
}

inline Status CannotEraseKeys(const TableOptions& table) {
  return InvalidArgument("Embedding variable '", table.name,
                         "' cannot erase keys: without a hash table every key has a row");
}

inline Status KeyToAssignOccursTwice(const TableOptions& table, int64_t key) {
  return InvalidArgument("Embedding variable '", table.name, "': key ", key,
                         " occurs twice among the keys to assign");
}

inline Status TooManyKeys(const TableOptions& table, int64_t keys) {
  return InvalidArgument("Embedding variable '", table.name, "': one call takes at most 2^31 - 1 keys, got ",
                         keys);
}

// A reference to a row that the table, which holds `rows` rows, never had.
inline Status NoRowNumbered(const TableOptions& table, int64_t row, int64_t rows) {
  return InvalidArgument("Embedding variable '", table.name, "' has no row number ", row, ": it holds ", rows,
                         " rows");
}

inline Status RowWasEvicted(const TableOptions& table, int64_t key) {
  return FailedPrecondition(
      "Embedding variable '", table.name, "': the row of key ", key,
      " was evicted since the lookup, but the gradients of the lookup's weights need it");
}

// --- Optimizers ---

inline Status TrainedByAnother(const TableOptions& table, std::string_view own, std::string_view optimizer) {
  return FailedPrecondition("Embedding variable '", table.name, "' is trained by '", own,
                            "', whose state is stored in its rows, and cannot be trained by '", optimizer,
                            "' too");
}

// Of a table with numbers in 16 bits.
inline Status WouldRoundManyStepsOnce(const TableOptions& table, std::string_view optimizer) {
  return NamedError(table,
                    InvalidArgument("optimizer '", optimizer,
                                    "' also changes rows without a gradient, and makes up for many steps at "
                                    "once; numbers in 16 bits would be rounded once where each step rounds. "
                                    "Use an optimizer that leaves such rows as they are, or float32"));
}

inline Status HasOptimizerAlready(const TableOptions& table, std::string_view own) {
  return FailedPrecondition("Embedding variable '", table.name, "' has an optimizer already: '", own, "'");
}

}  // namespace sok

#endif  // SOK_CC_TABLE_TABLE_ERRORS_H_

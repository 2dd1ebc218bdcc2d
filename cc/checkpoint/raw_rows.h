// Moves the rows of a table into raw files and out of them.
#ifndef SOK_CC_CHECKPOINT_RAW_ROWS_H_
#define SOK_CC_CHECKPOINT_RAW_ROWS_H_

#include <cstdint>
#include <memory>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/checkpoint/raw_files.h"
#include "cc/engine/engine.h"

namespace sok {

// Brings this rank's rows up to date, writes and syncs them. row_counts[r] is the number of rows of rank r,
// which determines their position in the files; rows that were inserted since they were counted are left out.
// FailedPrecondition if the table has fewer rows by now. Other errors as of RawFilesWriter.
Status WriteRawRows(const EngineContext& context, EngineTable* table, Span<const int64_t> row_counts,
                    const RawFilesWriter& writer);

// Makes a table of `engine` with `options` and those of the rows that its rank holds. `keys` come from
// reader->ReadKeys. Errors as of RawFilesReader, and ResourceExhausted if the capacity or memory does not
// suffice.
StatusOr<std::shared_ptr<EngineTable>> LoadRawRows(const EngineContext& context, Engine* engine,
                                                   const TableOptions& options, Span<const int64_t> keys,
                                                   RawFilesReader* reader);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_RAW_ROWS_H_

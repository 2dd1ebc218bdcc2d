// The rows of a table on their way into raw files and out of them.
#ifndef SOK_CC_CHECKPOINT_RAW_ROWS_H_
#define SOK_CC_CHECKPOINT_RAW_ROWS_H_

#include <cstdint>
#include <memory>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cc/checkpoint/raw_files.h"
#include "cc/engine/engine.h"

namespace sok {

// Writes this rank's rows, brought up to date, synced to the disk. row_counts[r] are the rows of rank r,
// which say where in the files they go; rows that the table got since they were counted are left out.
// FailedPrecondition where it has fewer by now. Other errors as of RawFilesWriter.
Status WriteRawRows(const EngineContext& context, EngineTable* table, Span<const int64_t> row_counts,
                    const RawFilesWriter& writer);

// A table of `engine` with `options`, and in it those of the rows that belong to its rank. `keys` are what
// reader->ReadKeys gave. Errors as of RawFilesReader, and ResourceExhausted where the capacity or the memory
// does not suffice.
StatusOr<std::shared_ptr<EngineTable>> LoadRawRows(const EngineContext& context, Engine* engine,
                                                   const TableOptions& options, Span<const int64_t> keys,
                                                   RawFilesReader* reader);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_RAW_ROWS_H_

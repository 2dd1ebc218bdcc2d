// Writes the rows of a table to raw files, and reads them.
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
// as counted earlier; it determines the position of rows in the files. Rows inserted after the count are left
// out. FailedPrecondition if the table has fewer rows than counted. Other errors as for RawFilesWriter.
Status WriteRawRows(const EngineContext& context, EngineTable* table, Span<const int64_t> row_counts,
                    const RawFilesWriter& writer);

// Makes a table of `engine` with `options`, and loads the rows that its rank holds. `keys` come from
// reader.ReadKeys. Errors as for RawFilesReader; ResourceExhausted if the capacity or memory is exhausted;
// InvalidArgument if a table without hashing has other keys than the files.
StatusOr<std::shared_ptr<EngineTable>> LoadRawRows(const EngineContext& context, Engine* engine,
                                                   const TableOptions& options, Span<const int64_t> keys,
                                                   const RawFilesReader& reader);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_RAW_ROWS_H_

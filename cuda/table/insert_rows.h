// New rows in all tables of a group.
#ifndef SOK_CUDA_TABLE_INSERT_ROWS_H_
#define SOK_CUDA_TABLE_INSERT_ROWS_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "cc/base/span.h"
#include "cc/base/status.h"
#include "cuda/base/device_allocator.h"
#include "cuda/base/staged_upload.h"
#include "cuda/table/device_table.h"
#include "cuda/table/ids_of_group.h"

namespace sok {

// Inserts `some` of the ids of a group, which have no rows, with their initial rows: rows[u] becomes the row
// of id u. `begin` is a copy of some.begin on the host. Every table must have reserved room
// (DeviceTable::Reserve) for its new keys. Checks nothing. ResourceExhausted if `scratch` runs out of memory;
// then nothing was inserted.
Status InsertRows(cudaStream_t stream, DeviceAllocator* scratch, StagedUpload* upload,
                  Span<DeviceTable* const> tables, const IdsOfGroup& ids, const SomeIds& some,
                  Span<const int64_t> begin, int64_t* rows);

}  // namespace sok

#endif  // SOK_CUDA_TABLE_INSERT_ROWS_H_

#include "cuda/base/grid.h"
#include "cuda/base/launch.h"
#include "cuda/table/gather_keys.h"

namespace sok {
namespace {

// Null keys: those of a table without hashing.
__global__ void __launch_bounds__(kThreadsPerBlock)
    GatherKeysKernel(const int64_t* keys_of_rows, StaticRows static_rows, const int64_t* rows, int64_t n,
                     int64_t* keys) {
  for (int64_t i = ThreadOfGrid(); i < n; i += ThreadsOfGrid()) {
    keys[i] = keys_of_rows == nullptr ? static_rows.KeyOf(rows[i]) : keys_of_rows[rows[i]];
  }
}

}  // namespace

Status GatherKeys(cudaStream_t stream, const DeviceTable& table, const int64_t* rows, int64_t n,
                  int64_t* keys) {
  const int64_t* const keys_of_rows = table.options().use_hashtable ? table.directory().view().keys : nullptr;
  return Launch("GatherKeys", stream, ShapeFor(n), GatherKeysKernel, keys_of_rows, table.static_rows(), rows,
                n, keys);
}

}  // namespace sok

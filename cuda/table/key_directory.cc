#include "cuda/table/key_directory.h"

namespace sok {

Status KeyDirectory::Reserve(cudaStream_t stream, int64_t keys, int64_t rows) {
  if (rows > kMaxRows) return ResourceExhausted("cannot make room for ", rows, " rows");
  SOK_RETURN_IF_ERROR(keys_.Reserve(stream, rows));
  SOK_RETURN_IF_ERROR(states_.Reserve(stream, rows));
  return index_.Reserve(stream, keys);
}

void KeyDirectory::CountGiven(int64_t n) {
  row_limit_ = RowLimitWith(n);
  num_free_ = std::max<int64_t>(num_free_ - n, 0);
  index_.CountInserted(n);
}

void KeyDirectory::CountErased(cudaStream_t stream, int64_t n) {
  num_free_ += n;
  has_erased_ = has_erased_ || n > 0;
  index_.CountErased(stream, n);
}

}  // namespace sok

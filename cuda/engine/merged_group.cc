#include "cuda/engine/merged_group.h"

#include "cuda/base/cuda_status.h"

namespace sok {

void MergedGroup::TakeUniqueBegin(const int64_t* begin) {
  for (int t = 0; t < num_tables(); ++t) {
    tables[t].first = begin[t];
    tables[t].unique = begin[t + 1] - begin[t];
  }
  unique_count = begin[num_tables()];
}

Status MergedGroup::CopyReferences(cudaStream_t stream, int t, int64_t* references) const {
  const TableOfPlan& table = tables[static_cast<size_t>(t)];
  if (table.trained == 0) return OkStatus();
  return CudaStatus(
      cudaMemcpyAsync(references, rows.data() + table.first,
                      static_cast<size_t>(table.trained) * sizeof(int64_t), cudaMemcpyDeviceToDevice, stream),
      "cannot copy references on the device");
}

}  // namespace sok

#include "cuda/base/grid.h"
#include "cuda/base/launch.h"
#include "cuda/base/parts.h"
#include "cuda/table/references.h"

namespace sok {
namespace {

__global__ void __launch_bounds__(kThreadsPerBlock)
    MakeReferencesKernel(IdsOfGroup ids, const uint32_t* const* states, int64_t* rows) {
  const int64_t n = ids.begin[ids.tables];
  for (int64_t u = ThreadOfGrid(); u < n; u += ThreadsOfGrid()) {
    const uint32_t* const of_table = states[PartOf(ids.begin, ids.tables, u)];
    const int64_t row = rows[u];
    if (of_table != nullptr && row >= 0) rows[u] = ReferenceTo(row, of_table[row]);
  }
}

__device__ __forceinline__ void NoteFirst(uint64_t* first, int64_t i) {
  atomicMin(reinterpret_cast<unsigned long long*>(first), static_cast<unsigned long long>(i));
}

__global__ void __launch_bounds__(kThreadsPerBlock) ResolveKernel(ReferencedRows in) {
  for (int64_t i = ThreadOfGrid(); i < in.n; i += ThreadsOfGrid()) {
    const int64_t reference = in.references[i];
    const bool has_generation = in.states != nullptr && reference >= 0;
    int64_t row = has_generation ? RowOf(reference) : reference;
    const bool is_known = row == kAbsentRow ? in.may_be_absent : row >= 0 && row < in.row_limit;
    if (!is_known) {
      NoteFirst(in.first_unknown, i);
      row = kAbsentRow;
    } else if (has_generation && !IsCurrentReference(reference, in.states[row])) {
      if (in.first_stale != nullptr) NoteFirst(in.first_stale, i);
      row = kAbsentRow;
    }
    if (in.rows != nullptr) in.rows[i] = row;
  }
}

}  // namespace

Status MakeReferences(cudaStream_t stream, const IdsOfGroup& ids, const uint32_t* const* states,
                      int64_t* rows) {
  return Launch("MakeReferences", stream, ShapeFor(ids.max), MakeReferencesKernel, ids, states, rows);
}

Status ResolveReferences(cudaStream_t stream, const ReferencedRows& referenced) {
  return Launch("ResolveReferences", stream, ShapeFor(referenced.n), ResolveKernel, referenced);
}

}  // namespace sok

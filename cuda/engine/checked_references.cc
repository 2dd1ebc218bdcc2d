#include "cuda/engine/checked_references.h"

#include <algorithm>
#include <utility>

#include "cuda/base/cuda_status.h"
#include "cuda/table/references.h"

namespace sok {

Status CheckedReferences::Enqueue(cudaStream_t stream, DeviceAllocator* scratch, const DeviceTable& table,
                                  Span<const int64_t> references, bool may_be_absent) {
  references_ = references;
  StatusOr<DeviceBuffer<int64_t>> rows = DeviceBuffer<int64_t>::Allocate(scratch, stream, references.size());
  SOK_RETURN_IF_ERROR(table.Named(rows.status()));
  rows_ = std::move(rows.value());
  StatusOr<DeviceBuffer<uint64_t>> firsts = DeviceBuffer<uint64_t>::Allocate(scratch, stream, 2);
  SOK_RETURN_IF_ERROR(table.Named(firsts.status()));
  firsts_ = std::move(firsts.value());
  SOK_RETURN_IF_CUDA_ERROR(
      cudaMemsetAsync(firsts_.data(), 0xff, static_cast<size_t>(firsts_.bytes()), stream),
      "cannot clear two words on the device");
  ReferencedRows referenced;
  referenced.references = references.data();
  referenced.n = references.size();
  referenced.row_limit = table.row_limit();
  referenced.states = table.states();
  referenced.rows = rows_.data();
  referenced.first_unknown = firsts_.data();
  referenced.first_stale = firsts_.data() + 1;
  referenced.may_be_absent = may_be_absent;
  return table.Named(ResolveReferences(stream, referenced));
}

Status CheckedReferences::Check(cudaStream_t stream, const DeviceTable& table, RoundTrip* round_trip) {
  const StatusOr<const uint64_t*> firsts = round_trip->Fetch(stream, firsts_.data(), 2);
  SOK_RETURN_IF_ERROR(table.Named(firsts.status()));
  const uint64_t unknown = firsts.value()[0];
  const auto n = static_cast<uint64_t>(references_.size());
  first_stale_ = static_cast<int64_t>(std::min(firsts.value()[1], n));
  if (unknown >= n) return OkStatus();
  const StatusOr<const int64_t*> reference = round_trip->Fetch(stream, references_.data() + unknown, 1);
  SOK_RETURN_IF_ERROR(table.Named(reference.status()));
  const int64_t value = *reference.value();
  return table.NoRowNumber(table.states() != nullptr && value >= 0 ? RowOf(value) : value);
}

}  // namespace sok

#include "cuda/engine/rows_in_pieces.h"

#include <algorithm>
#include <utility>

#include "cuda/base/device_buffer.h"
#include "cuda/store/row_pieces.h"
#include "cuda/table/select_rows.h"

namespace sok {
namespace {

constexpr int64_t kFloatsOfPiece = int64_t{1} << 22;
constexpr int64_t kMostRowsOfPiece = 32768;

}  // namespace

int64_t RowsOfPiece(const DeviceTable& table) {
  const int64_t rows =
      std::clamp<int64_t>(kFloatsOfPiece / std::max<int64_t>(table.rows().width, 1), 1, kMostRowsOfPiece);
  return table.PieceOf(rows);
}

int64_t RowsInPieces::Floats(const RowParts& parts) const {
  return parts.slots ? table_.rows().width : table_.options().dim;
}

std::vector<RowsInPieces::Column> RowsInPieces::Columns(const RowParts& parts) {
  return {{parts.frequency, &frequency_, &table_.usage().frequency},
          {parts.last_step, &last_step_, &table_.usage().last_step},
          {parts.last_used, &last_used_, &table_.usage().last_used}};
}

Status RowsInPieces::Reserve(const RowParts& parts, int64_t n) {
  const int64_t floats = n * Floats(parts);
  if (host_records_.size() < floats) {
    SOK_ASSIGN_OR_RETURN(host_records_, PinnedBuffer<float>::Allocate(floats));
  }
  if (records_.size() < floats) {
    SOK_ASSIGN_OR_RETURN(records_, DeviceBuffer<float>::Allocate(device_, stream_, floats));
  }
  if (numbers_.size() < n) {
    SOK_ASSIGN_OR_RETURN(numbers_, DeviceBuffer<int64_t>::Allocate(device_, stream_, n));
  }
  const auto resize = [n](bool wanted, std::vector<int64_t>* column) { column->resize(wanted ? n : 0); };
  for (const Column& column : Columns(parts)) resize(column.is_wanted, column.host);
  resize(parts.last_current, &last_current_);
  return OkStatus();
}

template <typename T>
Status RowsInPieces::Copy(T* to, const T* from, int64_t n, cudaMemcpyKind kind) {
  if (n == 0) return OkStatus();
  const int64_t bytes = n * static_cast<int64_t>(sizeof(T));
  SOK_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, stream_),
                           "cannot copy ", bytes, " bytes ", kind == cudaMemcpyDeviceToHost ? "from" : "to",
                           " the device");
  return CudaStatus(cudaStreamSynchronize(stream_), "cannot wait for the device");
}

StatusOr<RowPiece> RowsInPieces::Read(const RowParts& parts, const int64_t* rows, int64_t n) {
  SOK_RETURN_IF_ERROR(Reserve(parts, n));
  const int64_t floats = Floats(parts);
  const RowList list = {rows, 0, n};
  rows_.resize(n);
  keys_.resize(n);
  SOK_RETURN_IF_ERROR(GatherRows(stream_, table_.rows(), list, 0, floats, records_.data()));
  SOK_RETURN_IF_ERROR(GatherKeys(stream_, table_, rows, n, numbers_.data()));
  SOK_RETURN_IF_ERROR(Copy(keys_.data(), numbers_.data(), n, cudaMemcpyDeviceToHost));
  SOK_RETURN_IF_ERROR(Copy(rows_.data(), rows, n, cudaMemcpyDeviceToHost));
  SOK_RETURN_IF_ERROR(Copy(host_records_.data(), records_.data(), n * floats, cudaMemcpyDeviceToHost));
  SOK_RETURN_IF_ERROR(ReadColumns(parts, list));
  record_pointers_.resize(n);
  for (int64_t i = 0; i < n; ++i) record_pointers_[i] = Record(i, floats);
  return RowPiece{rows_, keys_, record_pointers_, frequency_, last_step_, last_used_, last_current_};
}

Status RowsInPieces::ReadColumns(const RowParts& parts, const RowList& list) {
  for (const Column& column : Columns(parts)) {
    if (!column.is_wanted) continue;
    SOK_RETURN_IF_ERROR(GatherColumn(stream_, (*column.of_table)->view(), list, numbers_.data()));
    SOK_RETURN_IF_ERROR(Copy(column.host->data(), numbers_.data(), list.n, cudaMemcpyDeviceToHost));
  }
  if (!parts.last_current) return OkStatus();
  auto* const steps = reinterpret_cast<uint32_t*>(numbers_.data());
  std::vector<uint32_t> host_steps(list.n);
  SOK_RETURN_IF_ERROR(GatherColumn(stream_, table_.optimizer()->last_current(), list, steps));
  SOK_RETURN_IF_ERROR(Copy(host_steps.data(), steps, list.n, cudaMemcpyDeviceToHost));
  for (int64_t i = 0; i < list.n; ++i) last_current_[i] = table_.optimizer()->StepOf(host_steps[i]);
  return OkStatus();
}

StatusOr<RowsToFill> RowsInPieces::Prepare(const RowParts& parts, int64_t n) {
  SOK_RETURN_IF_ERROR(Reserve(parts, n));
  records_to_fill_.resize(n);
  for (int64_t i = 0; i < n; ++i) records_to_fill_[i] = Record(i, Floats(parts));
  return RowsToFill{records_to_fill_, Span<int64_t>(frequency_), Span<int64_t>(last_step_),
                    Span<int64_t>(last_used_), Span<int64_t>(last_current_)};
}

Status RowsInPieces::Write(const RowParts& parts, const int64_t* rows, int64_t n) {
  const int64_t floats = Floats(parts);
  const RowList list = {rows, 0, n};
  SOK_RETURN_IF_ERROR(Copy(records_.data(), host_records_.data(), n * floats, cudaMemcpyHostToDevice));
  SOK_RETURN_IF_ERROR(ScatterRows(stream_, table_.rows(), list, 0, floats, records_.data()));
  SOK_RETURN_IF_ERROR(WriteColumns(parts, list));
  // Wait, because the caller may overwrite the host memory.
  return CudaStatus(cudaStreamSynchronize(stream_), "cannot wait for the device");
}

Status RowsInPieces::WriteColumns(const RowParts& parts, const RowList& list) {
  for (const Column& column : Columns(parts)) {
    if (!column.is_wanted) continue;
    SOK_RETURN_IF_ERROR(Copy(numbers_.data(), column.host->data(), list.n, cudaMemcpyHostToDevice));
    SOK_RETURN_IF_ERROR(ScatterColumn(stream_, (*column.of_table)->view(), list, numbers_.data()));
  }
  if (!parts.last_current) return OkStatus();
  auto* const steps = reinterpret_cast<uint32_t*>(numbers_.data());
  std::vector<uint32_t> host_steps;
  for (const int64_t step : last_current_) host_steps.push_back(table_.optimizer()->ColumnStep(step));
  SOK_RETURN_IF_ERROR(Copy(steps, host_steps.data(), list.n, cudaMemcpyHostToDevice));
  return ScatterColumn(stream_, table_.optimizer()->last_current(), list, steps);
}

}  // namespace sok

// The part of Table that trains rows.
#include <algorithm>
#include <numeric>
#include <utility>

#include "cc/dedup/segments.h"
#include "cc/pooling/segment_sum.h"
#include "cc/table/table.h"

namespace sok {

void Table::BringUpToDate(Executor& executor, Span<const int64_t> rows) {
  if (optimizer_ != nullptr && optimizer_->has_catch_up()) optimizer_->CatchUp(executor, rows, &store_);
}

Status Table::CheckRows(Span<const int64_t> rows) const {
  for (int64_t row : rows) {
    if (row < 0 || row >= num_rows_) {
      return InvalidArgument("Embedding variable '", options_.name, "' has no row number ", row,
                             ": it holds ", num_rows_, " rows");
    }
  }
  return OkStatus();
}

Status Table::Named(const Status& status) const {
  if (status.ok()) return status;
  return Status(status.code(), StrCat("Embedding variable '", options_.name, "': ", status.message()));
}

Status Table::AttachOptimizer(std::string_view name, Span<const float> hyper) {
  auto made = MakeOptimizer(name);
  SOK_RETURN_IF_ERROR(Named(made.status()));
  std::unique_ptr<Optimizer> optimizer = std::move(made.value());
  SOK_RETURN_IF_ERROR(Named(optimizer->CheckHyper(hyper)));
  SOK_RETURN_IF_ERROR(Named(optimizer->Reserve(store_.rows())));
  SOK_RETURN_IF_ERROR(Named(store_.SetSlots(optimizer->Slots(options_.dim, hyper))));
  optimizer_ = std::move(optimizer);
  first_hyper_.assign(hyper.begin(), hyper.end());
  return OkStatus();
}

Status Table::ApplyGradients(Executor& executor, std::string_view optimizer, Span<const float> hyper,
                             Span<const int64_t> rows, const float* grads, bool distinct) {
  SOK_RETURN_IF_ERROR(CheckRows(rows));
  if (optimizer_ == nullptr) SOK_RETURN_IF_ERROR(AttachOptimizer(optimizer, hyper));
  if (optimizer_->name() != optimizer) {
    return FailedPrecondition("Embedding variable '", options_.name, "' is trained by '", optimizer_->name(),
                              "', whose state its rows carry; '", optimizer, "' cannot train it too");
  }
  if (distinct) return Named(optimizer_->Apply(executor, hyper, rows, grads, &store_));

  std::vector<int64_t> unique;
  std::vector<int32_t> inverse(rows.size());
  SOK_RETURN_IF_ERROR(deduplicator_.Run(executor, rows, &unique, Span<int32_t>(inverse)));
  const int64_t num_unique = static_cast<int64_t>(unique.size());
  if (num_unique == rows.size()) return Named(optimizer_->Apply(executor, hyper, rows, grads, &store_));

  Segments segments;
  BuildSegments(inverse, num_unique, &segments);
  std::vector<const float*> grad_rows(rows.size());
  for (size_t i = 0; i < grad_rows.size(); ++i) grad_rows[i] = grads + static_cast<int64_t>(i) * options_.dim;
  std::vector<float> sums(num_unique * options_.dim);
  SegmentSum(executor, segments.offsets, segments.positions, grad_rows, {}, options_.dim, sums.data());
  return Named(optimizer_->Apply(executor, hyper, unique, sums.data(), &store_));
}

int64_t Table::slot_width() const {
  int64_t width = 0;
  if (optimizer_ != nullptr) {
    for (const SlotSpec& slot : optimizer_->Slots(options_.dim, first_hyper_)) width += slot.width;
  }
  return width;
}

std::string Table::SerializeOptimizer(Executor& executor) {
  if (optimizer_ == nullptr) return "";
  std::vector<int64_t> rows(num_rows_);
  std::iota(rows.begin(), rows.end(), 0);
  BringUpToDate(executor, rows);
  return optimizer_->SerializeState();
}

Status Table::RestoreOptimizer(std::string_view name, Span<const float> hyper, std::string_view state) {
  if (optimizer_ != nullptr) {
    return FailedPrecondition("Embedding variable '", options_.name, "' has an optimizer already: '",
                              optimizer_->name(), "'");
  }
  SOK_RETURN_IF_ERROR(AttachOptimizer(name, hyper));
  SOK_RETURN_IF_ERROR(Named(optimizer_->RestoreState(state)));
  for (int64_t row = 0; row < num_rows_; ++row) optimizer_->OnNewRow(row);
  return OkStatus();
}

}  // namespace sok

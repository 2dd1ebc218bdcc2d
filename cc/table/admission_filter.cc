#include "cc/table/admission_filter.h"

#include <algorithm>
#include <utility>

namespace sok {

Status AdmissionFilter::Init(const Admission& admission) {
  admission_ = admission;
  if (admission.kind == Admission::Kind::kCounter) waiting_.emplace();
  if (admission.kind != Admission::Kind::kBloom) return OkStatus();
  auto counters = BloomCounters::Create(admission.max_element_size, admission.false_positive_probability,
                                        admission.counter_bits);
  SOK_RETURN_IF_ERROR(counters.status());
  bloom_.emplace(std::move(counters.value()));
  return OkStatus();
}

int64_t AdmissionFilter::bytes() const {
  return (waiting_.has_value() ? waiting_->bytes() : 0) + (bloom_.has_value() ? bloom_->bytes() : 0);
}

void AdmissionFilter::Total(Span<const int64_t> ids, Span<const int64_t> counts, Span<int64_t> totals) const {
  if (waiting_.has_value()) waiting_->Find(ids, totals);
  for (int64_t i = 0; i < ids.size(); ++i) {
    int64_t before = 0;
    if (waiting_.has_value() && totals[i] != WaitingIds::kAbsent) before = waiting_->count(totals[i]);
    if (bloom_.has_value()) before = bloom_->Count(ids[i]);
    totals[i] = before + std::min(counts[i], INT64_MAX - before);
  }
}

Status AdmissionFilter::Reserve(Span<const int64_t> ids) {
  if (bloom_.has_value()) SOK_RETURN_IF_ERROR(bloom_->Reserve(ids));
  return waiting_.has_value() ? waiting_->Reserve(ids.size(), ids.size()) : OkStatus();
}

void AdmissionFilter::Commit(Span<const int64_t> ids, Span<const int64_t> counts, Span<const int64_t> totals,
                             int64_t step) {
  if (bloom_.has_value()) {
    for (int64_t i = 0; i < ids.size(); ++i) bloom_->Add(ids[i], counts[i]);
  }
  if (!waiting_.has_value()) return;
  // First all that go: an engine that takes ids together, not one by one, finds the same places.
  for (int64_t i = 0; i < ids.size(); ++i) {
    if (Admits(totals[i])) waiting_->Erase(ids[i]);
  }
  for (int64_t i = 0; i < ids.size(); ++i) {
    if (!Admits(totals[i])) waiting_->SetReserved(ids[i], totals[i], step);
  }
}

}  // namespace sok

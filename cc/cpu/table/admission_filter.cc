#include "cc/cpu/table/admission_filter.h"

#include <algorithm>
#include <utility>

namespace sok {

Status WaitingIds::Reserve(int64_t insertions, int64_t erasures) {
  const int64_t needed = directory_.RowLimitWith(insertions);
  // Growing by at least one half keeps the number of reservations small.
  const int64_t places = needed <= counts_.rows() ? counts_.rows() : std::max(needed, limit() + limit() / 2);
  SOK_RETURN_IF_ERROR(directory_.Reserve(size() + insertions, places));
  SOK_RETURN_IF_ERROR(counts_.Reserve(places));
  SOK_RETURN_IF_ERROR(last_steps_.Reserve(places));
  if (erasures > 0) SOK_RETURN_IF_ERROR(directory_.PrepareErase(erasures));
  return changes_.Reserve(places, erasures);
}

Status WaitingIds::Set(int64_t id, int64_t count, int64_t last_step) {
  SOK_RETURN_IF_ERROR(Reserve(1, 0));
  SetReserved(id, count, last_step);
  return OkStatus();
}

void WaitingIds::SetReserved(int64_t id, int64_t count, int64_t last_step) {
  int64_t place;
  directory_.Find({&id, 1}, {&place, 1});
  if (place == kAbsent) {
    directory_.NextRows({&place, 1});
    if (!directory_.Insert({&id, 1}, {&place, 1}).ok()) return;
  }
  counts_[place] = count;
  last_steps_[place] = last_step;
  changes_.MarkChanged(place);
}

bool WaitingIds::Erase(int64_t id) {
  int64_t place;
  directory_.Find({&id, 1}, {&place, 1});
  if (place == kAbsent || !Reserve(0, 1).ok()) return false;
  directory_.Erase(place);
  changes_.MarkErased(place, id);
  return true;
}

void WaitingIds::EraseAll(Span<const int64_t> ids) {
  std::vector<int64_t> places(ids.size());
  directory_.Find(ids, Span<int64_t>(places));
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  for (const int64_t place : places) {
    if (place != kAbsent) Erase(directory_.id(place));
  }
}

void WaitingIds::MoveLastSteps(int64_t by) {
  for (int64_t place = 0; place < limit(); ++place) {
    if (in_use(place)) last_steps_[place] = std::max<int64_t>(last_steps_[place] + by, 0);
  }
}

Status AdmissionFilter::Init(const Admission& admission) {
  admission_ = admission;
  if (admission.kind == Admission::Kind::kCounter) waiting_.emplace();
  if (admission.kind != Admission::Kind::kBloom) return OkStatus();
  SOK_ASSIGN_OR_RETURN(auto counters,
                       BloomCounters::Create(admission.max_element_size, admission.false_positive_probability,
                                             admission.counter_bits));
  bloom_.emplace(std::move(counters));
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

#include "cuda/training/device_optimizer.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <utility>

#include "cc/optimizers/rule_info.h"
#include "cc/optimizers/rules.h"
#include "cuda/training/device_adam_history.h"

namespace sok {

StatusOr<DevicePowers> DevicePowers::Send(cudaStream_t stream, DeviceAllocator* memory, StagedUpload* upload,
                                          Span<const Powers> host) {
  DevicePowers powers;
  powers.powers_.assign(host.begin(), host.end());
  for (int64_t k = 0; k < host.size(); ++k) {
    Powers* const table = &powers.powers_[static_cast<size_t>(k)];
    upload->Add(Span<const double>(host[k].low, Powers::kRow), &table->low);
    upload->Add(Span<const double>(host[k].high, Powers::kRow), &table->high);
  }
  SOK_ASSIGN_OR_RETURN(powers.memory_, upload->Send(stream, memory));
  return StatusOr<DevicePowers>(std::move(powers));
}

namespace {

// Column steps have 32 bits. They restart long before an overflow, at the same step as on the CPU.
constexpr uint32_t kMaxDecaySteps = uint32_t{1} << 31;

template <typename Rule>
std::vector<int> DecayOfSlot() {
  if constexpr (Rule::kUntouched == UntouchedRows::kSlotsDecay) {
    return std::vector<int>(std::begin(Rule::kDecayOfSlot), std::end(Rule::kDecayOfSlot));
  } else {
    return {};
  }
}

template <typename... Rules>
std::vector<int> FindDecayOfSlot(std::string_view name, RuleList<Rules...>) {
  std::vector<int> found;
  ((found = name == Rules::kName ? DecayOfSlot<Rules>() : found), ...);
  return found;
}

}  // namespace

StatusOr<std::unique_ptr<DeviceOptimizer>> DeviceOptimizer::Make(std::string_view name,
                                                                 DeviceAllocator* memory) {
  SOK_ASSIGN_OR_RETURN(const RuleInfo* const rule, FindRule(name));
  return std::unique_ptr<DeviceOptimizer>(
      new DeviceOptimizer(*rule, FindDecayOfSlot(name, AllRules()), memory));
}

Status DeviceOptimizer::Reserve(cudaStream_t stream, int64_t rows) {
  return has_catch_up() ? last_current_.Reserve(stream, rows) : OkStatus();
}

Status DeviceOptimizer::OnNewRows(cudaStream_t stream, const int64_t* rows, int64_t n) {
  if (!has_catch_up()) return OkStatus();
  return FillColumn(stream, last_current_.view(), RowList{rows, 0, n}, now_);
}

void DeviceOptimizer::UseRows(int64_t rows) { rows_in_use_ = std::max(rows_in_use_, rows); }

uint32_t DeviceOptimizer::ColumnStep(int64_t step) const {
  const int64_t missed = std::min<int64_t>(std::max<int64_t>(steps_ - step, 0), now_);
  return static_cast<uint32_t>(now_ - missed);
}

PastSteps DeviceOptimizer::past_steps() const {
  PastSteps past;
  past.first_step = steps_;
  if (history_ == nullptr) return past;
  past.beta1 = history_->beta1();
  past.beta2 = history_->beta2();
  past.epsilon = epsilon_;
  past.first_step = steps_ - history_->steps();
  past.alphas = history_->alphas();
  return past;
}

Status DeviceOptimizer::RestorePastSteps(cudaStream_t stream, const PastSteps& past) {
  if (!can_save_lag()) {
    return InvalidArgument("Optimizer '", name(), "' has no rows that have missed steps");
  }
  const int64_t count = static_cast<int64_t>(past.alphas.size());
  if (past.first_step < 0 || past.first_step != steps_ - count || count > AdamHistory::kMaxSteps) {
    return InvalidArgument("Optimizer '", name(), "' after ", steps_, " steps cannot have missed the ", count,
                           " after step ", past.first_step);
  }
  for (const float alpha : past.alphas) {
    const float hyper[] = {alpha, past.beta1, past.beta2, past.epsilon};
    SOK_RETURN_IF_ERROR(CheckHyper(Span<const float>(hyper, 4)));
  }
  SOK_RETURN_IF_ERROR(ForgetPastSteps(stream));
  if (count == 0) return OkStatus();
  SOK_ASSIGN_OR_RETURN(
      history_, DeviceAdamHistory::Make(stream, memory_, &upload_, past.beta1, past.beta2, past.alphas));
  epsilon_ = past.epsilon;
  now_ = static_cast<uint32_t>(count);
  return FillColumn(stream, last_current_.view(), RowList{nullptr, 0, rows_in_use_}, now_);
}

Status DeviceOptimizer::ForgetPastSteps(cudaStream_t stream) {
  if (history_ != nullptr) history_->set_stream(stream);
  history_.reset();
  factors_.clear();
  return Restart(stream);
}

Status DeviceOptimizer::RestoreSteps(cudaStream_t stream, int64_t steps) {
  steps_ = steps;
  return ForgetPastSteps(stream);
}

PastView DeviceOptimizer::past() const {
  PastView past;
  const RowStepsView row_steps = {last_current_.view(), now_};
  past.decay.row_steps = row_steps;
  for (size_t slot = 0; slot < factors_.size(); ++slot) {
    past.decay.factors[slot] = factors_[slot];
    past.decay.powers[slot] = powers_[static_cast<int64_t>(slot)];
  }
  past.adam.row_steps = row_steps;
  if (history_ != nullptr) past.adam.history = history_->view();
  past.adam.epsilon = epsilon_;
  return past;
}

bool DeviceOptimizer::IsPastOf(Span<const float> hyper) const {
  if (history_ != nullptr) {
    return history_->beta1() == hyper[1] && history_->beta2() == hyper[2] && epsilon_ == hyper[3] &&
           history_->steps() < AdamHistory::kMaxSteps;
  }
  for (size_t slot = 0; slot < factors_.size(); ++slot) {
    if (factors_[slot] != hyper[decay_of_slot_[slot]]) return false;
  }
  return now_ < kMaxDecaySteps;
}

Status DeviceOptimizer::StartPast(cudaStream_t stream, Span<const float> hyper) {
  if (rule_.untouched == UntouchedRows::kMove) {
    StatusOr<std::unique_ptr<DeviceAdamHistory>> history =
        DeviceAdamHistory::Make(stream, memory_, &upload_, hyper[1], hyper[2], {});
    if (!history.ok()) return history.status();
    if (history_ != nullptr) history_->set_stream(stream);
    history_ = std::move(history.value());
    epsilon_ = hyper[3];
  } else {
    std::vector<float> factors;
    std::vector<PowerTable> tables;
    std::vector<Powers> powers;
    for (const int position : decay_of_slot_) {
      factors.push_back(hyper[position]);
      tables.emplace_back(factors.back());
    }
    for (const PowerTable& table : tables) powers.push_back(table.powers());
    SOK_ASSIGN_OR_RETURN(DevicePowers sent, DevicePowers::Send(stream, memory_, &upload_, powers));
    powers_.set_stream(stream);
    powers_ = std::move(sent);
    factors_ = factors;
  }
  return Restart(stream);
}

int64_t DeviceOptimizer::NewVersion() {
  static std::atomic<int64_t> last = 0;
  return ++last;
}

Status DeviceOptimizer::Restart(cudaStream_t stream) {
  now_ = 0;
  version_ = NewVersion();
  if (!has_catch_up() || rows_in_use_ == 0) return OkStatus();
  return FillColumn(stream, last_current_.view(), RowList{nullptr, 0, rows_in_use_}, 0u);
}

Status DeviceOptimizer::Prepare(cudaStream_t stream, Span<const float> hyper, const RowStoreView& table) {
  if (!has_catch_up()) return OkStatus();
  if (!has_past() || !IsPastOf(hyper)) {
    if (StartsAnew(hyper)) {
      const DeviceCatchUp all = {this, table, RowList{nullptr, 0, rows_in_use_}};
      SOK_RETURN_IF_ERROR(EnqueueCatchUps(stream, Span<const DeviceCatchUp>(&all, 1)));
    }
    SOK_RETURN_IF_ERROR(StartPast(stream, hyper));
  }
  return history_ != nullptr ? history_->ReserveStep(stream) : OkStatus();
}

void DeviceOptimizer::Advance() {
  ++steps_;
  version_ = NewVersion();
  if (has_catch_up()) ++now_;
}

Status EnqueueSteps(cudaStream_t stream, DeviceAllocator* scratch, const OccurrenceSegments& group,
                    Span<const DeviceStep> steps) {
  if (steps.empty()) return OkStatus();
  std::vector<RowUpdate> updates;
  std::vector<DeviceAdamHistory::Step> appended;
  for (const DeviceStep& step : steps) {
    DeviceOptimizer* const optimizer = step.optimizer;
    SOK_RETURN_IF_ERROR(optimizer->Prepare(stream, step.hyper, step.update.table));
    updates.push_back(step.update);
    updates.back().hyper = step.hyper.data();
    updates.back().step = optimizer->steps_;
    updates.back().past = optimizer->past();
    if (optimizer->history_ != nullptr) appended.push_back({optimizer->history_.get(), step.hyper[0]});
  }
  SOK_RETURN_IF_ERROR(EnqueueRowUpdates(stream, scratch, steps[0].optimizer->name(), group, updates));
  SOK_RETURN_IF_ERROR(DeviceAdamHistory::Append(stream, appended));
  for (const DeviceStep& step : steps) step.optimizer->Advance();
  return OkStatus();
}

Status EnqueueCatchUps(cudaStream_t stream, Span<const DeviceCatchUp> catch_ups) {
  std::vector<RowCatchUp> rows;
  for (const DeviceCatchUp& catch_up : catch_ups) {
    if (!catch_up.optimizer->has_past()) continue;
    rows.push_back({catch_up.table, catch_up.rows, catch_up.optimizer->past()});
  }
  if (rows.empty()) return OkStatus();
  return EnqueueRowCatchUps(stream, catch_ups[0].optimizer->name(), rows);
}

}  // namespace sok

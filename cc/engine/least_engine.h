// The least that is an engine, for tests of what engines need not implement. Its tables hold no rows.
#ifndef SOK_CC_ENGINE_LEAST_ENGINE_H_
#define SOK_CC_ENGINE_LEAST_ENGINE_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "cc/engine/engine.h"

namespace sok {

class LeastTable final : public EngineTable {
 public:
  LeastTable(Engine* engine, TableOptions options) : EngineTable(engine), options_(std::move(options)) {}
  const TableOptions& options() const override { return options_; }
  TableDescription Describe() const override { return {}; }
  const LookupCounts& lookup_counts() const override { return counts_; }
  Status ApplyGradients(const EngineContext& /*context*/, std::string_view /*optimizer*/,
                        Span<const float> /*hyper*/, Span<const int64_t> /*references*/,
                        const float* /*grads*/, bool /*distinct*/) override {
    return OkStatus();
  }
  Status Assign(const EngineContext& /*context*/, Span<const int64_t> /*keys*/,
                const float* /*values*/) override {
    return OkStatus();
  }

 private:
  const TableOptions options_;
  const LookupCounts counts_;
};

class LeastPlan final : public GroupPlan {
 public:
  using GroupPlan::GroupPlan;
  int64_t trained_rows(int /*t*/) const override { return 0; }
  Status WriteReferences(const EngineContext& /*context*/, int /*t*/,
                         int64_t* /*references*/) const override {
    return OkStatus();
  }
};

class LeastEngine final : public Engine {
 public:
  explicit LeastEngine(std::string name) : name_(std::move(name)) {}
  const std::string& name() const override { return name_; }
  StatusOr<std::shared_ptr<EngineTable>> MakeTable(const EngineContext& /*context*/,
                                                   TableOptions options) override {
    return std::shared_ptr<EngineTable>(std::make_shared<LeastTable>(this, std::move(options)));
  }
  std::unique_ptr<GroupPlan> NewPlan() override { return std::make_unique<LeastPlan>(this); }
  std::unique_ptr<EngineScratch> NewScratch() override { return std::make_unique<EngineScratch>(this); }
  Status Lookup(const EngineContext& /*context*/, const GroupBatch& /*batch*/, GroupPlan* /*plan*/,
                Span<const OutputRows> /*outputs*/, EngineScratch* /*scratch*/) override {
    return OkStatus();
  }
  Status Backward(const EngineContext& /*context*/, const GroupPlan& /*plan*/,
                  Span<const GradientRows> /*gradients*/, Span<float* const> /*grads_out*/,
                  EngineScratch* /*scratch*/) override {
    return OkStatus();
  }

 private:
  const std::string name_;
};

}  // namespace sok

#endif  // SOK_CC_ENGINE_LEAST_ENGINE_H_

// The table of known optimizers: one line each.
#include "cc/optimizers/adadelta.h"
#include "cc/optimizers/adagrad.h"
#include "cc/optimizers/adagrad_decay_optimizer.h"
#include "cc/optimizers/adam_step.h"
#include "cc/optimizers/adamax.h"
#include "cc/optimizers/decaying_slots_optimizer.h"
#include "cc/optimizers/elementwise_optimizer.h"
#include "cc/optimizers/exact_adam.h"
#include "cc/optimizers/ftrl_optimizer.h"
#include "cc/optimizers/keras_rmsprop.h"
#include "cc/optimizers/momentum.h"
#include "cc/optimizers/nadam.h"
#include "cc/optimizers/optimizer.h"
#include "cc/optimizers/rmsprop.h"
#include "cc/optimizers/rowwise_adagrad_optimizer.h"
#include "cc/optimizers/sgd.h"

namespace sok {
namespace {

struct Entry {
  const char* name;
  std::unique_ptr<Optimizer> (*make)(std::string_view name);
};

template <typename T>
std::unique_ptr<Optimizer> Make(std::string_view name) {
  return std::make_unique<T>(name);
}

constexpr Entry kOptimizers[] = {
    {"sgd", Make<ElementwiseOptimizer<Sgd>>},
    {"momentum", Make<ElementwiseOptimizer<Momentum<false>>>},
    {"nesterov", Make<ElementwiseOptimizer<Momentum<true>>>},
    {"keras_momentum", Make<ElementwiseOptimizer<KerasMomentum<false>>>},
    {"keras_nesterov", Make<ElementwiseOptimizer<KerasMomentum<true>>>},
    {"adagrad", Make<ElementwiseOptimizer<Adagrad>>},
    {"adagrad_decay", Make<AdagradDecayOptimizer>},
    {"rowwise_adagrad", Make<RowwiseAdagradOptimizer>},
    {"rmsprop", Make<ElementwiseOptimizer<Rmsprop>>},
    {"rmsprop_centered", Make<ElementwiseOptimizer<RmspropCentered>>},
    {"keras_rmsprop", Make<DecayingSlotsOptimizer<KerasRmsprop>>},
    {"keras_rmsprop_centered", Make<DecayingSlotsOptimizer<KerasRmspropCentered>>},
    {"ftrl", Make<FtrlOptimizer>},
    {"adadelta", Make<ElementwiseOptimizer<Adadelta>>},
    {"adamax", Make<ElementwiseOptimizer<Adamax>>},
    {"nadam", Make<DecayingSlotsOptimizer<Nadam>>},
    {"lazy_adam", Make<ElementwiseOptimizer<AdamStep>>},
    {"adam", Make<ExactAdam>},
};

}  // namespace

StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(std::string_view name) {
  std::string known;
  for (const Entry& entry : kOptimizers) {
    if (name == entry.name) return entry.make(name);
    known += known.empty() ? entry.name : std::string(", ") + entry.name;
  }
  return InvalidArgument("Unknown optimizer '", name, "'; known are ", known);
}

}  // namespace sok

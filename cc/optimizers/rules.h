// The list of all optimizers.
#ifndef SOK_CC_OPTIMIZERS_RULES_H_
#define SOK_CC_OPTIMIZERS_RULES_H_

#include "cc/optimizers/adadelta.h"
#include "cc/optimizers/adagrad.h"
#include "cc/optimizers/adagrad_decay.h"
#include "cc/optimizers/adam.h"
#include "cc/optimizers/adamax.h"
#include "cc/optimizers/adamw.h"
#include "cc/optimizers/ftrl.h"
#include "cc/optimizers/group_ftrl.h"
#include "cc/optimizers/keras_rmsprop.h"
#include "cc/optimizers/momentum.h"
#include "cc/optimizers/nadam.h"
#include "cc/optimizers/rmsprop.h"
#include "cc/optimizers/rowwise_adagrad.h"
#include "cc/optimizers/rowwise_adam.h"
#include "cc/optimizers/sgd.h"

namespace sok {

template <typename... Rules>
struct RuleList {};

// clang-format off
using AllRules = RuleList<
    Sgd,
    Momentum<false>,
    Momentum<true>,
    KerasMomentum<false>,
    KerasMomentum<true>,
    Adagrad,
    AdagradDecay,
    RowwiseAdagrad,
    Rmsprop,
    RmspropCentered,
    KerasRmsprop,
    KerasRmspropCentered,
    Ftrl,
    GroupFtrl,
    Adadelta,
    Adamax,
    Nadam,
    LazyAdam,
    AdamW,
    RowwiseAdam,
    Adam>;
// clang-format on

}  // namespace sok

#endif  // SOK_CC_OPTIMIZERS_RULES_H_

#ifndef SOK_CC_ENGINE_CONTRACT_SKETCH_ENGINE_H_
#define SOK_CC_ENGINE_CONTRACT_SKETCH_ENGINE_H_

#include <memory>
#include <string>

#include "cc/engine/engine.h"

namespace sok {

// The smallest engine that is one, with the given name: rows in a std::map, one loop for everything, SGD
// alone. It shows what the seam asks of an engine, and that ops run on whatever stands behind it. Offers
// tables, erasing, lookups on one rank, their gradients, and ApplyGradients of "sgd".
std::unique_ptr<Engine> MakeSketchEngine(std::string name = "sketch");

}  // namespace sok

#endif  // SOK_CC_ENGINE_CONTRACT_SKETCH_ENGINE_H_

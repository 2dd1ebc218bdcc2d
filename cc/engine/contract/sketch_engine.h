#ifndef SOK_CC_ENGINE_CONTRACT_SKETCH_ENGINE_H_
#define SOK_CC_ENGINE_CONTRACT_SKETCH_ENGINE_H_

#include <memory>
#include <string>

#include "cc/engine/engine.h"

namespace sok {

// A minimal engine with the given name: rows in a std::map, simple loops, only SGD. It shows what the
// interface requires of an engine, and that ops run on any engine. It implements tables, erasing, lookups on
// one rank, their gradients, and ApplyGradients of "sgd".
std::unique_ptr<Engine> MakeSketchEngine(std::string name = "sketch");

}  // namespace sok

#endif  // SOK_CC_ENGINE_CONTRACT_SKETCH_ENGINE_H_

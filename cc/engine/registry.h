// The engines of the process, by name.
#ifndef SOK_CC_ENGINE_REGISTRY_H_
#define SOK_CC_ENGINE_REGISTRY_H_

#include <memory>
#include <string_view>

#include "cc/base/status.h"
#include "cc/engine/engine.h"

namespace sok {

// Adds an engine, until the process ends. Any library may call it while it is loaded. Returns false if
// another engine has the name. Thread-safe.
__attribute__((visibility("default"))) bool RegisterEngine(std::unique_ptr<Engine> engine);

// The engine with that name. InvalidArgument if there is none; the message lists the known engines.
// Thread-safe.
StatusOr<Engine*> FindEngine(std::string_view name);

}  // namespace sok

#endif  // SOK_CC_ENGINE_REGISTRY_H_

// The engines of the process, by name.
#ifndef SOK_CC_ENGINE_REGISTRY_H_
#define SOK_CC_ENGINE_REGISTRY_H_

#include <memory>
#include <string_view>

#include "cc/base/status.h"
#include "cc/engine/engine.h"

namespace sok {

// Makes an engine known, for as long as the process lives. Libraries call it while they are loaded, also
// other ones than that of the ops. Returns whether the name was free. Thread-safe.
__attribute__((visibility("default"))) bool RegisterEngine(std::unique_ptr<Engine> engine);

// The engine of that name. InvalidArgument, which lists those that there are, where there is none.
// Thread-safe.
StatusOr<Engine*> FindEngine(std::string_view name);

}  // namespace sok

#endif  // SOK_CC_ENGINE_REGISTRY_H_

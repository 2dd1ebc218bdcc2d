// An engine that comes in a library of its own, for tests: its RegisterEngine is the op library's.
#include <memory>

#include "cc/engine/least_engine.h"
#include "cc/engine/registry.h"

namespace sok {
namespace {

[[maybe_unused]] const bool kRegistered = RegisterEngine(std::make_unique<LeastEngine>("least"));

}  // namespace
}  // namespace sok

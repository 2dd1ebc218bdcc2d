// The sketch engine in a library of its own, which a program loads beside the op library. It calls the op
// library's RegisterEngine.
#include "cc/engine/contract/sketch_engine.h"
#include "cc/engine/registry.h"

namespace sok {
namespace {

[[maybe_unused]] const bool kRegistered = RegisterEngine(MakeSketchEngine());

}  // namespace
}  // namespace sok

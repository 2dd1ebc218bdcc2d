// The sketch of an engine in a library of its own, which a program loads beside the op library: the
// RegisterEngine that it calls is the op library's.
#include "cc/engine/contract/sketch_engine.h"
#include "cc/engine/registry.h"

namespace sok {
namespace {

[[maybe_unused]] const bool kRegistered = RegisterEngine(MakeSketchEngine());

}  // namespace
}  // namespace sok

// Called by kernels compiled with -fsanitize=bounds-strict,alignment: for an index beyond an array of known
// size, static shared memory included, and for a misaligned access, which is a fault on a device. In builds
// with UndefinedBehaviorSanitizer, its own functions are linked.
#if !defined(__SANITIZE_ADDRESS__)

#include <cstdint>

#include "cuda/on_host/engine/block.h"

namespace {

// As the compiler lays them out.
struct SourceLocation {
  const char* file;
  uint32_t line, column;
};
struct TypeDescriptor {
  uint16_t kind, info;
  char name[1];
};
struct OutOfBoundsData {
  SourceLocation location;
  const TypeDescriptor* array;
  const TypeDescriptor* index;
};
struct TypeMismatchData {
  SourceLocation location;
  const TypeDescriptor* type;
  unsigned char log_alignment, check_kind;
};

sok::on_host::Place PlaceOf(const SourceLocation& location) {
  return {location.file, static_cast<int>(location.line)};
}

}  // namespace

extern "C" {
[[noreturn]] void __ubsan_handle_out_of_bounds(OutOfBoundsData* data, uintptr_t index) {
  sok::on_host::Report(PlaceOf(data->location), "index %lld is out of the bounds of %s",
                       static_cast<long long>(index), data->array->name);
}
[[noreturn]] void __ubsan_handle_type_mismatch_v1(TypeMismatchData* data, uintptr_t address) {
  sok::on_host::Report(PlaceOf(data->location), "an access to %s at %#zx, which is not aligned to %d bytes",
                       data->type->name, address, 1 << data->log_alignment);
}
}

#endif  // !__SANITIZE_ADDRESS__

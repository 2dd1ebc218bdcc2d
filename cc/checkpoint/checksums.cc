#include "cc/checkpoint/checksums.h"

#include <zlib.h>

namespace sok {

uint32_t Crc32(const void* data, int64_t bytes) {
  return static_cast<uint32_t>(crc32_z(0, static_cast<const Bytef*>(data), static_cast<z_size_t>(bytes)));
}

}  // namespace sok

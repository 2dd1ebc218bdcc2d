#ifndef SOK_CC_CHECKPOINT_FUZZ_READ_CHECKPOINT_H_
#define SOK_CC_CHECKPOINT_FUZZ_READ_CHECKPOINT_H_

#include <cstddef>
#include <cstdint>

namespace sok {

// Makes a checkpoint from the bytes and reads it. The first two bytes choose a good checkpoint and its
// reader. The others describe changes: of bytes of arrays, members of manifests, and lengths of files. Most
// checksums are updated, so that the changes reach the reader. Aborts if the reader fails on an unchanged
// checkpoint, or does anything else that it must not do.
void ReadFuzzedCheckpoint(const uint8_t* data, size_t size);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_FUZZ_READ_CHECKPOINT_H_

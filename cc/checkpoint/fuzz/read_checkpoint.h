#ifndef SOK_CC_CHECKPOINT_FUZZ_READ_CHECKPOINT_H_
#define SOK_CC_CHECKPOINT_FUZZ_READ_CHECKPOINT_H_

#include <cstddef>
#include <cstdint>

namespace sok {

// Builds a checkpoint out of the bytes and reads it. The first bytes choose one of some good checkpoints and
// who reads it; those that follow say what is changed in it: bytes of arrays, members of manifests, lengths
// of files. Checksums are brought in line again, so that the changes are seen. Aborts where reading does what
// it must not.
void ReadFuzzedCheckpoint(const uint8_t* data, size_t size);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_FUZZ_READ_CHECKPOINT_H_

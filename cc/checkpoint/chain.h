#ifndef SOK_CC_CHECKPOINT_CHAIN_H_
#define SOK_CC_CHECKPOINT_CHAIN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/checkpoint/files.h"
#include "cc/checkpoint/manifest.h"

namespace sok {

// A checkpoint whose manifest has been read.
struct ReadCheckpoint {
  std::string folder;  // the table's path: see checkpoint_path.h
  std::string path;    // of the manifest
  uint32_t manifest_crc32 = 0;
  Manifest manifest;
};

// The checkpoint at `folder`. NotFound if there is none; DataLoss if its manifest is damaged.
StatusOr<ReadCheckpoint> ReadCheckpointManifest(Files& files, const std::string& folder);

// The checkpoint and those that it builds on, the full one first. NotFound if one is missing; DataLoss, which
// names the file, if one is damaged, was replaced, or does not fit the others.
StatusOr<std::vector<ReadCheckpoint>> ReadChain(Files& files, const std::string& folder);

// The links to `chain` from a checkpoint that is written at `folder`. NotFound if a link does not lead to its
// checkpoint, for example because of symbolic links.
StatusOr<std::vector<ChainLink>> LinksTo(Files& files, const std::vector<ReadCheckpoint>& chain,
                                         const std::string& folder);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_CHAIN_H_

#ifndef SOK_CC_CHECKPOINT_CHAIN_H_
#define SOK_CC_CHECKPOINT_CHAIN_H_

#include <memory>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/checkpoint/manifest.h"
#include "cc/checkpoint/saved_checkpoint.h"

namespace sok {

// A table of a checkpoint, whose entries have been read.
struct ChainedTable {
  std::shared_ptr<SavedCheckpoint> checkpoint;
  std::string id;    // of the save; empty if another system made it
  std::string path;  // for messages: "/ckpt/m.index:t"
  Manifest manifest;
};

// The table `name` of the checkpoint `prefix`, and those that it builds on, the full one first. NotFound if
// one is missing; DataLoss, which names the file, if one is damaged, was replaced, or does not fit the
// others. With `id`, it is the one of that save, which TensorFlow may have removed or replaced.
StatusOr<std::vector<ChainedTable>> ReadChain(OpenedCheckpoints& opened, const std::string& prefix,
                                              const std::string& name, const std::string& id = {});

// The links to `chain` from a checkpoint that is written at `prefix`. NotFound if a link does not lead to its
// checkpoint, for example because of symbolic links.
StatusOr<std::vector<ChainLink>> LinksTo(OpenedCheckpoints& opened, const std::vector<ChainedTable>& chain,
                                         const std::string& prefix);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_CHAIN_H_

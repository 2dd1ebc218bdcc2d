#ifndef SOK_CC_CHECKPOINT_SAVE_STAGES_H_
#define SOK_CC_CHECKPOINT_SAVE_STAGES_H_

#include <string>

#include "cc/checkpoint/table_checkpoint.h"

namespace sok {

// The stages of table_checkpoint.h that need no table, for one with these options.
StatusOr<std::string> PublishShards(const TableOptions& table, const SaveRequest& request);
void AbandonShards(const TableOptions& table, const SaveRequest& request);

// An error with the variable's name in front, where it does not have it already.
Status Named(const TableOptions& table, const Status& status);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_SAVE_STAGES_H_

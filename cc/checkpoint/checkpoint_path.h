// The names of the files that a save has before it is complete, and of what it leaves.
//
// A save to the prefix P has the files P.sok-ID.*, where ID are 16 hex digits: the parts of the ranks and of
// TensorFlow, each a checkpoint in TensorFlow's format, a plan, and the new index.
#ifndef SOK_CC_CHECKPOINT_CHECKPOINT_PATH_H_
#define SOK_CC_CHECKPOINT_CHECKPOINT_PATH_H_

#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/checkpoint/files.h"

namespace sok {

// InvalidArgument unless `id` is 16 lower-case hex digits and the prefix is a valid path (CheckPath) with a
// file name.
Status CheckSave(const std::string& prefix, const std::string& id);
// The status of a save to this prefix. Memory that runs out for all tables together is an error of none of
// them, and of no file; it then names the prefix.
Status NamedSave(const std::string& prefix, const Status& status);

std::string PlanPath(const std::string& prefix, const std::string& id);
std::string NewIndexPath(const std::string& prefix, const std::string& id);
std::string ReplacedIndexPath(const std::string& prefix, const std::string& id);
// Prefixes of checkpoints.
std::string PartPrefix(const std::string& prefix, const std::string& id, int rank);
std::string OthersPrefix(const std::string& prefix, const std::string& id);

// A number for the names of `files` data files at a prefix at which there may be a checkpoint and its
// leftovers: no file there has it, so that nothing is replaced. `names` are those in the folder.
int UnusedShards(const std::vector<std::string>& names, const std::string& prefix, int files);

// Removes what is at a prefix beside its checkpoint: files of other saves, data files that no index names,
// and without any index also TensorFlow's other files. No other process may save there at the same time: it
// holds the prefix's lock. If a question cannot be answered, for example because an index cannot be read,
// nothing is removed.
Status RemoveLeftovers(Files& files, const std::string& prefix);

// Removes what a prefix had before TensorFlow removed or replaced it: RetiredIndexPath, and data files of it
// alone.
Status RemoveRetired(Files& files, const std::string& prefix);

// Removes a checkpoint, whose lock the caller holds; its index goes first. If others build on it (`needed`),
// its tables stay, and its index gets the name under which only they look for it: RetiredIndexPath. NotFound
// if there is none.
Status RemoveCheckpoint(Files& files, const std::string& prefix, bool needed);

// From now on no Saver's max_to_keep counts the checkpoint, whose lock the caller holds.
Status KeepCheckpoint(Files& files, const std::string& prefix);

// The absolute path, without "." and "..".
std::string AbsolutePath(const std::string& path);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_CHECKPOINT_PATH_H_

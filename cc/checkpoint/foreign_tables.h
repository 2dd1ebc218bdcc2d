// Tables in the forms of other systems, which are tensors of a checkpoint of TensorFlow too.
#ifndef SOK_CC_CHECKPOINT_FOREIGN_TABLES_H_
#define SOK_CC_CHECKPOINT_FOREIGN_TABLES_H_

#include <set>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/checkpoint/manifest.h"
#include "cc/checkpoint/saved_checkpoint.h"

namespace sok {

// Values of Manifest::system.
constexpr char kDeepRec[] = "DeepRec";
constexpr char kRecommendersAddons[] = "recommenders-addons";
constexpr char kSok2[] = "SOK 2";
constexpr char kVariable[] = "tf.Variable";

// The table `name` in the form of another system: each of its parts is a shard. NotFound if there is none;
// InvalidArgument if there are several; DataLoss, which names the tensor, if one is missing or does not fit
// the others.
StatusOr<Manifest> ReadForeignTable(SavedCheckpoint& checkpoint, const std::string& name);

struct ForeignTable {
  std::string name;
  std::string system;
};

// The entries in the index of all tables that other systems wrote, and of those of `variables` that can be
// read as tables.
StatusOr<std::set<std::string>> EntriesOfForeignTables(SavedCheckpoint& checkpoint,
                                                       const std::vector<std::string>& variables);

// The tables that other systems wrote, and all variables that can be read as tables, in order of names.
std::vector<ForeignTable> ForeignTables(const SavedCheckpoint& checkpoint);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_FOREIGN_TABLES_H_

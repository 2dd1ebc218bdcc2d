// Tables in the forms of other systems, which are tensors of a checkpoint of TensorFlow too.
#ifndef SOK_CC_CHECKPOINT_FOREIGN_TABLES_H_
#define SOK_CC_CHECKPOINT_FOREIGN_TABLES_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/checkpoint/files.h"
#include "cc/checkpoint/manifest.h"
#include "cc/checkpoint/saved_checkpoint.h"
#include "cc/checkpoint/tensor_index.h"

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

// Slots of tables that other systems saved. These name the slots, but not the optimizer's rule, which the
// program that restores them knows.

bool EndsWith(const std::string& text, const std::string& end);

// The names under which optimizers save slots, below a table's name: by number ("Adam", "Adam_1"), as
// TensorFlow and DeepRec do, and by name ("Adam/m", "Adam/v"), as recommenders-addons does.
const std::vector<std::string>& NumberedSlots();
const std::vector<std::string>& NamedSlots();

// Of each rule, the name of TensorFlow's optimizer with its slots, and its names of them: what exports write.
struct WrittenSlots {
  std::string optimizer;
  std::vector<std::pair<std::string, std::string>> slots;  // our name and theirs, in their order
};
std::map<std::string, WrittenSlots> SlotsOfRules();

// The arrays of such a slot in a shard, and its keys, unless they are those of the rows by construction.
std::string ForeignSlot(const std::string& slot);
std::string ForeignSlotKeys(const std::string& slot);
// The same of a slot that was taken.
std::string SlotKeys(const std::string& slot);

// Gives a table of another system the optimizer that trains it in this program, with the slots that it has,
// and removes other slots. `trained_by` is the optimizer's rule and its constant hyper-parameters, as in
// "adagrad initial_accumulator=0.1 epsilon=0"; empty: no optimizer is restored. The steps are told by the
// powers of beta1 and beta2, or else by the global step. InvalidArgument if the table has slots of another
// rule; DataLoss if slots do not fit the table.
Status TakeSlots(SavedCheckpoint& checkpoint, const std::string& trained_by, Manifest* manifest);

// The same where no program tells the optimizer: that of `trained_by`, or if it is empty the first rule that
// has all of the slots. Hyper-parameters that it does not tell are the usual ones.
Status TakeSlotsByName(SavedCheckpoint& checkpoint, const std::string& trained_by, Manifest* manifest);

// The folders that SOK 2.x's `dump` writes: `meta_info` describes tables, and each table has a file of keys,
// one of values, and one for each slot of its optimizer. Each file begins with a head. All numbers of
// descriptions and heads are big-endian, names are justified to the right with spaces, and values are
// little-endian, in one order of rows. Newer versions write no `meta_info` and no names into heads.

constexpr char kSok2Description[] = "meta_info";

// Whether a path is that of such a description, which stands for its folder as prefixes do for checkpoints.
bool IsSok2Description(const std::string& path);

// The name of a table in such a folder: without punctuation.
std::string Sok2Name(const std::string& table);

// A folder as a checkpoint without checksums: "items-key", "items-weight" and "items-Adam-m" are its tensors,
// each in a data file of its own.
struct Sok2Folder {
  TensorIndex index;
  std::vector<std::string> files;  // the data files' paths, by their numbers
};

// `description` is the path of `meta_info`, which need not be there. NotFound if there is no table; DataLoss,
// which names the file, if one is damaged, or does not fit the description, or lacks bytes.
StatusOr<Sok2Folder> ReadSok2Folder(Files& files, const std::string& description);

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_FOREIGN_TABLES_H_

// Slots of tables that other systems saved. These name the slots, but not the optimizer's rule, which the
// program that restores them knows.
#ifndef SOK_CC_CHECKPOINT_FOREIGN_SLOTS_H_
#define SOK_CC_CHECKPOINT_FOREIGN_SLOTS_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/checkpoint/manifest.h"
#include "cc/checkpoint/saved_checkpoint.h"

namespace sok {

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

}  // namespace sok

#endif  // SOK_CC_CHECKPOINT_FOREIGN_SLOTS_H_
